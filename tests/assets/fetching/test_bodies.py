"""Reading bodies within bounds."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest

from cronless_dagster.assets.fetching import FetchFailed, FetchRefused
from cronless_dagster.assets.fetching.bodies import read

TEXT = b"made-up text, line by line\n" * 10_000


def _pieces(data: bytes, size: int = 1_000) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 1_000, 1_000_000])
def test_gzip(size: int) -> None:
    """A compressed body is the same in whatever pieces it comes."""
    assert read(_pieces(gzip.compress(TEXT), size), " GZip ", len(TEXT), cut=False, name="it") == TEXT


def test_plain() -> None:
    """An uncompressed body is taken as it is, up to the limit and not beyond."""
    assert read(_pieces(TEXT), "", len(TEXT), cut=False, name="it") == TEXT
    with pytest.raises(FetchRefused, match="larger than 269,999 bytes"):
        read(_pieces(TEXT), "identity", len(TEXT) - 1, cut=False, name="it")


def test_cut() -> None:
    """Where a beginning is enough, the rest isn't even read."""

    def parts():
        yield TEXT
        raise AssertionError("the rest was read")

    assert read(parts(), "", 100, cut=True, name="it") == TEXT[:100]


def test_bomb_is_cut_while_it_unfolds() -> None:
    """A small body that would unfold to a hundred megabytes never takes more memory than is allowed."""
    bomb = gzip.compress(bytes(100_000_000))
    assert len(bomb) < 200_000
    tracemalloc.start()
    try:
        with pytest.raises(FetchRefused, match="larger than"):
            read([bomb], "gzip", 1_000_000, cut=False, name="it")
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


def test_layers_are_refused() -> None:
    """Gzip in gzip, which could unfold a million times, and encodings that weren't asked for are refused."""
    for encoding in ("gzip, gzip", "br", "zstd"):
        with pytest.raises(FetchRefused, match="wasn't asked for"):
            read([b"x"], encoding, 1_000, cut=False, name="it")


def test_broken_gzip() -> None:
    """Gzip that isn't one, or that ends early, fails; what stands behind its end is left alone."""
    with pytest.raises(FetchFailed, match="isn't"):
        read([b"<html>"], "gzip", 1_000, cut=False, name="it")
    with pytest.raises(FetchFailed, match="ended before"):
        read(_pieces(gzip.compress(TEXT)[:-9]), "gzip", len(TEXT), cut=False, name="it")
    assert read([gzip.compress(TEXT) + b"\0\0\0", b"more"], "gzip", len(TEXT), cut=False, name="it") == TEXT
