"""One simulated year of 1,000 real schedules, against a count that shares no code with the planner.

2026 is the year: its American clock change in autumn falls on the first day of a month, where monthly jobs
meet the repeated hour.
"""

from __future__ import annotations

import csv
import heapq
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from numpy.typing import NDArray

from cronless_dagster.scheduling.models import Outcome, PlannedJob, RetryPolicy
from cronless_dagster.scheduling.planner import plan_first, plan_next

REAL = Path(__file__).parents[2] / "examples" / "schedules.csv"
JOBS = 1000
START = datetime(2026, 1, 1, tzinfo=UTC)
END = datetime(2027, 1, 1, tzinfo=UTC)
MINUTES = int((END - START) / timedelta(minutes=1))

RUN = timedelta(seconds=7)
EVERY_NTH_FAILS_ONCE = 40

Minutes = NDArray[np.int64]
Mask = NDArray[np.bool_]

_NAMES = {
    name: number
    for names in ("sun mon tue wed thu fri sat", "- jan feb mar apr may jun jul aug sep oct nov dec")
    for number, name in enumerate(names.split())
}


def field(text: str, low: int, high: int) -> set[int]:
    """Expand one field of a cron line; `N/step`, which not every cron reads, runs to the field's end."""
    values: set[int] = set()
    for part in text.lower().split(","):
        body, _, step = part.partition("/")
        if body == "*":
            first, last = low, high
        else:
            first, last = (_number(end) for end in (body.split("-") * 2)[:2])
            last = high if step and "-" not in body else last
        values.update(range(first, last + 1, int(step or 1)))
    return values


def _number(text: str) -> int:
    return _NAMES[text] if text in _NAMES else int(text)


@dataclass(frozen=True)
class Line:
    """A cron line, expanded; day of week 7 is Sunday."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    both_days: bool
    real_time: bool

    @classmethod
    def of(cls, expr: str) -> Line:
        """Expand an expression by the rules of Debian's cron."""
        minute, hour, day, month, weekday = expr.split()
        return cls(
            frozenset(field(minute, 0, 59)),
            frozenset(field(hour, 0, 23)),
            frozenset(field(day, 1, 31)),
            frozenset(field(month, 1, 12)),
            frozenset(number % 7 for number in field(weekday, 0, 7)),
            day.startswith("*") or weekday.startswith("*"),
            minute.startswith("*") or hour.startswith("*"),
        )


