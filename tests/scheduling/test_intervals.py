from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cronless_dagster.scheduling.durations import format_duration, parse_duration
from cronless_dagster.scheduling.errors import ScheduleError
from cronless_dagster.scheduling.schedules import EverySchedule, parse_schedule

ANCHOR = datetime(2026, 3, 7, 12, 34, 56, 789, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15m", 900),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("90s", 90),
        ("2w", 1_209_600),
        ("1d12h", 129_600),
        ("060m", 3600),
    ],
)
def test_durations_are_read_and_written(text: str, seconds: int) -> None:
    """Whole units, the largest first, add up; what is written can be read again."""
    duration = parse_duration(text, what="interval")
    assert duration == timedelta(seconds=seconds)
    assert parse_duration(format_duration(duration), what="interval") == duration


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "15",
        "m",
        "-5m",
        "+5m",
        "1.5h",
        "5M",
        "30m1h",
        "5m5m",
        "PT15M",
        "15 minutes",
        "٣m",
        "9" * 30 + "m",
        "36526d",
    ],
)
def test_other_durations_are_refused(text: str) -> None:
    """Signs, fractions, other orders and forms, and more than a hundred years are refused."""
    with pytest.raises(ScheduleError, match="interval"):
        parse_duration(text, what="interval")


@pytest.mark.parametrize("text", ["@every 59s", "@every 0m", "@every", "@every -1h"])
def test_below_a_minute_is_refused(text: str) -> None:
    """Due jobs are looked for once a minute, so a shorter interval can't be served."""
    with pytest.raises(ScheduleError, match="interval"):
        parse_schedule(text)


def test_counts_elapsed_time_from_the_anchor() -> None:
    """Over a change of offset a day is still 24 hours, and fractions of a second of the anchor stay."""
    schedule = parse_schedule("@every 1d", "America/New_York")
    assert isinstance(schedule, EverySchedule)
    assert schedule.interval == timedelta(days=1)
    assert schedule.next_after(ANCHOR, anchor=ANCHOR) == ANCHOR + timedelta(days=1)
    assert schedule.next_after(ANCHOR + timedelta(days=1.5), anchor=ANCHOR) == ANCHOR + timedelta(days=2)


def test_the_anchor_is_the_first_instant() -> None:
    """Before the anchor the answer is the anchor itself, never an earlier multiple."""
    schedule = parse_schedule("@every 15m")
    assert schedule.next_after(ANCHOR - timedelta(days=9), anchor=ANCHOR) == ANCHOR


def test_without_an_anchor_it_is_aligned_to_the_epoch() -> None:
    """Quarter hours then fall on quarter hours."""
    base = datetime(2026, 1, 1, 10, 7, tzinfo=UTC)
    assert parse_schedule("@every 15m").next_after(base) == datetime(2026, 1, 1, 10, 15, tzinfo=UTC)


def test_the_year_9999_ends_it() -> None:
    """Past the last year datetime knows there is nothing, and no error."""
    assert parse_schedule("@every 1d").next_after(datetime(9999, 12, 31, 12, tzinfo=UTC)) is None
