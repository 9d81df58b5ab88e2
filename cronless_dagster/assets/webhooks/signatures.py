"""Signatures of delivered content: `X-Hub-Signature: sha256=<hex>` (WebSub 7.1)."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

METHODS = ("sha1", "sha256", "sha384", "sha512")
"""The algorithm names that WebSub 7.1.1 registers. Most hubs still sign with SHA-1, which 8.3 advises against."""


def is_signed(body: bytes, header: str | None, secret: str, methods: Collection[str] = METHODS) -> bool:
    """Tell whether content comes from a holder of the secret.

    Args:
        body: The content's bytes, as they were delivered.
        header: The value of `X-Hub-Signature`; None where there was none.
        secret: What the hub was given as `hub.secret`.
        methods: The accepted algorithms, of `METHODS`.
    """
    method, _, digest = (header or "").strip().partition("=")
    if method.lower() not in methods or method.lower() not in METHODS:
        return False
    expected = hmac.new(secret.encode(), body, method.lower()).hexdigest()
    # In constant time, and as bytes: a header may hold characters beyond ASCII.
    return hmac.compare_digest(expected.encode(), digest.strip().lower().encode("utf-8", "replace"))