@cache
def local_minutes(zone: str) -> Minutes:
    """Return the local minute number, counted from 1970, at each UTC minute of the year."""
    with files("tzdata").joinpath("zoneinfo", *zone.split("/")).open("rb") as data:
        tz = ZoneInfo.from_file(data)
    # Offsets change at quarter-hours, so one look in each is enough.
    quarters = [START + timedelta(minutes=15 * n) for n in range(MINUTES // 15)]
    offsets = np.array([_minutes(quarter.astimezone(tz).utcoffset()) for quarter in quarters])
    local: Minutes = np.arange(MINUTES) + int(START.timestamp()) // 60 + np.repeat(offsets, 15)
    return local


def _minutes(offset: timedelta | None) -> int:
    assert offset is not None
    return int(offset / timedelta(minutes=1))


@cache
def days_and_minutes(zone: str) -> tuple[Minutes, Minutes]:
    """Return the local day, counted from 1970, and the minute of that day, at each UTC minute of the year."""
    day, minute = np.divmod(local_minutes(zone), 1440)
    return day, minute


@cache
def first_pass(zone: str) -> Mask:
    """Tell at which UTC minutes the clocks show a time that they have not shown before."""
    local = local_minutes(zone)
    mask: Mask = local > np.maximum.accumulate(np.concatenate(([local[0] - 1], local[:-1])))
    return mask


def named(line: Line, day: Minutes, minute: Minutes) -> Mask:
    """Tell which local minutes the line names."""
    numbers = np.arange(day.min(), day.max() + 1)
    month = numbers.astype("datetime64[D]").astype("datetime64[M]")
    in_day = np.isin(numbers - month.astype("datetime64[D]").astype(int) + 1, list(line.days))
    in_weekday = np.isin((numbers + 4) % 7, list(line.weekdays))
    in_month = np.isin(month.astype(int) % 12 + 1, list(line.months))
    days = in_month & (in_day & in_weekday if line.both_days else in_day | in_weekday)
    clock = np.arange(1440)
    minutes = np.isin(clock % 60, list(line.minutes)) & np.isin(clock // 60, list(line.hours))
    mask: Mask = days[day - numbers[0]] & minutes[minute]
    return mask


def brute_force(expr: str, zone: str) -> Minutes:
    """Walk all minutes of the year and return the numbers of those at which Debian's cron would run the line.

    A line whose minute or hour begins with a star follows real time. Any other runs once at the end of a gap
    that skips it, and in the first pass of a repeated hour only.
    """
    line, local = Line.of(expr), local_minutes(zone)
    fires = named(line, *days_and_minutes(zone))
    if not line.real_time:
        fires &= first_pass(zone)
        for end in np.flatnonzero(np.diff(local) > 1) + 1:
            skipped = np.divmod(np.arange(local[end - 1] + 1, local[end]), 1440)
            fires[end] |= bool(named(line, *skipped).any())
    return np.flatnonzero(fires)


def at_most_hourly(expr: str) -> bool:
    """Tell whether the line names one minute of the hour."""
    return len(Line.of(expr).minutes) == 1


def real_schedules() -> list[tuple[str, str]]:
    """Return 1,000 pairs of expression and zone, each at most hourly.

    The real rows come first, those without a zone in UTC. There are fewer than 1,000, so real expressions are
    combined with the real zones of other rows.
    """
    with REAL.open(encoding="utf-8", newline="") as file:
        rows = [(row["expr"], row["timezone"] or "UTC") for row in csv.DictReader(file)]
    rows = [row for row in rows if at_most_hourly(row[0])]
    zones = Counter(zone for _, zone in rows)
    combined = ((expr, zone) for zone, expr in product(sorted(zones), sorted({expr for expr, _ in rows})))
    taken = set(rows)
    more = sorted((pair for pair in combined if pair not in taken), key=lambda pair: pair[::-1])
    stride = len(more) / (JOBS - len(rows))
    return rows + [more[int(n * stride)] for n in range(JOBS - len(rows))]


def new_job(number: int, expr: str, zone: str) -> PlannedJob:
    """Return a job created a minute before the year."""
    return PlannedJob(
        id=UUID(int=number),
        schedule=expr,
        timezone=zone,
        dst_policy="vixie",
        misfire_policy="latest",
        misfire_grace=timedelta(minutes=5),
        starts_at=START,
        ends_at=END - timedelta(microseconds=1),
        jitter=timedelta(0),
        retry=RetryPolicy(),
        created_at=START - timedelta(minutes=1),
        next_run_at=None,
        scheduled_for=None,
    )


def replay(schedules: list[tuple[str, str]]) -> tuple[list[list[datetime]], int]:
    """Serve all jobs for the year on a virtual clock; return each one's occurrences, and how many tries."""
    jobs = [new_job(number, *pair) for number, pair in enumerate(schedules)]
    served: list[list[datetime]] = [[] for _ in jobs]
    due: list[tuple[datetime, int, datetime, int]] = []
    tries = 0
    for number, job in enumerate(jobs):
        plan = plan_first(job, job.created_at)
        if plan.next_run_at is not None and plan.scheduled_for is not None:
            heapq.heappush(due, (plan.next_run_at, number, plan.scheduled_for, 0))
    while due:
        now, number, scheduled_for, attempt = due[0]
        job, tries = jobs[number], tries + 1
        fails = attempt == 0 and tries % EVERY_NTH_FAILS_ONCE == 0
        outcome = Outcome("failure", error="once") if fails else Outcome("success")
        if attempt == 0:
            served[number].append(scheduled_for)
        running = PlannedJob(
            id=job.id,
            schedule=job.schedule,
            timezone=job.timezone,
            dst_policy=job.dst_policy,
            misfire_policy=job.misfire_policy,
            misfire_grace=job.misfire_grace,
            starts_at=job.starts_at,
            ends_at=job.ends_at,
            jitter=job.jitter,
            retry=job.retry,
            created_at=job.created_at,
            next_run_at=now,
            scheduled_for=scheduled_for,
            attempt=attempt + 1,
        )
        plan = plan_next(running, outcome, now + RUN)
        assert plan.missed is None
        if plan.next_run_at is None or plan.scheduled_for is None:
            heapq.heappop(due)
        else:
            heapq.heapreplace(due, (plan.next_run_at, number, plan.scheduled_for, plan.attempt))
    return served, tries


def test_field_expansion() -> None:
    """The brute force's own reading of a field is right."""
    assert field("*/20", 0, 59) == {0, 20, 40}
    assert field("1-5,7,20-22/2", 0, 59) == {1, 2, 3, 4, 5, 7, 20, 22}
    assert field("MON-fri", 0, 7) == {1, 2, 3, 4, 5}
    assert field("Dec", 1, 12) == {12}
    assert field("7/20", 0, 59) == {7, 27, 47}


def test_brute_force_at_a_clock_change() -> None:
    """The brute force knows gaps and repeated hours: New York, 8 March and 1 November 2026."""

    def instants(expr: str, month: int, day: int) -> list[datetime]:
        found = [START + timedelta(minutes=int(n)) for n in brute_force(expr, "America/New_York")]
        return [instant for instant in found if (instant.month, instant.day) == (month, day)]

    assert instants("30 2 * * *", 3, 8) == [datetime(2026, 3, 8, 7, 0, tzinfo=UTC)]
    assert instants("30 1 * * *", 11, 1) == [datetime(2026, 11, 1, 5, 30, tzinfo=UTC)]
    assert len(instants("30 * * * *", 3, 8)) == len(instants("30 * * * *", 11, 1)) == 24


@pytest.mark.slow
def test_a_year_of_real_schedules() -> None:
    """Each of 1,000 real schedules is served at just the instants that a walk over all minutes finds."""
    schedules = real_schedules()
    assert len(set(schedules[-JOBS // 2 :])) == JOBS // 2
    assert len(schedules) == JOBS
    served, tries = replay(schedules)
    for (expr, zone), occurrences in zip(schedules, served, strict=True):
        expected = brute_force(expr, zone)
        assert len(occurrences) == len(expected), (expr, zone)
        found = np.array(
            [(occurrence - START) // timedelta(minutes=1) for occurrence in occurrences], dtype=int
        )
        assert np.array_equal(found, expected), (expr, zone)
    total = sum(map(len, served))
    assert total > 1_200_000
    assert tries >= total + total // (EVERY_NTH_FAILS_ONCE + 1) - 1
