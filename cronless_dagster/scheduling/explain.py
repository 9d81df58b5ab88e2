"""What a schedule will do, and what people get wrong about it, in words.

Warnings never change what a schedule does. They name what real crontabs get wrong most: steps that don't
divide their field, two day fields meant as one, sixty runs where one was meant, hours that a zone skips.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING
from uuid import UUID

from cronless_dagster.scheduling.cron import CronSchedule
from cronless_dagster.scheduling.cron_fields import FIELD_NAMES
from cronless_dagster.scheduling.durations import format_duration
from cronless_dagster.scheduling.errors import ScheduleError
from cronless_dagster.scheduling.handlers import HandlerSchedule
from cronless_dagster.scheduling.intervals import EverySchedule
from cronless_dagster.scheduling.once import OnceSchedule
from cronless_dagster.scheduling.rrule import RRuleSchedule
from cronless_dagster.scheduling.schedules import parse_schedule
from cronless_dagster.scheduling.windows import WindowSchedule
from cronless_dagster.scheduling.zones import changes, utc, zone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo

    from cronless_dagster.scheduling.base import Schedule

MAX_COUNT = 10_000
LOOKED_AHEAD = timedelta(days=731)
"""How far ahead changes of the zone's offset are looked for: two of each kind where clocks change."""

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)
_FIELD_SIZES = (60, 24, 31, 12, 7)
_FIELD_FIRSTS = (0, 0, 1, 1, 0)
_SAMPLE_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A schedule's next instants (aware, UTC, ascending) and the warnings, each one sentence."""

    schedule: str
    timezone: str
    next: list[datetime]
    warnings: list[str]


def explain(
    schedule_text: str,
    timezone: str,
    after: datetime,
    count: int = 5,
    dst_policy: str = "vixie",
    starts_at: datetime | None = None,
    job_id: UUID | None = None,
) -> Explanation:
    """Return the next `count` (0 to 10,000) instants strictly after `after`, none before `starts_at`.

    `starts_at` (inclusive, else `after`) is also where `@every` and an RRULE without DTSTART begin.
    `@window` is shown for `job_id`, or for a sample. Raises ScheduleError or TimezoneError.
    """
    if not 0 <= count <= MAX_COUNT:
        raise ScheduleError(f"The count {count} is out of range; ask for 0 to {MAX_COUNT} instants.")
    schedule = parse_schedule(schedule_text, timezone, dst_policy)
    base = utc(after)
    if starts_at is not None:
        base = max(base, utc(starts_at) - timedelta(microseconds=1))
    anchor = base if starts_at is None else utc(starts_at)
    found = schedule.instants_after(base, job_id=job_id or _SAMPLE_ID, anchor=anchor)
    return Explanation(
        schedule=schedule.text,
        timezone=timezone,
        next=list(islice(found, count)),
        warnings=warnings_for(schedule, after=base, anchor=anchor, job_id=job_id),
    )


def warnings_for(
    schedule: Schedule,
    *,
    after: datetime,
    anchor: datetime | None = None,
    job_id: UUID | None = None,
) -> list[str]:
    """Return what about this schedule may not be what its writer meant, seen from `after` (aware).

    Skipped and repeated hours are looked for about two years ahead, and the first of each is named.
    """
    return list(_warnings(schedule, utc(after), anchor, job_id))


def _warnings(
    schedule: Schedule, after: datetime, anchor: datetime | None, job_id: UUID | None
) -> Iterator[str]:
    if isinstance(schedule, HandlerSchedule):
        yield (
            "The handler says when its job comes next; without a usable answer it comes"
            f" {format_duration(schedule.fallback)} after the last run."
        )
        return
    if isinstance(schedule, WindowSchedule) and job_id is None:
        yield "Each job has its own minute in the window, by its id; the instants shown are those of a sample id."
    if isinstance(schedule, CronSchedule):
        yield from _cron_warnings(schedule)
    if isinstance(schedule, EverySchedule):
        yield from _every_warnings(schedule, after)
    if isinstance(schedule, RRuleSchedule):
        yield from _rrule_warnings(schedule)
    if schedule.next_after(after, job_id=job_id or _SAMPLE_ID, anchor=anchor) is None:
        yield _never(schedule)
    else:
        yield from _clock_warnings(schedule, after, anchor)


def _never(schedule: Schedule) -> str:
    if isinstance(schedule, OnceSchedule):
        return (
            f"It never fires: its only instant, {schedule.instant:%Y-%m-%dT%H:%M:%SZ}, has passed. A job added with it"
            " runs once at the next tick, unless its misfire policy is skip."
        )
    return "It never fires: no day or time ahead meets all its fields."


