"""RFC 5545 recurrence rules, bounded: `RRULE:…`, with DTSTART, EXDATE and RDATE lines if wanted.

- Local times are those of DTSTART's own zone (TZID, or UTC after a `Z`), else of the row's zone.
- DAILY and longer rules name local times: one that the zone skips is no instance and does not count
  (RFC 5545 3.3.10), one that it repeats means its first pass. The DST policy of cron lines plays no part.
- HOURLY and MINUTELY rules count elapsed time, so they run in both passes of a repeated hour.
- UNTIL is inclusive; without a time it means the whole of that local day.
- EXDATE takes out instants (or, without a time, whole local days) after COUNT was counted; RDATE adds.
- Without DTSTART the rule begins at the anchor's minute (see `Schedule.next_after`).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from cronless_dagster.scheduling.base import DstPolicy, Kind, Schedule
from cronless_dagster.scheduling.errors import ScheduleError, shown
from cronless_dagster.scheduling.rrule_calendar import local_occurrences, with_defaults
from cronless_dagster.scheduling.rrule_elapsed import elapsed_instants
from cronless_dagster.scheduling.rrule_text import (
    ELAPSED_FREQS,
    Line,
    Rule,
    Stamp,
    parse_rule,
    parse_stamp,
    split_lines,
)
from cronless_dagster.scheduling.zones import at_offset, gap_end, instants, offsets, utc, zone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID
    from zoneinfo import ZoneInfo

_EPOCH = datetime(1970, 1, 1)
_END_OF_DAY = timedelta(hours=23, minutes=59, seconds=59)
_ALLOWED = ("RRULE", "DTSTART", "EXDATE", "RDATE")


@dataclass(frozen=True, slots=True)
class RRuleSchedule(Schedule):
    """A recurrence rule. `start` is DTSTART as a naive local time, None if the anchor stands in for it."""

    kind: ClassVar[Kind] = "rrule"

    rule: Rule = field(compare=False)
    start: datetime | None = field(compare=False)
    zone_name: str = field(compare=False)
    _zone: ZoneInfo = field(compare=False, repr=False)
    _until: datetime | None = field(compare=False, repr=False)
    _left_out: frozenset[datetime] = field(compare=False, repr=False)
    _days_left_out: frozenset[date] = field(compare=False, repr=False)
    _added: tuple[datetime, ...] = field(compare=False, repr=False)

    def next_after(
        self, base: datetime, *, job_id: UUID | None = None, anchor: datetime | None = None
    ) -> datetime | None:
        """Return the first instance (UTC) strictly after `base`, or None if 100 years bring none."""
        return next(self.instants_after(base, anchor=anchor), None)

    def instants_after(
        self, base: datetime, *, job_id: UUID | None = None, anchor: datetime | None = None
    ) -> Iterator[datetime]:
        """Yield the instances (UTC) strictly after `base`, ascending, EXDATEs left out, RDATEs put in."""
        base = utc(base)
        start = self._start(anchor)
        if self.rule.count is None:
            found = self.rule_instants(base, start)
        else:
            counted = _counted(self, start)
            found = iter(counted[bisect_right(counted, base) :])
        added = self._added[bisect_right(self._added, base) :]
        latest = base
        for at in merge(found, added):
            if at > latest and at not in self._left_out and not self._day_left_out(at):
                latest = at
                yield at

    def local_between(
        self, low: datetime, high: datetime, *, anchor: datetime | None = None
    ) -> datetime | None:
        """Return the rule's first local time in `[low, high)`, for DAILY and longer rules."""
        if self.rule.freq in ELAPSED_FREQS:
            return None
        start = self._start(anchor)
        rule = with_defaults(self.rule, start, stated=self.start is not None)
        found = next(local_occurrences(rule, start, low), None)
        if (
            found is None
            or found >= high
            or self.next_after(_before(self._zone, found), anchor=anchor) is None
        ):
            return None
        return found

    def _start(self, anchor: datetime | None) -> datetime:
        if self.start is not None:
            return self.start
        if anchor is None:
            return _EPOCH
        return utc(anchor).astimezone(self._zone).replace(second=0, microsecond=0, tzinfo=None, fold=0)

    def rule_instants(self, base: datetime, start: datetime) -> Iterator[datetime]:
        """Yield the rule's own instants (UTC) after `base` up to UNTIL: no COUNT, EXDATE or RDATE yet."""
        rule = with_defaults(self.rule, start, stated=self.start is not None)
        if rule.freq in ELAPSED_FREQS:
            first = at_offset(start, offsets(self._zone, start)[0])
            found = elapsed_instants(rule, self._zone, first, base)
        else:
            found = self._calendar_instants(rule, start, base)
        for at in found:
            if self._until is not None and at > self._until:
                return
            yield at

    def _calendar_instants(self, rule: Rule, start: datetime, base: datetime) -> Iterator[datetime]:
        try:
            low = base.astimezone(self._zone).replace(tzinfo=None, fold=0)
        except OverflowError:
            return
        for local in local_occurrences(rule, start, low):
            try:
                at = next(iter(instants(self._zone, local)), None)
            except OverflowError:
                return
            if at is not None and at > base:
                yield at

    def _day_left_out(self, at: datetime) -> bool:
        return bool(self._days_left_out) and at.astimezone(self._zone).date() in self._days_left_out


