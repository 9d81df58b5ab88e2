"""Calling users' handlers: one job at a time in a pool of threads, or the whole batch as a DataFrame."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cronless_dagster.engine.coroutines import run_coroutine
from cronless_dagster.engine.errors import PermanentFailure, RetryLater
from cronless_dagster.engine.pool import Pool
from cronless_dagster.scheduling.models import Outcome

if TYPE_CHECKING:
    import logging

    import pandas as pd
    from sqlalchemy import Engine

    from cronless_dagster.engine.job_types import JobType
    from cronless_dagster.store.rows import ClaimedJob

SUCCESS = Outcome("success")


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """What a handler may ask for by taking a second parameter.

    Attributes:
        engine: On the store's database, which a handler's own writes may share; a connection for each thread.
        log: Reaches the Dagster run's log.
        now: The instant at which the batch started, aware UTC; the virtual one where the clock is virtual.
        run_id: The Dagster run, if there is one.
        dagster: The run's `AssetExecutionContext`, with the resources that the job type asked for; None on the
            queue route and on the command line.
    """

    engine: Engine
    log: logging.Logger
    now: datetime
    run_id: str | None = None
    dagster: Any = None


@dataclass(frozen=True, slots=True)
class Tried:
    """One finished try."""

    job: ClaimedJob
    outcome: Outcome
    started_at: datetime


class Tries:
    """The tries of a page of jobs: iterate for the outcomes as they come; a failing job never fails its neighbours.

    None comes when nothing has ended for a while, so that the caller can record what it has. Jobs that have not
    begun when `stopped` turns true are left alone and yield nothing.
    """

    def __init__(
        self,
        job_type: JobType,
        jobs: Sequence[ClaimedJob],
        context: HandlerContext,
        stopped: Callable[[], bool],
    ) -> None:
        """Prepare; the first handler is called with the iteration."""
        self._job_type, self._jobs, self._context, self._stopped = job_type, jobs, context, stopped
        self._clock = _clock(context)
        self._pool: Pool[ClaimedJob, Tried] | None = None
        self._answered: deque[Tried] = deque()

    def __iter__(self) -> Iterator[Tried | None]:
        """Call the handler in the way that it takes its work."""
        if self._job_type.takes == "batch":
            self._answered.extend(_run_batch(self._job_type, self._jobs, self._context, self._clock()))
            while self._answered:
                yield self._answered.popleft()
        else:
            call = _caller(self._job_type.handler, self._context)
            # Also for one at a time: this thread records results and renews nothing while a handler takes long.
            # In a thread of the pool no exception means that the run is canceled: that reaches the main thread.
            self._pool = Pool(
                self._jobs,
                lambda job: _try(call, job, self._clock),
                self._stopped,
                self._job_type.concurrency,
                self._job_type.name,
            )
            yield from self._pool

    def leave(self) -> list[Tried]:
        """Begin no further job; return what is finished and was not yielded."""
        unread = list(self._answered)
        self._answered.clear()
        return unread if self._pool is None else [*unread, *self._pool.leave()]


def trier(job_type: JobType, context: HandlerContext) -> Callable[[ClaimedJob], Tried]:
    """Return what calls the type's handler for one job; it never raises, whatever the handler does."""
    call, clock = _caller(job_type.handler, context), _clock(context)
    return lambda job: _try(call, job, clock)


def _clock(context: HandlerContext) -> Callable[[], datetime]:
    real = abs((datetime.now(UTC) - context.now).total_seconds()) < 86_400
    return (lambda: datetime.now(UTC)) if real else (lambda: context.now)


def _try(call: Callable[[ClaimedJob], Any], job: ClaimedJob, clock: Callable[[], datetime]) -> Tried:
    started_at = clock()
    if job.payload_error is not None:
        return _unreadable(job, started_at)
    try:
        answer = call(job)
        if inspect.iscoroutine(answer):
            answer = run_coroutine(answer)
        return Tried(job, _as_outcome(answer), started_at)
    except BaseException as error:  # noqa: BLE001 - a failing job never fails its neighbours
        return Tried(job, failure(error), started_at)


def _unreadable(job: ClaimedJob, started_at: datetime) -> Tried:
    return Tried(job, _wrong(str(job.payload_error)), started_at)


def failure(error: BaseException) -> Outcome:
    """Return the outcome for what a handler raised."""
    said = _text(error)
    if isinstance(error, PermanentFailure):
        return Outcome("failure", error=said, retry=False)
    if isinstance(error, RetryLater):
        after: object = error.after
        if isinstance(after, timedelta):
            return Outcome("failure", error=said, retry_after=max(after, timedelta(0)))
        said = f"{said} (its after is {_text(after)}: give a timedelta)"
    return Outcome("failure", error=f"{type(error).__name__}: {said}")


def _text(said: object) -> str:
    """Return the text of whatever a handler gave for one, without trusting its `__str__`."""
    try:
        return str.strip(str(said)) or "no message"
    except BaseException as error:  # noqa: BLE001 - a text is no reason to lose the result
        return f"no message: its __str__ raised {type(error).__name__}"


