"""`@window 1h`: once in each hour of the epoch, at a minute that belongs to the job's own id.

Thousands of hourly jobs at minute 0 are a herd; the same jobs by window are spread evenly over the
hour, and each keeps its minute for ever. Windows are cut from 1970-01-01T00:00Z in elapsed time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

from cronless_dagster.scheduling.base import DstPolicy, Kind, Schedule
from cronless_dagster.scheduling.durations import format_duration, parse_duration
from cronless_dagster.scheduling.errors import ScheduleError, shown
from cronless_dagster.scheduling.hashing import stable_hash
from cronless_dagster.scheduling.intervals import EPOCH, last_multiple, next_multiple
from cronless_dagster.scheduling.zones import zone

if TYPE_CHECKING:
    from uuid import UUID

SHORTEST = timedelta(minutes=5)
LONGEST = timedelta(hours=24)
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class WindowSchedule(Schedule):
    """One instant in each window, at the minute `stable_hash(job_id) % minutes of the window`."""

    kind: ClassVar[Kind] = "window"

    window: timedelta

    def offset(self, job_id: UUID | None) -> timedelta:
        """Return how far into each window this job fires. Raises ScheduleError without a job id."""
        if job_id is None:
            raise ScheduleError(
                f"The schedule {shown(self.text)} needs a job id to choose its minute; pass one."
            )
        return stable_hash(job_id) % (self.window // _MINUTE) * _MINUTE

    def next_after(
        self, base: datetime, *, job_id: UUID | None = None, anchor: datetime | None = None
    ) -> datetime | None:
        """Return this job's first instant (UTC) strictly after `base`; the anchor is not used."""
        return next_multiple(base, EPOCH + self.offset(job_id), self.window)

    def last_at_or_before(
        self,
        limit: datetime,
        *,
        after: datetime,
        job_id: UUID | None = None,
        anchor: datetime | None = None,
    ) -> tuple[datetime | None, int, bool]:
        """As for every schedule, by arithmetic."""
        return last_multiple(limit, after, EPOCH + self.offset(job_id), self.window)


def parse_window(text: str, rest: str, timezone: str, dst_policy: DstPolicy) -> WindowSchedule:
    """Read what follows `@window`: 5 minutes to 24 hours, whole minutes that divide a day evenly.

    Otherwise the windows of one day would not be those of the next. Raises ScheduleError.
    """
    window = parse_duration(rest, what="window")
    if not SHORTEST <= window <= LONGEST or window % _MINUTE or LONGEST % window:
        near = [m for m in range(5, 1441) if 1440 % m == 0]
        best = sorted(near, key=lambda m: abs(timedelta(minutes=m) - window))[:2]
        offered = " or ".join(format_duration(timedelta(minutes=m)) for m in sorted(best))
        raise ScheduleError(
            f"The window {shown(rest)} is refused: it takes 5 minutes to 24 hours that divide a day evenly,"
            f" such as {offered}."
        )
    zone(timezone)
    return WindowSchedule(text, timezone, dst_policy, window)
