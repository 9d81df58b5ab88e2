"""What is served when a job is claimed late."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.scheduling.models import MissedReason, MissedStretch, Plan, PlannedJob
from cronless_dagster.scheduling.occurrences import Occurrences
from cronless_dagster.scheduling.planner import plan_first
from cronless_dagster.scheduling.steps import choose, invalid, pending

if TYPE_CHECKING:
    from datetime import datetime

ALL_LIMIT = 100
"""The most occurrences that the policy "all" makes up; older ones are missed."""


@dataclass(frozen=True, slots=True)
class ServeOccurrence:
    """Claim the job for this occurrence.

    Attributes:
        scheduled_for: The nominal instant to serve.
        attempt: Tries of it that have started.
        missed: Occurrences before it that are not served.
    """

    scheduled_for: datetime
    attempt: int
    missed: MissedStretch | None


@dataclass(frozen=True, slots=True)
class Replan:
    """Don't claim the job; write this plan to its row, and what it missed to the history."""

    plan: Plan


MisfireDecision = ServeOccurrence | Replan


def decide_misfire(job: PlannedJob, now: datetime) -> MisfireDecision:
    """Decide what a due job serves at ``now``.

    Within its grace an occurrence is late and served as it is. Beyond it the job's policy decides: "latest"
    serves the last instant that is not after ``now``, "skip" serves it only within its own grace and else
    waits for the next one, "all" serves each in order, at most the newest 100. A retry whose turn comes after
    the next regular occurrence is not made: the policy decides among the regular ones.

    Never raises for a schedule or zone that can't be used: the answer is then a plan with status INVALID.

    Args:
        job: The job as its row stands, ``next_run_at`` included.
        now: The current instant, aware UTC.
    """
    first = job.scheduled_for or job.next_run_at
    if first is None:
        return Replan(plan_first(job, now))
    try:
        occurrences = Occurrences.of(job)
        if job.attempt:
            regular = occurrences.after(first)
            if regular is None or regular > now:
                return ServeOccurrence(first, job.attempt, None)
            return _by_policy(occurrences, first, now, "superseded")
        due = job.next_run_at or occurrences.due_at(first)
        if now <= due + job.misfire_grace:
            return ServeOccurrence(first, 0, None)
        return _by_policy(occurrences, first, now, "misfire")
    except (CronlessError, OverflowError) as error:
        return Replan(invalid(job, error))


def _by_policy(
    occurrences: Occurrences, first: datetime, now: datetime, reason: MissedReason
) -> MisfireDecision:
    if occurrences.job.misfire_policy == "all":
        return _in_order(occurrences, first, now, reason)
    instant, missed = choose(occurrences, first, now, reason)
    if instant is not None and instant <= now:
        return ServeOccurrence(instant, 0, missed)
    return Replan(replace(pending(occurrences, instant), missed=missed))


def _in_order(
    occurrences: Occurrences, first: datetime, now: datetime, reason: MissedReason
) -> ServeOccurrence:
    kept = occurrences.newest(now, after=first, at_most=ALL_LIMIT)
    if reason == "misfire" and len(kept) < ALL_LIMIT:
        return ServeOccurrence(first, 0, None)
    last, count, cut = occurrences.last(kept[0] - kept[0].resolution, after=first)
    return ServeOccurrence(kept[0], 0, MissedStretch(first, last or first, count + 1, cut, reason))