def _cron_warnings(schedule: CronSchedule) -> Iterator[str]:
    fields = schedule.fields
    for name, text, size, first in zip(FIELD_NAMES, fields.raw, _FIELD_SIZES, _FIELD_FIRSTS, strict=True):
        for item in text.split(","):
            yield from _step_warning(name, item, size, first)
    dom, dow = fields.raw[2], fields.raw[4]
    if dom != "*" and dow != "*":
        yield _both_days(dom, dow, both=fields.day_and)
    if len(fields.minutes) == 60 and len(fields.hours) < 24:
        hours = ",".join(str(hour) for hour in fields.hours)
        yield (
            f"The minute field covers all 60 minutes: it fires sixty times in each hour of {hours};"
            f" for one run write 0 in place of {fields.raw[0]}."
        )


def _step_warning(name: str, item: str, size: int, first: int) -> Iterator[str]:
    span, slash, step_text = item.partition("/")
    if not slash:
        return
    step = int(step_text)
    if step >= size:
        yield f"The step in the {name} field {item} is as long as the field: only its first value is left."
    elif name == "day of month" and step > 1:
        yield f"The step in the {name} field {item} starts anew each month, so days at its turn are closer."
    elif size % step and _spans_field(span, size, first):
        last = size % step
        yield (
            f"The step in the {name} field {item} does not divide {size}: it starts anew after the last"
            f" value, {last} instead of {step} later."
        )


def _spans_field(span: str, size: int, first: int) -> bool:
    if span == "*":
        return True
    low, dash, high = span.partition("-")
    if not dash:
        return True
    return low == str(first) and high.isdigit() and int(high) - first + 1 >= size


def _both_days(dom: str, dow: str, *, both: bool) -> str:
    if both:
        return (
            f"Both day fields are set, and one starts with *: a day must match day of month {dom}"
            f" AND day of week {dow}."
        )
    return (
        f"Both day fields are set: a day that matches day of month {dom} OR day of week {dow} is enough;"
        " for both at once use an RRULE with BYMONTHDAY and BYDAY."
    )


def _every_warnings(schedule: EverySchedule, after: datetime) -> Iterator[str]:
    if schedule.interval % _DAY:
        return
    written = format_duration(schedule.interval)
    meant = "write a cron line such as 0 9 * * * if a local hour is meant"
    change = next(changes(zone(schedule.timezone), after, after + LOOKED_AHEAD), None)
    if change is None:
        yield f"An interval of {written} counts elapsed time and keeps no local hour; {meant}."
    else:
        day = change.astimezone(zone(schedule.timezone)).date()
        yield (
            f"An interval of {written} counts elapsed time: from {day} on it comes at another local hour"
            f" in {schedule.timezone}; {meant}."
        )


def _rrule_warnings(schedule: RRuleSchedule) -> Iterator[str]:
    if schedule.zone_name != schedule.timezone:
        yield (
            f"The DTSTART line names the zone {schedule.zone_name}, which counts for this rule,"
            f" not {schedule.timezone}."
        )
    if schedule.start is None and (schedule.rule.interval > 1 or schedule.rule.count is not None):
        yield "Without a DTSTART line, INTERVAL and COUNT begin when the job starts or is created."


def _clock_warnings(schedule: Schedule, after: datetime, anchor: datetime | None) -> Iterator[str]:
    """Name the first firing in a skipped and the first in a repeated hour, and what comes of it."""
    tz = zone(schedule.zone_name if isinstance(schedule, RRuleSchedule) else schedule.timezone)
    seen: set[bool] = set()
    for change in changes(tz, after, after + LOOKED_AHEAD):
        turn = _local(change - _SECOND, tz) + _SECOND
        there = _local(change, tz)
        skipped = turn < there
        found = schedule.local_between(min(turn, there), max(turn, there), anchor=anchor)
        if found is None or skipped in seen or _as_expected(schedule, there - turn):
            continue
        seen.add(skipped)
        when = f"The local time {found:%Y-%m-%d %H:%M}"
        if skipped:
            made_up = isinstance(schedule, OnceSchedule) or _made_up(schedule, there - turn)
            does = f"it fires at {there:%H:%M} instead" if made_up else "it does not fire then"
            yield f"{when} does not exist in {tz.key}, whose clocks are put forward; {does}."
        else:
            does = "both times" if _both_passes(schedule, turn - there) else "the first time only"
            yield f"{when} comes twice in {tz.key}, whose clocks are put back; it fires {does}."


def _as_expected(schedule: Schedule, jump: timedelta) -> bool:
    """True if the line names every hour and goes on by real time: then a change does nothing odd."""
    if not isinstance(schedule, CronSchedule) or len(schedule.fields.hours) < 24:
        return False
    return not schedule.made_up(jump) if jump > timedelta(0) else schedule.both_passes(-jump)


def _made_up(schedule: Schedule, gap: timedelta) -> bool:
    return isinstance(schedule, CronSchedule) and schedule.made_up(gap)


def _both_passes(schedule: Schedule, overlap: timedelta) -> bool:
    return isinstance(schedule, CronSchedule) and schedule.both_passes(overlap)


def _local(instant: datetime, tz: ZoneInfo) -> datetime:
    return instant.astimezone(tz).replace(tzinfo=None, fold=0)
