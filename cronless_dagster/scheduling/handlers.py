"""`@handler fallback=24h`: the handler says when its job comes next.

The fallback plans when it can't: after the tries are exhausted, or after an answer that is no instant
ahead. So such a job never dies quietly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from cronless_dagster.scheduling.base import DstPolicy, Kind, Schedule
from cronless_dagster.scheduling.durations import parse_duration
from cronless_dagster.scheduling.errors import ScheduleError, shown
from cronless_dagster.scheduling.intervals import SHORTEST
from cronless_dagster.scheduling.zones import zone

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from uuid import UUID

_FORM = re.compile(r"\s*fallback\s*=\s*(?P<fallback>.*)", re.ASCII | re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class HandlerSchedule(Schedule):
    """A schedule without instants of its own; `fallback` (at least a minute) counts from now."""

    kind: ClassVar[Kind] = "handler"

    fallback: timedelta

    def next_after(
        self, base: datetime, *, job_id: UUID | None = None, anchor: datetime | None = None
    ) -> datetime | None:
        """Return None: the handler names the next instant, not the schedule."""
        return None


def parse_handler(text: str, rest: str, timezone: str, dst_policy: DstPolicy) -> HandlerSchedule:
    """Read what follows `@handler`. Raises ScheduleError without a fallback, or below 60 seconds."""
    match = _FORM.fullmatch(rest)
    if match is None:
        raise ScheduleError(f"The schedule {shown(text)} names no fallback; write @handler fallback=24h.")
    fallback = parse_duration(match["fallback"], what="fallback")
    if fallback < SHORTEST:
        raise ScheduleError(f"The fallback of {shown(text)} is below 60 seconds; write fallback=1m or more.")
    zone(timezone)
    return HandlerSchedule(text, timezone, dst_policy, fallback)
