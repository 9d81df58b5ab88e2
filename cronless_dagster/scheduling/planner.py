"""What comes next for a job: after it was added, edited or resumed, and after each try.

Pure: the caller gives ``now``. A schedule or zone that can't be used never raises here; it becomes a plan
with the status INVALID and the reason, so that one bad row can't stop a tick.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from cronless_dagster.scheduling.backoff import retry_at
from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.scheduling.models import (
    MissedStretch,
    Outcome,
    Plan,
    PlannedJob,
    Recorded,
)
from cronless_dagster.scheduling.occurrences import Occurrences
from cronless_dagster.scheduling.schedules import HandlerSchedule, OnceSchedule
from cronless_dagster.scheduling.steps import choose, invalid, next_regular, pending

# Whoever is asked for patience by a stranger's server needn't believe everything.
_LONGEST_RETRY_AFTER = timedelta(days=366)


def plan_first(job: PlannedJob, now: datetime) -> Plan:
    """Plan a job that has no ``next_run_at``: a new one, an edited one, or one that was resumed.

    The first occurrence lies strictly after ``now`` and not before ``starts_at``. Two kinds differ: an
    ``@once`` that lies in the past is planned at its own instant, unless it is beyond its grace and the
    policy is "skip"; an ``@handler`` starts at ``now``, since nothing else can name its first instant, but
    keeps an instant that its handler chose. A retry that was waiting is kept by these two kinds, counted from
    ``now``, and given up by the others, which go on with the next regular occurrence.

    Occurrences from ``job.scheduled_for`` to ``now`` that are not served are the plan's ``missed``.

    Args:
        job: The job; ``scheduled_for`` is the nominal instant of its last plan, if any.
        now: The current instant, aware UTC.
    """
    try:
        occurrences = Occurrences.of(job)
        if isinstance(occurrences.schedule, HandlerSchedule):
            return _first_by_handler(occurrences, now)
        if isinstance(occurrences.schedule, OnceSchedule):
            return _first_once(occurrences, occurrences.schedule.instant, now)
        plan = pending(occurrences, occurrences.after(now))
        return replace(plan, missed=_left_out(occurrences, now))
    except (CronlessError, OverflowError) as error:
        return invalid(job, error)


def plan_next(job: PlannedJob, outcome: Outcome, now: datetime) -> Plan:
    """Plan a job after one try of the occurrence ``job.scheduled_for`` has ended.

    Args:
        job: The job as it was served; ``attempt`` includes the try that ended.
        outcome: How it ended.
        now: The current instant, aware UTC.
    """
    if job.manual:
        return _after_manual(job, outcome, now)
    try:
        occurrences = Occurrences.of(job)
        if outcome.kind == "failure":
            return _after_failure(occurrences, outcome, now)
        if outcome.kind == "canceled":
            return _go_on(occurrences, now, "canceled", outcome.error or "the run was canceled")
        return _go_on(occurrences, now, "success", None, outcome.next_at)
    except (CronlessError, OverflowError) as error:
        recorded = _recorded_for_good(outcome)
        return replace(
            invalid(job, error),
            scheduled_for=None,
            attempt=0,
            recorded=recorded,
            consecutive_failures=_failures(job, recorded),
        )


def _left_out(occurrences: Occurrences, now: datetime) -> MissedStretch | None:
    """Return the stretch that a resumed or edited job leaves behind."""
    served = occurrences.job.scheduled_for
    if served is None or served > now or occurrences.ended(served):
        return None
    stretch = occurrences.stretch(served, now, "paused")
    if occurrences.job.attempt and stretch.count == 1:
        return replace(stretch, reason="superseded")
    return stretch


def _first_once(occurrences: Occurrences, instant: datetime, now: datetime) -> Plan:
    job = occurrences.job
    if occurrences.after(instant - instant.resolution) is None:
        return replace(
            pending(occurrences, None), reason=f"{instant.isoformat()} lies outside the job's start and end"
        )
    planned_before = job.scheduled_for == instant
    if planned_before and job.attempt:
        return _retry_anew(occurrences, now)
    plan = pending(occurrences, instant)
    if job.misfire_policy != "skip" or now <= occurrences.due_at(instant) + job.misfire_grace:
        return plan
    missed = MissedStretch(instant, instant, 1, False, "paused" if planned_before else "misfire")
    return replace(pending(occurrences, None), missed=missed)


def _first_by_handler(occurrences: Occurrences, now: datetime) -> Plan:
    job = occurrences.job
    served = job.scheduled_for
    if served is not None and served <= now and job.attempt:
        return _retry_anew(occurrences, now)
    # An edit never fires anything: an instant that the handler chose stays as it is.
    first = now if served is None else max(served, now)
    if job.starts_at is not None:
        first = max(first, job.starts_at)
    plan = pending(occurrences, None if occurrences.ended(first) else first)
    return replace(plan, missed=_left_out(occurrences, now))


def _retry_anew(occurrences: Occurrences, now: datetime) -> Plan:
    """Let a waiting retry wait again from ``now``, for a kind that has no regular occurrence instead."""
    job = occurrences.job
    at = retry_at(job, now)
    if not occurrences.ended(at):
        return replace(pending(occurrences, job.scheduled_for), next_run_at=at, attempt=job.attempt)
    plan = replace(pending(occurrences, None), missed=_left_out(occurrences, now))
    return replace(plan, status="FAILED") if isinstance(occurrences.schedule, OnceSchedule) else plan


def _after_failure(occurrences: Occurrences, outcome: Outcome, now: datetime) -> Plan:
    job = occurrences.job
    if not outcome.retry:
        return _go_on(occurrences, now, "exhausted", "the handler asked for no retry")
    if job.attempt >= job.retry.max_attempts:
        return _go_on(occurrences, now, "exhausted", f"all {job.retry.max_attempts} tries failed")
    at = max(retry_at(job, now), now + min(outcome.retry_after or timedelta(0), _LONGEST_RETRY_AFTER))
    if occurrences.ended(at):
        return _go_on(
            occurrences, now, "exhausted", f"a retry at {at.isoformat()} would come after the job's end"
        )
    served = job.scheduled_for or now
    regular = occurrences.after(served)
    if regular is not None and at >= regular:
        reason = (
            f"a retry at {at.isoformat()} would not come before the next occurrence at {regular.isoformat()}"
        )
        return _go_on(occurrences, now, "superseded", reason)
    return Plan(
        status="PENDING",
        next_run_at=at,
        scheduled_for=served,
        attempt=job.attempt,
        consecutive_failures=job.consecutive_failures,
        recorded="failure",
    )


def _go_on(
    occurrences: Occurrences,
    now: datetime,
    recorded: Recorded,
    reason: str | None,
    next_at: datetime | None = None,
) -> Plan:
    """Leave the occurrence that was served behind and plan the one that follows it."""
    job = occurrences.job
    missed = None
    if isinstance(occurrences.schedule, HandlerSchedule):
        instant, note = _by_handler(occurrences, now, next_at)
        reason = reason or (note if recorded == "success" else None)
    else:
        instant, missed = _by_schedule(occurrences, now)
        if next_at is not None:
            reason = "the handler's next instant is ignored, because only an @handler schedule takes one"
    plan = pending(occurrences, instant)
    failures = _failures(job, recorded)
    failed_once = (
        plan.status == "DONE" and recorded != "success" and isinstance(occurrences.schedule, OnceSchedule)
    )
    limit = job.retry.pause_after
    pauses = plan.status == "PENDING" and failures > job.consecutive_failures and limit and failures >= limit
    return replace(
        plan,
        status="FAILED" if failed_once else plan.status,
        consecutive_failures=failures,
        recorded=recorded,
        pause_reason=f"{failures} occurrences failed in a row, and pause_after is {limit}"
        if pauses
        else None,
        reason=reason or plan.reason,
        missed=missed,
    )


def _by_schedule(occurrences: Occurrences, now: datetime) -> tuple[datetime | None, MissedStretch | None]:
    candidate = occurrences.after(occurrences.job.scheduled_for or now)
    if candidate is None or candidate > now or occurrences.job.misfire_policy == "all":
        return candidate, None
    return choose(occurrences, candidate, now, "overrun")


def _by_handler(
    occurrences: Occurrences, now: datetime, next_at: datetime | None
) -> tuple[datetime | None, str | None]:
    served = occurrences.job.scheduled_for
    # A clock that was set back must not lead behind the occurrence that was served.
    base = now if served is None else max(now, served)
    if next_at is not None and next_at > base and not occurrences.ended(next_at):
        return next_at.astimezone(UTC), None
    fallback = next_regular(occurrences, base)
    if next_at is None:
        return fallback, "the handler gave no next instant, so the fallback applies"
    wrong = "lies behind the job's end" if next_at > base else "is not in the future"
    return fallback, f"the handler's next instant {next_at.isoformat()} {wrong}, so the fallback applies"


def _after_manual(job: PlannedJob, outcome: Outcome, now: datetime) -> Plan:
    """Record a run that a person asked for; the plan stays as it is.

    A job without a plan is either due to be planned or had ended: what lies ahead tells which, lest an
    ``@once`` that was served is planned again.
    """
    recorded = _recorded_for_good(outcome)
    reason = outcome.error if outcome.kind == "canceled" else None
    kept = Plan(
        status="PENDING",
        next_run_at=job.next_run_at,
        scheduled_for=job.scheduled_for,
        attempt=job.attempt,
        consecutive_failures=job.consecutive_failures,
        recorded=recorded,
        reason=reason,
    )
    if job.next_run_at is not None:
        return kept
    try:
        occurrences = Occurrences.of(job)
        if next_regular(occurrences, now) is not None:
            return kept
    except (CronlessError, OverflowError) as error:
        return replace(invalid(job, error), recorded=recorded)
    failed = recorded != "success" and isinstance(occurrences.schedule, OnceSchedule)
    return replace(kept, status="FAILED" if failed else "DONE")


def _recorded_for_good(outcome: Outcome) -> Recorded:
    return "exhausted" if outcome.kind == "failure" else outcome.kind


def _failures(job: PlannedJob, recorded: Recorded) -> int:
    if recorded == "success":
        return 0
    return job.consecutive_failures + (recorded in ("exhausted", "superseded"))
