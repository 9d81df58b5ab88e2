"""One hash that is the same in every process, version and language: for jitter, windows and shards."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import blake2b
from uuid import UUID

from cronless_dagster.scheduling.errors import TimezoneError

Part = str | bytes | UUID | datetime


def stable_hash(*parts: Part) -> int:
    """Return a number in `0 … 2**64 - 1` that depends on the parts alone, uniform in every modulus used here.

    It is the first eight bytes (big endian) of BLAKE2b over each part's length (eight bytes, big
    endian) and bytes: text as UTF-8, a UUID as its 16 bytes, an instant as ISO 8601 text in UTC with
    microseconds. The lengths keep `("ab", "c")` apart from `("a", "bc")`. The built-in `hash()` won't
    do: it is salted anew in every process. Raises TimezoneError for an instant without a zone.
    """
    digest = blake2b(digest_size=8)
    for part in parts:
        raw = _as_bytes(part)
        digest.update(len(raw).to_bytes(8, "big"))
        digest.update(raw)
    return int.from_bytes(digest.digest(), "big")


def _as_bytes(part: Part) -> bytes:
    if isinstance(part, bytes):
        return part
    if isinstance(part, str):
        return part.encode("utf-8", "surrogatepass")
    if isinstance(part, UUID):
        return part.bytes
    if part.tzinfo is None:
        raise TimezoneError(f"The instant {part.isoformat()} has no zone; pass an aware datetime, in UTC.")
    return part.astimezone(UTC).isoformat(timespec="microseconds").encode("ascii")
