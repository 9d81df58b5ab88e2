from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cronless_dagster.scheduling.errors import ScheduleError
from cronless_dagster.scheduling.schedules import OnceSchedule, parse_schedule


@pytest.mark.parametrize(
    ("written", "zone", "expected"),
    [
        ("2026-12-01T09:00", "Europe/Berlin", "2026-12-01T08:00:00Z"),
        ("2026-12-01 09:00:30", "Europe/Berlin", "2026-12-01T08:00:30Z"),
        ("2026-12-01T09:00Z", "Europe/Berlin", "2026-12-01T09:00:00Z"),
        ("2026-12-01t09:00z", "Europe/Berlin", "2026-12-01T09:00:00Z"),
        ("2026-12-01T09:00+05:30", "Europe/Berlin", "2026-12-01T03:30:00Z"),
        ("2026-11-01T01:30", "America/New_York", "2026-11-01T05:30:00Z"),
        ("2026-03-08T02:30", "America/New_York", "2026-03-08T07:00:00Z"),
    ],
)
def test_the_instant(written: str, zone: str, expected: str) -> None:
    """Local times are the row's zone's; repeated ones mean the first pass, skipped ones the gap's end."""
    schedule = parse_schedule(f"@once {written}", zone)
    at = datetime.fromisoformat(expected)
    assert isinstance(schedule, OnceSchedule)
    assert schedule.instant == at
    assert schedule.next_after(at - timedelta(microseconds=1)) == at
    assert schedule.next_after(at) is None
    assert schedule.last_at_or_before(at, after=at - timedelta(days=1)) == (at, 1, False)


@pytest.mark.parametrize("policy", ["wall", "wall-first"])
def test_a_skipped_time_is_refused_where_it_would_never_come(policy: str) -> None:
    """Under the wall policies nothing is made up, so the one run would be lost without a word."""
    with pytest.raises(ScheduleError, match="is skipped by the clocks of America/New_York"):
        parse_schedule("@once 2026-03-08T02:30", "America/New_York", policy)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "tomorrow",
        "2026-12-01",
        "2026-13-01T00:00",
        "2026-02-30T00:00",
        "2026-12-01T24:30",
        "09:00",
        "10000-01-01T00:00",
        "0001-01-01T00:00+23:59",
        "9999-12-31T23:59-23:59",
        "20261201T0900",
        "2026-12-01T09:00 UTC",
        "2026-12-01T09:00+99:00",
    ],
)
def test_other_forms_are_refused(written: str) -> None:
    """A date without a time, other forms, and what is no date or lies outside the calendar are refused."""
    with pytest.raises(ScheduleError, match="write it as 2026-12-01T09:00"):
        parse_schedule(f"@once {written}")


def test_the_ends_of_the_calendar_are_instants() -> None:
    """The first and last minute of datetime's years are read, in UTC at least."""
    assert parse_schedule("@once 9999-12-31T23:59").next_after(datetime(2026, 1, 1, tzinfo=UTC)) is not None
    assert parse_schedule("@once 0001-01-01T00:00").next_after(datetime(2026, 1, 1, tzinfo=UTC)) is None
