"""`@once 2026-12-01T09:00`: one instant, as a local time of the row's zone or with an offset of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar

from cronless_dagster.scheduling.base import DstPolicy, Kind, Schedule
from cronless_dagster.scheduling.errors import ScheduleError, shown
from cronless_dagster.scheduling.zones import gap_end, instants, utc, zone

if TYPE_CHECKING:
    from uuid import UUID

_FORM = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
    r"(?:[Zz]|[+-][0-9]{2}:[0-9]{2})?"
)


@dataclass(frozen=True, slots=True)
class OnceSchedule(Schedule):
    """One instant (UTC); `local` is the naive local time it was written as, None if it had an offset."""

    kind: ClassVar[Kind] = "once"

    instant: datetime
    local: datetime | None = field(default=None, compare=False)

    def next_after(
        self, base: datetime, *, job_id: UUID | None = None, anchor: datetime | None = None
    ) -> datetime | None:
        """Return the instant if it lies after `base`, else None."""
        return self.instant if self.instant > utc(base) else None

    def local_between(
        self, low: datetime, high: datetime, *, anchor: datetime | None = None
    ) -> datetime | None:
        """Return the local time it was written as, if that lies in `[low, high)`."""
        return self.local if self.local is not None and low <= self.local < high else None


def parse_once(text: str, rest: str, timezone: str, dst_policy: DstPolicy) -> OnceSchedule:
    """Read what follows `@once`: ISO 8601 date and time, without offset (local) or with one.

    A local time that the zone repeats means its first pass. One that the zone skips means the gap's
    end under `vixie`, as for a cron line, and is refused under the other policies, since it
    would never come. Raises ScheduleError or TimezoneError.
    """
    tz = zone(timezone)
    try:
        moment = _read(rest.strip())
        if moment.tzinfo is not None:
            return OnceSchedule(text, timezone, dst_policy, moment.astimezone(UTC))
        found = instants(tz, moment)
        if not found and dst_policy == "vixie":
            found = (gap_end(tz, moment),)
    except (ValueError, OverflowError) as error:
        raise ScheduleError(
            f"The instant {shown(rest)} can't be read; write it as 2026-12-01T09:00 (local time),"
            " 2026-12-01T09:00Z or 2026-12-01T09:00+01:00."
        ) from error
    if found:
        return OnceSchedule(text, timezone, dst_policy, found[0], moment)
    raise ScheduleError(
        f"The local time {moment.isoformat()} is skipped by the clocks of {timezone};"
        " write another time, or one with an offset such as 2026-12-01T09:00Z."
    )


def _read(written: str) -> datetime:
    if not _FORM.fullmatch(written):
        raise ValueError("not a date and a time")
    return datetime.fromisoformat(written.upper())
