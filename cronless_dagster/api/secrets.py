"""Secrets of the API: made here, shown once, kept as hashes.

A secret is 256 random bits, so a plain SHA-256 is enough at rest: there is nothing to guess that a slow hash would
protect, and each call pays for it.
"""

from __future__ import annotations

import re
import secrets
from hashlib import sha256

_HASH = re.compile(r"sha256:([0-9a-f]{64})")


def new_secret() -> str:
    """Return a new secret: 43 signs that need no quoting in a URL, a header or a shell."""
    return secrets.token_urlsafe(32)


def hash_of(secret: str) -> str:
    """Return what an access file holds of a secret: `sha256:` and 64 hexadecimal digits, of its UTF-8."""
    return f"sha256:{digest_of(secret.encode()).hex()}"


def digest_of(secret: bytes) -> bytes:
    """Return the 32 bytes that are compared."""
    return sha256(secret).digest()


def read_hash(text: str) -> bytes | None:
    """Return the 32 bytes of a hash as an access file holds it; None for any other text."""
    found = _HASH.fullmatch(text)
    return bytes.fromhex(found[1]) if found else None
