"""The steps that planning and misfires share: a plan for one instant, and the choice among several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.scheduling.models import MissedReason, MissedStretch, Plan, PlannedJob
from cronless_dagster.scheduling.schedules import HandlerSchedule

if TYPE_CHECKING:
    from datetime import datetime

    from cronless_dagster.scheduling.occurrences import Occurrences

_ENDED = "no occurrence is left before the job's end"
_BEYOND = "an instant of this job lies beyond the year 9999; give a shorter delay, grace or jitter"


def pending(occurrences: Occurrences, instant: datetime | None) -> Plan:
    """Return the plan for one occurrence, or that of a job which has none left."""
    failures = occurrences.job.consecutive_failures
    if instant is None:
        return Plan(
            status="DONE",
            next_run_at=None,
            scheduled_for=None,
            consecutive_failures=failures,
            reason=_ENDED if occurrences.job.ends_at else "the schedule has no further occurrence",
        )
    return Plan(
        status="PENDING",
        next_run_at=occurrences.due_at(instant),
        scheduled_for=instant,
        consecutive_failures=failures,
    )


def invalid(job: PlannedJob, error: CronlessError | OverflowError) -> Plan:
    """Return the plan of a job whose schedule can't be used, or leads beyond the last representable date.

    It keeps ``scheduled_for``, so that what it misses until someone repairs it is recorded then.
    """
    return Plan(
        status="INVALID",
        next_run_at=None,
        scheduled_for=job.scheduled_for,
        attempt=job.attempt,
        consecutive_failures=job.consecutive_failures,
        reason=str(error) if isinstance(error, CronlessError) else _BEYOND,
    )


def choose(
    occurrences: Occurrences, first: datetime, now: datetime, reason: MissedReason
) -> tuple[datetime | None, MissedStretch | None]:
    """Choose among the occurrences from ``first`` to ``now`` by the policies "latest" and "skip".

    Returns:
        The instant to serve and the stretch that is left out. Under "skip", when even the newest is beyond
        its grace, the instant lies after ``now``, or is None when there is none.
    """
    job = occurrences.job
    last, count, cut = occurrences.last(now, after=first)
    newest = last or first
    if job.misfire_policy == "skip" and now > occurrences.due_at(newest) + job.misfire_grace:
        return next_regular(occurrences, now), MissedStretch(first, newest, count + 1, cut, reason)
    if last is None:
        return first, None
    [before, _] = [first, *occurrences.newest(last, after=first, at_most=2)][-2:]
    return last, MissedStretch(first, before, count, cut, reason)


def next_regular(occurrences: Occurrences, base: datetime) -> datetime | None:
    """Return the next occurrence after ``base``; for an ``@handler`` that of its fallback."""
    if not isinstance(occurrences.schedule, HandlerSchedule):
        return occurrences.after(base)
    instant = base + occurrences.schedule.fallback
    return None if occurrences.ended(instant) else instant