def _as_outcome(answer: Any) -> Outcome:
    if answer is None:
        return SUCCESS
    if isinstance(answer, Outcome):
        return _checked(answer)
    if isinstance(answer, datetime) and answer.tzinfo is not None:
        return _checked(Outcome("success", next_at=answer))
    # The work is done and would be done again: another try can't mend the answer.
    shown = f"{answer.isoformat()} without a zone" if isinstance(answer, datetime) else type(answer).__name__
    return _wrong(
        f"the handler returned {shown}: return None, an Outcome or the next instant as an aware datetime"
    )


def _checked(outcome: Outcome) -> Outcome:
    """Return an outcome whose parts are of their types: a handler isn't typed, and all that follows trusts them."""
    error, next_at = outcome.error, outcome.next_at
    if error is not None and type(error) is not str:
        error = _text(error)
    if next_at is not None:
        try:
            # Into UTC and a plain datetime, whatever class or zone the handler uses.
            at = next_at.astimezone(UTC)
            next_at = datetime.combine(at.date(), at.time(), UTC)
        except Exception as wrong:  # noqa: BLE001 - any class may pose as an instant
            return _wrong(
                f"the handler's next_at can't be used ({failure(wrong).error}): give an aware datetime"
            )
    if error is outcome.error and next_at is None:
        return outcome
    return replace(outcome, error=error, next_at=next_at)


def _wrong(error: str) -> Outcome:
    return Outcome("failure", error=error, retry=False)


def _caller(handler: Callable[..., Any], context: HandlerContext) -> Callable[[Any], Any]:
    """Return a call with the one parameter or the two that the handler takes."""
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        return handler
    positional = [
        one
        for one in parameters
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) and one.default is one.empty
    ]
    if len(positional) >= 2:
        return lambda work: handler(work, context)
    return handler


def jobs_frame(jobs: Sequence[ClaimedJob]) -> pd.DataFrame:
    """Return the batch as a DataFrame with one row a job.

    Columns: `job_id` (UUID, also the index), `tenant_id`, `name`, `payload` (dict), `scheduled_for` and `due_at`
    (UTC), `tries`, `manual`, `idempotency_key`.
    """
    import pandas as pd

    columns: dict[str, list[Any]] = {
        "job_id": [job.id for job in jobs],
        "tenant_id": [job.tenant_id for job in jobs],
        "name": [job.name for job in jobs],
        "payload": [job.payload for job in jobs],
        "scheduled_for": [job.scheduled_for for job in jobs],
        "due_at": [job.due_at for job in jobs],
        "tries": [job.tries for job in jobs],
        "manual": [job.manual for job in jobs],
        "idempotency_key": [job.idempotency_key for job in jobs],
    }
    frame = pd.DataFrame(columns).set_index("job_id", drop=False)
    for name in ("scheduled_for", "due_at"):
        frame[name] = pd.to_datetime(frame[name], utc=True)
    return frame


def _run_batch(
    job_type: JobType, jobs: Sequence[ClaimedJob], context: HandlerContext, started_at: datetime
) -> list[Tried]:
    unreadable = [_unreadable(job, started_at) for job in jobs if job.payload_error is not None]
    jobs = [job for job in jobs if job.payload_error is None]
    return [*unreadable, *_tried_together(job_type, jobs, context, started_at)] if jobs else unreadable


def _tried_together(
    job_type: JobType, jobs: Sequence[ClaimedJob], context: HandlerContext, started_at: datetime
) -> list[Tried]:
    try:
        answers = _answers_by_id(_caller(job_type.handler, context)(jobs_frame(jobs)))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - as for a single job
        outcome = failure(error)
        return [Tried(job, outcome, started_at) for job in jobs]
    return [Tried(job, _of_batch(answers, job), started_at) for job in jobs]


def _of_batch(answers: Mapping[str, Any], job: ClaimedJob) -> Outcome:
    try:
        answer = answers[str(job.id)]
    except KeyError:
        return Outcome("failure", error="the batch handler gave no outcome for this job's id")
    if isinstance(answer, BaseException):
        return failure(answer)
    try:
        return _as_outcome(answer)
    except Exception as error:  # noqa: BLE001 - as for a single job
        return failure(error)


def _answers_by_id(answers: Any) -> Mapping[str, Any]:
    """Return answers by the text of the id, from a mapping or from a Series indexed by job id.

    Raises:
        TypeError: Anything else, None included: a batch handler answers for each job by name.
    """
    if isinstance(answers, Mapping):
        return {str(key): answer for key, answer in answers.items()}
    if hasattr(answers, "index") and hasattr(answers, "items") and not hasattr(answers, "columns"):
        # pandas says "no value" with NaN or NaT, and a success has no value.
        return {str(key): None if _is_missing(answer) else answer for key, answer in answers.items()}
    # Another try would do the work again, and answer as wrongly.
    raise PermanentFailure(
        f"the batch handler returned {type(answers).__name__}: return a mapping or a Series of job id to None, "
        "an Outcome or an exception"
    )


def _is_missing(answer: Any) -> bool:
    try:
        return bool(answer != answer)  # noqa: PLR0124
    except (TypeError, ValueError):
        # An array, or pandas' own NA: the one is no outcome, the other is no value.
        return type(answer).__name__ == "NAType"
