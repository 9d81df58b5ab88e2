"""`@every 15m`: elapsed time from an anchor, without drift, whatever the clocks on the wall do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

from cronless_dagster.scheduling.base import COUNT_BOUND, DstPolicy, Kind, Schedule
from cronless_dagster.scheduling.durations import parse_duration
from cronless_dagster.scheduling.errors import ScheduleError, shown
from cronless_dagster.scheduling.zones import utc, zone

if TYPE_CHECKING:
    from uuid import UUID

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SHORTEST = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class EverySchedule(Schedule):
    """An interval of elapsed time: its instants are `anchor + k * interval` for whole k from 0 on."""

    kind: ClassVar[Kind] = "every"

    interval: timedelta

    def next_after(
        self, base: datetime, *, job_id: UUID | None = None, anchor: datetime | None = None
    ) -> datetime | None:
        """Return the first multiple of the interval from the anchor strictly after `base` (UTC)."""
        return next_multiple(base, EPOCH if anchor is None else anchor, self.interval)

    def last_at_or_before(
        self,
        limit: datetime,
        *,
        after: datetime,
        job_id: UUID | None = None,
        anchor: datetime | None = None,
    ) -> tuple[datetime | None, int, bool]:
        """As for every schedule, by arithmetic."""
        return last_multiple(limit, after, EPOCH if anchor is None else anchor, self.interval)


def next_multiple(base: datetime, anchor: datetime, interval: timedelta) -> datetime | None:
    """Return the first `anchor + k * interval` (k ≥ 0) after `base`, in UTC; None past the year 9999."""
    base, anchor = utc(base), utc(anchor)
    if base < anchor:
        return anchor
    try:
        return anchor + ((base - anchor) // interval + 1) * interval
    except OverflowError:
        return None


def last_multiple(
    limit: datetime, after: datetime, anchor: datetime, interval: timedelta
) -> tuple[datetime | None, int, bool]:
    """Return the last multiple in `(after, limit]`, their number up to COUNT_BOUND, and if it is cut."""
    first = next_multiple(after, anchor, interval)
    if first is None or first > limit:
        return None, 0, False
    count = (limit - first) // interval + 1
    return first + (count - 1) * interval, min(count, COUNT_BOUND), count > COUNT_BOUND


def parse_every(text: str, rest: str, timezone: str, dst_policy: DstPolicy) -> EverySchedule:
    """Read what follows `@every`. Raises ScheduleError below 60 seconds: the tick comes once a minute."""
    interval = parse_duration(rest, what="interval")
    if interval < SHORTEST:
        raise ScheduleError(
            f"The interval {shown(rest)} is below 60 seconds, and due jobs are looked for once a minute;"
            " write @every 1m or more."
        )
    zone(timezone)
    return EverySchedule(text, timezone, dst_policy, interval)