def _before(tz: ZoneInfo, local: datetime) -> datetime:
    return at_offset(local, max(offsets(tz, local))) - timedelta(days=1)


@lru_cache(maxsize=64)
def _counted(schedule: RRuleSchedule, start: datetime) -> tuple[datetime, ...]:
    """Return all instances of a rule with COUNT, which can only be counted from its start."""
    before = datetime.min.replace(tzinfo=UTC) + timedelta(days=2)
    return tuple(islice(schedule.rule_instants(before, start), schedule.rule.count))


def parse_rrule(text: str, timezone: str, dst_policy: DstPolicy) -> RRuleSchedule:
    """Read one RRULE line, at most one DTSTART line, and EXDATE and RDATE lines.

    Raises ScheduleError or TimezoneError.
    """
    lines: dict[str, list[Line]] = {name: [] for name in _ALLOWED}
    for line in split_lines(text):
        if line.name not in lines:
            raise ScheduleError(
                f"The recurrence line {shown(line.name)} is refused; use only {', '.join(_ALLOWED)}."
            )
        lines[line.name].append(line)
    if len(lines["RRULE"]) != 1 or len(lines["DTSTART"]) > 1:
        raise ScheduleError("The recurrence needs exactly one RRULE line and at most one DTSTART line.")
    rule = parse_rule(lines["RRULE"][0].value)
    zone_name, start = timezone, None
    zone(timezone)
    for line in lines["DTSTART"]:
        (stamp,) = _stamps(line)
        zone_name = "UTC" if stamp.in_utc else line.params.get("TZID", timezone)
        start = stamp.moment
    tz = zone(zone_name)
    left_out, days_left_out = _dates(lines["EXDATE"], tz)
    added, added_days = _dates(lines["RDATE"], tz)
    if added_days:
        raise ScheduleError("The RDATE line names a day without a time; write it as 20261201T090000.")
    until = None if rule.until is None else _until(rule.until, tz)
    return RRuleSchedule(
        text,
        timezone,
        dst_policy,
        replace(rule, until=None),
        start,
        zone_name,
        tz,
        until,
        left_out,
        days_left_out,
        tuple(sorted(added)),
    )


def _stamps(line: Line) -> list[Stamp]:
    unknown = set(line.params) - {"TZID", "VALUE"}
    if unknown or line.params.get("VALUE", "DATE").upper() not in ("DATE", "DATE-TIME"):
        raise ScheduleError(
            f"The {line.name} line has parameters other than TZID and VALUE=DATE; leave them out."
        )
    values = line.value.split(",") if line.name != "DTSTART" else [line.value]
    return [parse_stamp(value, what=line.name) for value in values]


def _dates(lines: list[Line], tz: ZoneInfo) -> tuple[frozenset[datetime], frozenset[date]]:
    moments: set[datetime] = set()
    days: set[date] = set()
    for line in lines:
        own = zone(line.params["TZID"]) if "TZID" in line.params else tz
        for stamp in _stamps(line):
            if stamp.is_date:
                days.add(stamp.moment.date())
            elif stamp.in_utc:
                moments.add(stamp.moment.replace(tzinfo=UTC))
            else:
                moments.update(_bounded_instants(own, stamp.moment)[:1])
    return frozenset(moments), frozenset(days)


def _bounded_instants(tz: ZoneInfo, local: datetime) -> tuple[datetime, ...]:
    try:
        return instants(tz, local)
    except OverflowError:
        return ()


def _until(stamp: Stamp, tz: ZoneInfo) -> datetime:
    if stamp.in_utc:
        return stamp.moment.replace(tzinfo=UTC)
    local = stamp.moment + _END_OF_DAY if stamp.is_date else stamp.moment
    try:
        found = instants(tz, local)
        return found[-1] if found else gap_end(tz, local) - timedelta(seconds=1)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
