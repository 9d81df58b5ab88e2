"""What the planner is told and what it answers: plain values without behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from cronless_dagster.scheduling.errors import CronlessError

if TYPE_CHECKING:
    from uuid import UUID

MisfirePolicy = Literal["latest", "skip", "all"]
MISFIRE_POLICIES: tuple[MisfirePolicy, ...] = ("latest", "skip", "all")

OutcomeKind = Literal["success", "failure", "canceled"]
PlanStatus = Literal["PENDING", "DONE", "FAILED", "INVALID"]
Recorded = Literal["success", "failure", "exhausted", "superseded", "canceled"]
MissedReason = Literal["misfire", "overrun", "paused", "superseded"]


class ModelError(CronlessError, ValueError):
    """A value that contradicts itself was given to the planner."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and after how long, a failed occurrence is tried again.

    Try ``n`` is followed by a pause of ``delay * factor ** (n - 1)``, at most ``max_delay``.

    Attributes:
        max_attempts: Tries of one occurrence, the first included; at least 1.
        delay: The pause after the first failed try.
        max_delay: The longest pause, before the stable spread of up to 10 % is added.
        factor: What each further pause is multiplied with; at least 1.
        pause_after: So many failed occurrences in a row pause the job; None never does.

    Raises:
        ModelError: A value outside its range.
    """

    max_attempts: int = 3
    delay: timedelta = timedelta(minutes=1)
    max_delay: timedelta = timedelta(hours=1)
    factor: float = 2.0
    pause_after: int | None = None

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ModelError(f"max_attempts is {self.max_attempts}; give at least 1, the first try.")
        if self.delay < timedelta(0):
            raise ModelError(f"The retry delay is {self.delay}; give zero or more.")
        if self.max_delay < timedelta(0):
            raise ModelError(f"The longest retry delay is {self.max_delay}; give zero or more.")
        if not self.factor >= 1:
            raise ModelError(f"The retry factor is {self.factor}; give at least 1, which keeps pauses equal.")
        if self.pause_after is not None and self.pause_after < 1:
            raise ModelError(f"pause_after is {self.pause_after}; give at least 1, or None to never pause.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """The columns of a scheduled job that planning depends on.

    All instants are aware UTC datetimes.

    Attributes:
        id: Also the source of the job's own jitter and of its minute in an ``@window``.
        schedule: The schedule's text.
        timezone: IANA name of the zone in which the schedule is read.
        dst_policy: What local times that the zone skips or repeats become.
        misfire_policy: What happens to occurrences that were missed.
        misfire_grace: Within it an occurrence is late, beyond it missed.
        starts_at: The first instant that may be an occurrence (inclusive).
        ends_at: The last instant that may be an occurrence (inclusive).
        jitter: The job is put off by a part of this that never changes for a given id.
        retry: What follows a failure.
        created_at: The anchor of intervals when there is no ``starts_at``.
        next_run_at: When the job becomes due; None asks for a plan.
        scheduled_for: The nominal instant of the occurrence being served, or of the last plan.
        attempt: Tries of this occurrence that have started, the one just finished included.
        consecutive_failures: Occurrences that failed for good since the last success.
        manual: The finished try was asked for by a person, beside the plan.
    """

    id: UUID
    schedule: str
    timezone: str
    dst_policy: str
    misfire_policy: MisfirePolicy
    misfire_grace: timedelta
    starts_at: datetime | None
    ends_at: datetime | None
    jitter: timedelta
    retry: RetryPolicy
    created_at: datetime
    next_run_at: datetime | None
    scheduled_for: datetime | None
    attempt: int = 0
    consecutive_failures: int = 0
    manual: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one try ended.

    Attributes:
        kind: What happened.
        error: Why, for a failure or a cancellation; one short text.
        next_at: The next instant, from the handler of an ``@handler`` job that succeeded.
        retry: False when another try of this occurrence is known to be useless.
        retry_after: Don't try again sooner than this, whatever the retry policy says; as a server asks in its
            `Retry-After` (RFC 9110, 10.2.3).

    Raises:
        ModelError: An unknown kind, a success with an error, a next instant without a success, one that has no
            zone, or a `retry_after` that is negative or of a success.
    """

    kind: OutcomeKind
    error: str | None = None
    next_at: datetime | None = None
    retry: bool = True
    retry_after: timedelta | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("success", "failure", "canceled"):
            raise ModelError(f"The outcome is {self.kind!r}; give success, failure or canceled.")
        if self.kind == "success" and self.error is not None:
            raise ModelError(
                f"A success carries the error {self.error!r}; leave it out, or report a failure."
            )
        if self.retry_after is not None and (self.kind != "failure" or self.retry_after < timedelta(0)):
            raise ModelError(
                f"A {self.kind} carries retry_after {self.retry_after}; give a time that isn't negative, to a failure."
            )
        if self.next_at is None:
            return
        if self.kind != "success":
            raise ModelError(f"A {self.kind} carries next_at {self.next_at}; only a success may choose it.")
        if self.next_at.utcoffset() is None:
            raise ModelError(f"next_at is {self.next_at} without a zone; give an aware datetime.")


@dataclass(frozen=True, slots=True)
class MissedStretch:
    """Occurrences that are not served, from ``first`` to ``last``, both included.

    Attributes:
        first: The earliest missed instant.
        last: The latest missed instant.
        count: How many there are; a lower bound when ``cut``.
        cut: The counting stopped at its bound.
        reason: Why they are not served.
    """

    first: datetime
    last: datetime
    count: int
    cut: bool
    reason: MissedReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What becomes of a job: the planner's answer, to be written to its row and its history.

    Attributes:
        status: The row's new state.
        next_run_at: When it becomes due; None unless PENDING.
        scheduled_for: The nominal instant of the planned occurrence, never the jittered one. A job that
            ended has none, so that a later edit finds nothing to make up.
        attempt: Tries of that occurrence that have started.
        consecutive_failures: Occurrences that failed for good since the last success.
        recorded: How the finished try is written to the history: "failure" will be retried, "exhausted"
            has no tries left, "superseded" is not retried because the next regular occurrence comes first.
        pause_reason: Set when the job pauses itself; it is planned all the same.
        reason: One sentence for people, where the plan needs one.
        missed: Occurrences that this plan leaves out.
    """

    status: PlanStatus
    next_run_at: datetime | None
    scheduled_for: datetime | None
    attempt: int = 0
    consecutive_failures: int = 0
    recorded: Recorded | None = None
    pause_reason: str | None = None
    reason: str | None = None
    missed: MissedStretch | None = None
