"""Cron lines: which instants their local times are, under each policy for skipped and repeated hours.

- `vixie` (the default) is what the cron daemon of Debian does (its `cron(8)`, measured against a
  simulation of it). A line whose minute or hour field starts with `*` follows real time: nothing
  in a skipped hour, both passes of a repeated one. Any other line runs once at the end of the
  gap, and only in the first pass. A change of more than three hours counts as a clock being set:
  nothing is made up, nothing held back.
- `wall`: whenever a clock on the wall shows the time. Nothing in a gap, both passes.
- `wall-first`: as `wall`, in the first pass only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, ClassVar

from cronless_dagster.scheduling.base import COUNT_BOUND, DstPolicy, Kind, Schedule, count_walked
from cronless_dagster.scheduling.cron_fields import MACROS, CronFields
from cronless_dagster.scheduling.errors import ScheduleError, TimezoneError, shown
from cronless_dagster.scheduling.zones import at_offset, first_pass_end, gap_end, instants, offsets, zone

if TYPE_CHECKING:
    from uuid import UUID
    from zoneinfo import ZoneInfo

_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)
_TICK = timedelta(microseconds=1)
# A line can name times that its zone skips every year (02:00 on the day the clocks go forward).
_HORIZON_YEARS = 100
_FEW_A_DAY = 4
_CLOCK_SET = timedelta(hours=3)
_FIXED = frozenset({"UTC", "Etc/UTC", "GMT", "Etc/GMT", "Zulu", "Etc/Zulu", "UCT", "Etc/UCT"})


@dataclass(frozen=True, slots=True)
class CronSchedule(Schedule):
    """A five-field cron line or macro in a zone."""

    kind: ClassVar[Kind] = "cron"

    fields: CronFields = field(compare=False, repr=False)
    _zone: ZoneInfo = field(compare=False, repr=False)
    _in_utc: bool = field(compare=False, repr=False)

    def next_after(
        self, base: datetime, *, job_id: UUID | None = None, anchor: datetime | None = None
    ) -> datetime | None:
        """Return the first firing (UTC) strictly after `base`, or None."""
        if base.tzinfo is None:
            raise TimezoneError(f"The base {base.isoformat()} has no zone; pass an aware datetime, in UTC.")
        try:
            if self._in_utc:
                start = base.astimezone(UTC).replace(second=0, microsecond=0, tzinfo=None) + _MINUTE
                found = self.fields.next_local(start)
                return None if found is None else found.replace(tzinfo=UTC)
            return self._next_in_zone(base)
        except OverflowError:
            # Past the year 9999, datetime's own end.
            return None

    def local_between(
        self, low: datetime, high: datetime, *, anchor: datetime | None = None
    ) -> datetime | None:
        """Return the first local time in `[low, high)` that the line names, whether it exists or not."""
        found = self._next_from(low)
        return found if found is not None and found < high else None

    def _next_in_zone(self, base: datetime) -> datetime | None:
        tz = self._zone
        here = base.astimezone(tz)
        local = here.replace(second=0, microsecond=0, tzinfo=None)
        found = self.fields.next_local(local.replace(fold=0) + _MINUTE)
        if here.fold == 0:
            first, second = offsets(tz, local)
            if first != second and self.both_passes(first - second):
                # Inside a first pass: the second one shows local times that lie behind already.
                end = first_pass_end(tz, local)
                if found is None or found >= _local(end, first):
                    found = self._next_from(_local(end, second))
        last_year = here.year + _HORIZON_YEARS
        while found is not None and found.year <= last_year:
            first, second = offsets(tz, found)
            if first == second:
                return at_offset(found, first)
            if first < second:
                end = gap_end(tz, found)
                if self.made_up(second - first):
                    return end
                found = self._next_from(_local(end, second))
                continue
            at = at_offset(found, first)
            if at > base:
                return at
            if self.both_passes(first - second):
                return at_offset(found, second)
            found = self._next_from(_local(first_pass_end(tz, found), first))
        return None

    def _next_from(self, low: datetime) -> datetime | None:
        return self.fields.next_local(_ceil_minute(low))

    def made_up(self, gap: timedelta) -> bool:
        """Return whether a firing inside a gap of this length is made up at the gap's end."""
        return self.dst_policy == "vixie" and not self.fields.follows_real_time and gap <= _CLOCK_SET

    def both_passes(self, overlap: timedelta) -> bool:
        """Return whether the line fires in both passes of local times repeated by this length."""
        if self.dst_policy == "vixie":
            return self.fields.follows_real_time or overlap > _CLOCK_SET
        return self.dst_policy == "wall"

    def count(
        self,
        after: datetime,
        limit: datetime,
        *,
        job_id: UUID | None = None,
        anchor: datetime | None = None,
    ) -> tuple[int, bool]:
        """Count as every schedule does, but whole local days by their fields if those are many a day.

        Only days in which the zone's offset changes are walked.
        """
        if self.fields.per_day() <= _FEW_A_DAY:
            return count_walked(self, after, limit)
        count, at = 0, after
        start = self._next_midnight(at)
        while count <= COUNT_BOUND and start is not None:
            end = self._next_midnight(start)
            if end is None or end > limit:
                break
            if at < start - _TICK:
                count += self._count_in_day(at, start - _TICK)
            if end - start != _DAY:
                count += self._walked(start - _TICK, end - _TICK)
            elif self.fields.matches_day(start.astimezone(self._zone).date()):
                count += self.fields.per_day()
            at, start = end - _TICK, end
        if count <= COUNT_BOUND:
            count += self._count_in_day(at, limit)
        return min(count, COUNT_BOUND), count > COUNT_BOUND

    def _count_in_day(self, after: datetime, limit: datetime) -> int:
        """Count the instants in `(after, limit]`: by the fields where that is part of one even local day."""
        local = limit.astimezone(self._zone).replace(tzinfo=None)
        midnight = datetime.combine(local, time())
        start, end = instants(self._zone, midnight), instants(self._zone, midnight + _DAY)
        if len(start) != 1 or len(end) != 1 or end[0] - start[0] != _DAY or after < start[0] - _TICK:
            return self._walked(after, limit)
        if not self.fields.matches_day(local.date()):
            return 0
        count = self.fields.per_day_until(local)
        if after < start[0]:
            return count
        return count - self.fields.per_day_until(after.astimezone(self._zone))

    def _walked(self, after: datetime, limit: datetime) -> int:
        return count_walked(self, after, limit, at_most=COUNT_BOUND)[0]

    def _next_midnight(self, at: datetime) -> datetime | None:
        """Return the next local midnight after `at` that exists exactly once."""
        day = at.astimezone(self._zone).date()
        for _ in range(3):
            day += _DAY
            found = instants(self._zone, datetime.combine(day, time()))
            if len(found) == 1 and found[0] > at:
                return found[0]
        return None


def _local(instant: datetime, offset: timedelta) -> datetime:
    return (instant + offset).replace(tzinfo=None)


def _ceil_minute(local: datetime) -> datetime:
    floor = local.replace(second=0, microsecond=0)
    return floor if floor == local else floor + _MINUTE


def parse_cron(text: str, timezone: str, dst_policy: DstPolicy) -> CronSchedule:
    """Read a cron line or macro. Raises ScheduleError or TimezoneError."""
    line = text
    if text.startswith("@"):
        macro = MACROS.get(text.lower())
        if macro is None:
            raise ScheduleError(f"The macro {shown(text)} is unknown; use one of {', '.join(MACROS)}.")
        line = macro
    return CronSchedule(text, timezone, dst_policy, CronFields(line), zone(timezone), timezone in _FIXED)
