"""The Retry-After header."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cronless_dagster.assets.fetching import retry_after

NOW = datetime(2027, 1, 4, 9, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120),
        (" 0 ", 0),
        ("Mon, 04 Jan 2027 09:05:00 GMT", 300),
        ("Monday, 04-Jan-27 09:05:00 GMT", 300),
        ("Mon Jan  4 09:05:00 2027", 300),
        ("Mon, 04 Jan 2027 10:05:00 +0100", 300),
        ("Mon, 04 Jan 2027 08:00:00 GMT", 0),
        ("99999999999999999999999999", 86_400),
        ("Tue, 04 Jan 2033 08:00:00 GMT", 86_400),
    ],
)
def test_readable(value: str, seconds: int) -> None:
    """Seconds and the three forms of an HTTP date are read; the past is no wait, and a day is the longest."""
    assert retry_after(value, NOW) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value", ["", "soon", "-5", "1.5", "٣", "Mon, 99 Jan 2027 09:05:00 GMT", "\x00", "1e9"]
)
def test_unreadable(value: str) -> None:
    """What is none of these means nothing."""
    assert retry_after(value, NOW) is None
