from __future__ import annotations

import pytest

from cronless_dagster.scheduling.errors import CronlessError, ScheduleError, TimezoneError, shown


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0 9 * * *", "'0 9 * * *'"),
        ("tab\t, line\n, \0 and \x1b[31m", r"'tab\t, line\n, \x00 and \x1b[31m'"),
        ("caf\u00e9 \u0663", r"'caf\xe9 \u0663'"),
        (None, "'None'"),
    ],
)
def test_shown_is_one_plain_line(value: object, expected: str) -> None:
    """What a row or a command line holds can't break a log line or a terminal."""
    assert shown(value) == expected


def test_shown_is_short() -> None:
    """A long text is cut, and says so."""
    assert shown("x" * 10_000) == "'" + "x" * 57 + "'..."


def test_one_base() -> None:
    """Whoever catches CronlessError catches them all."""
    assert issubclass(ScheduleError, CronlessError)
    assert issubclass(TimezoneError, CronlessError)
