"""Reading a body piece by piece, so that no server decides how much memory it takes."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from cronless_dagster.assets.fetching.errors import FetchFailed, FetchRefused
from cronless_dagster.scheduling.errors import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PIECE = 65_536
_GZIP = 16 + zlib.MAX_WBITS
"""How zlib is told to expect gzip's header and checksum, not its own."""


def read(parts: Iterable[bytes], encoding: str, most: int, *, cut: bool, name: str) -> bytes:
    """Return a body of at most so many bytes, decompressed.

    Args:
        parts: The body as it comes from the wire.
        encoding: The answer's Content-Encoding: gzip or nothing, since nothing else is asked for.
        most: The most bytes of the result.
        cut: Return the first `most` bytes of what is larger, instead of refusing it.
        name: What to call it in messages.

    Raises:
        FetchRefused: It is larger, or in another encoding.
        FetchFailed: It isn't what its encoding says, or ends early.
    """
    body = bytearray()
    for piece in _decoded(parts, encoding.strip().lower(), name):
        body += piece
        if len(body) > most:
            if cut:
                return bytes(body[:most])
            raise FetchRefused(
                f"{name} is larger than {most:,} bytes: fetch something smaller, or raise CRONLESS_FETCH_BYTES."
            )
    return bytes(body)


def _decoded(parts: Iterable[bytes], encoding: str, name: str) -> Iterable[bytes]:
    if encoding in ("", "identity"):
        return parts
    if encoding in ("gzip", "x-gzip"):
        return _decompressed(parts, name)
    raise FetchRefused(
        f"{name} is encoded as {shown(encoding)}, which wasn't asked for: its server has to be corrected."
    )


def _decompressed(parts: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Undo gzip in pieces of bounded size: a thousand bytes of it can hold a million."""
    gzip = zlib.decompressobj(_GZIP)
    try:
        for part in parts:
            rest = part
            while rest and not gzip.eof:
                yield gzip.decompress(rest, _PIECE)
                rest = gzip.unconsumed_tail
    except zlib.error as error:
        raise FetchFailed(f"{name} says that it is gzip, but isn't ({error}).") from error
    if not gzip.eof:
        raise FetchFailed(f"{name} ended before its gzip did.")
