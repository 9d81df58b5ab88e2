"""Calling handlers: what they are given, what their answers mean, and that one failure stays one job's."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from cronless_dagster.engine.errors import PermanentFailure, RetryLater
from cronless_dagster.engine.handlers import HandlerContext, Tries, jobs_frame
from cronless_dagster.engine.job_types import JobType
from cronless_dagster.engine.pool import Pool
from cronless_dagster.scheduling.models import Outcome
from cronless_dagster.store.rows import ClaimedJob
from tests.engine.support import NOON, after, nothing
from tests.scheduling.jobs import job as planned

if TYPE_CHECKING:
    from collections.abc import Callable

CONTEXT = HandlerContext(cast("Any", None), logging.getLogger("test"), NOON, "run-1")


def claimed(number: int = 0, **changes: Any) -> ClaimedJob:
    """Return a job of a claim; its id is its number."""
    job = ClaimedJob(
        id=UUID(int=number + 1),
        tenant_id=f"tenant-{number}",
        job_type="work",
        name=str(number),
        payload={"number": number},
        scheduled_for=NOON,
        due_at=after(seconds=7),
        manual=False,
        tries=1,
        claim_id=UUID(int=99),
        execution_id=None,
        plan_version=0,
        plan=planned(),
    )
    return replace(job, **changes)


def outcomes(
    handler: Callable[..., Any], count: int = 1, context: HandlerContext = CONTEXT, **options: Any
) -> list[Outcome]:
    """Return the outcomes in the order of the jobs' numbers."""
    jobs = [claimed(number) for number in range(count)]
    tries = Tries(JobType(name="work", handler=handler, **options), jobs, context, lambda: False)
    by_id = {tried.job.id: tried.outcome for tried in tries}
    return [by_id[job.id] for job in jobs]


def raising(error: BaseException) -> Callable[[Any], None]:
    """Return a handler that raises."""

    def handler(_job: Any) -> None:
        raise error

    return handler


class TestOneJob:
    """Handlers that take one job."""

    def test_none_is_success(self) -> None:
        """A handler that returns nothing succeeded."""
        assert outcomes(nothing) == [Outcome("success")]

    def test_an_outcome_is_taken_as_it_is(self) -> None:
        """A handler may say itself how it went."""
        said = Outcome("failure", error="not today", retry=False)
        assert outcomes(lambda _job: said) == [said]

    def test_an_instant_is_the_next_one(self) -> None:
        """A handler may return the next instant alone."""
        assert outcomes(lambda _job: after(hours=1)) == [Outcome("success", next_at=after(hours=1))]
        assert outcomes(lambda _job: pd.Timestamp("2026-03-02T13:00Z"))[0].next_at == after(hours=1)

    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            (42, "int"),
            ("done", "str"),
            (True, "bool"),
            ({}, "dict"),
            (datetime(2026, 3, 2), "2026-03-02T00:00:00 without a zone"),  # noqa: DTZ001
        ],
    )
    def test_a_wrong_answer_is_a_failure_without_another_try(self, answer: Any, said: str) -> None:
        """The work is done and would be done again, so a wrong answer isn't tried again."""
        [outcome] = outcomes(lambda _job: answer)
        assert (outcome.kind, outcome.retry) == ("failure", False)
        assert said in (outcome.error or "")

    @pytest.mark.parametrize(
        ("error", "said"),
        [
            (ValueError("bad value"), "ValueError: bad value"),
            (KeyError("user"), "KeyError: 'user'"),
            (RuntimeError(), "RuntimeError: no message"),
            (SystemExit(3), "SystemExit: 3"),
        ],
    )
    @pytest.mark.parametrize("concurrency", [1, 4])
    def test_what_it_raises_is_its_jobs_failure(
        self, error: BaseException, said: str, concurrency: int
    ) -> None:
        """Neighbours are served whatever one job's handler raises, `sys.exit` included."""

        def handler(job: ClaimedJob) -> None:
            if job.payload["number"] == 1:
                raise error

        got = outcomes(handler, 3, concurrency=concurrency)
        assert [one.kind for one in got] == ["success", "failure", "success"]
        assert got[1] == Outcome("failure", error=said)

    def test_a_threads_cancellation_is_its_jobs_failure(self) -> None:
        """`asyncio.CancelledError` is no `Exception`, and must not end the thread with its job unreported."""
        got = outcomes(raising(asyncio.CancelledError()), 3, concurrency=2)
        assert [one.error for one in got] == ["CancelledError: no message"] * 3

    def test_a_permanent_failure_asks_for_no_retry(self) -> None:
        """`PermanentFailure` says that another try is useless, in its own words."""
        assert outcomes(raising(PermanentFailure("no such user"))) == [
            Outcome("failure", error="no such user", retry=False)
        ]

    def test_a_handler_may_ask_for_time(self) -> None:
        """`RetryLater` carries how long to wait at least, and never a negative time."""
        assert outcomes(raising(RetryLater("busy", timedelta(minutes=7)))) == [
            Outcome("failure", error="busy", retry_after=timedelta(minutes=7))
        ]
        assert outcomes(raising(RetryLater("busy", timedelta(minutes=-7))))[0].retry_after == timedelta(0)

    def test_a_time_that_is_none_is_said_and_harms_nobody(self) -> None:
        """Seconds in place of a timedelta: a failure by the retry policy, and the neighbours go on."""
        got = outcomes(raising(RetryLater("busy", 30)), 3, concurrency=2)  # type: ignore[arg-type]
        assert [one.error for one in got] == ["RetryLater: busy (its after is 30: give a timedelta)"] * 3

    def test_an_outcome_that_contradicts_itself_fails_its_job(self) -> None:
        """A nonsense outcome raises inside the handler and is its failure."""
        [outcome] = outcomes(lambda _job: Outcome("success", error="but no"))
        assert outcome.kind == "failure"

    def test_parts_of_an_outcome_are_made_of_their_types(self) -> None:
        """An error that is no text becomes one, an instant of any class a plain one in UTC."""
        odd = cast("Any", ValueError("no text"))
        assert outcomes(lambda _job: Outcome("failure", error=odd)) == [Outcome("failure", error="no text")]
        kathmandu = after(hours=1).astimezone(ZoneInfo("Asia/Kathmandu"))
        for given in (kathmandu, pd.Timestamp(kathmandu)):
            [outcome] = outcomes(lambda _job, at=given: Outcome("success", next_at=at))
            assert outcome.next_at == after(hours=1)
            assert (type(outcome.next_at), outcome.next_at.tzinfo) == (datetime, UTC)

    @pytest.mark.parametrize(
        "wrong", [time(12, tzinfo=UTC), datetime.max.replace(tzinfo=ZoneInfo("America/Lima"))]
    )
    @pytest.mark.parametrize("takes", ["job", "batch"])
    def test_an_instant_that_cannot_be_used_is_its_jobs_failure(self, wrong: Any, takes: str) -> None:
        """What poses as an instant, or lies outside all calendars, fails its job alone."""

        def one(job: ClaimedJob) -> Any:
            return Outcome("success", next_at=wrong) if job.name == "1" else None

        def all_of(frame: pd.DataFrame) -> Any:
            return {**dict.fromkeys(frame.index), UUID(int=2): Outcome("success", next_at=wrong)}

        got = outcomes(one if takes == "job" else all_of, 3, takes=takes)
        assert [one.kind for one in got] == ["success", "failure", "success"]
        assert "give an aware datetime" in (got[1].error or "")
        assert not got[1].retry

    @pytest.mark.parametrize("concurrency", [1, 4])
    def test_an_error_without_a_text_is_still_its_jobs_failure(self, concurrency: int) -> None:
        """Exceptions whose `__str__` raises, or isn't one, fail as many jobs as raise them and no more."""

        class Silent(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no words")

        class Odd(Exception):
            def __str__(self) -> str:
                return cast("str", 5)

        def handler(job: ClaimedJob) -> None:
            if job.payload["number"] % 2:
                raise Silent if job.payload["number"] % 3 else Odd

        got = outcomes(handler, 20, concurrency=concurrency)
        assert [one.kind for one in got] == ["success", "failure"] * 10
        assert got[1].error == "Silent: no message: its __str__ raised RuntimeError"
        assert got[3].error == "Odd: no message: its __str__ raised TypeError"

    def test_a_second_parameter_is_the_context(self) -> None:
        """A handler with two parameters is given the context; a default or keyword isn't one."""
        seen: list[Any] = []
        outcomes(lambda job, context: seen.append((job.name, context)))
        outcomes(lambda _job, extra=None: seen.append(extra))
        outcomes(lambda _job, *, extra=None: seen.append(extra))
        assert seen == [("0", CONTEXT), None, None]

    def test_started_at_is_the_virtual_instant_on_a_virtual_clock(self) -> None:
        """Where the clock is virtual, so are the starts; on a real one they are real."""
        job_type = JobType(name="work", handler=nothing)
        [virtual] = Tries(job_type, [claimed()], CONTEXT, lambda: False)
        now = datetime.now(UTC)
        [real] = Tries(job_type, [claimed()], replace(CONTEXT, now=now), lambda: False)
        assert virtual.started_at == NOON
        assert now <= real.started_at <= datetime.now(UTC)

    def test_the_key_names_job_and_occurrence(self) -> None:
        """The idempotency key is the same for each try of an occurrence."""
        job = claimed()
        assert job.idempotency_key == f"{job.id}:2026-03-02T12:00:00+00:00"
        assert replace(job, tries=2).idempotency_key == job.idempotency_key
        assert replace(job, scheduled_for=after(minutes=1)).idempotency_key != job.idempotency_key


class TestPool:
    """Several jobs at once."""

    def test_as_many_at_once_as_asked(self) -> None:
        """Handlers run side by side, in as many threads as the job type says and no more."""
        together = threading.Barrier(4)
        running: list[int] = []
        most: list[int] = []

        def handler(_job: ClaimedJob) -> None:
            running.append(1)
            most.append(len(running))
            together.wait(timeout=60)
            running.pop()

        assert {one.kind for one in outcomes(handler, 8, concurrency=4)} == {"success"}
        assert max(most) == 4

    def test_stopping_leaves_what_has_not_begun(self) -> None:
        """After `stopped` turned true no further job begins."""
        begun: list[ClaimedJob] = []
        jobs = [claimed(number) for number in range(100)]
        job_type = JobType(name="work", handler=begun.append, concurrency=2)
        tries = list(Tries(job_type, jobs, CONTEXT, lambda: len(begun) >= 5))
        assert 5 <= len(begun) <= 7
        assert {tried.job.id for tried in tries} == {job.id for job in begun}

    def test_stopping_a_single_thread(self) -> None:
        """The same without a pool."""
        begun: list[ClaimedJob] = []
        jobs = [claimed(number) for number in range(100)]
        job_type = JobType(name="work", handler=begun.append, concurrency=1)
        list(Tries(job_type, jobs, CONTEXT, lambda: len(begun) >= 5))
        assert len(begun) == 5

    def test_a_thread_never_ends_unnoticed(self) -> None:
        """What a thread dies of ends the iteration, which would else look complete."""

        def call(_job: int) -> int:
            raise MemoryError

        with pytest.raises(MemoryError):
            list(Pool(range(3), call, lambda: False, 2, "test"))

    def test_leaving_returns_what_was_finished_and_begins_no_more(self) -> None:
        """Interrupted in the middle, finished tries are not lost, and the rest stays untouched."""
        begun: list[ClaimedJob] = []
        blocked = threading.Event()

        def handler(job: ClaimedJob) -> None:
            begun.append(job)
            if len(begun) >= 10:
                blocked.wait(timeout=60)

        jobs = [claimed(number) for number in range(100)]
        tries = Tries(JobType(name="work", handler=handler, concurrency=2), jobs, CONTEXT, lambda: False)
        read = []
        for tried in tries:
            read.append(tried)
            if len(read) == 3:
                break
        while len(begun) < 11:
            pass
        unread = tries.leave()
        blocked.set()
        assert len(read) + len(unread) == 9
        assert len({tried.job.id for tried in [*read, *unread]}) == 9
        assert len(begun) == 11


class TestBatch:
    """Handlers that take the whole claim as a DataFrame."""

    def test_the_frame(self) -> None:
        """One row a job, with what a job's object has, indexed by id."""
        frame = jobs_frame([claimed(0), claimed(1, tries=2, manual=True)])
        assert list(frame.columns) == [
            "job_id",
            "tenant_id",
            "name",
            "payload",
            "scheduled_for",
            "due_at",
            "tries",
            "manual",
            "idempotency_key",
        ]
        assert list(frame.index) == [UUID(int=1), UUID(int=2)]
        assert str(frame["scheduled_for"].dt.tz) == "UTC"
        assert frame.loc[UUID(int=2), "tries"] == 2
        assert frame.loc[UUID(int=1), "payload"] == {"number": 0}
        assert frame.loc[UUID(int=1), "due_at"] == after(seconds=7)

    def test_called_once_with_all(self) -> None:
        """The handler sees the whole batch, and the context if it wants."""
        seen: list[Any] = []

        def handler(frame: pd.DataFrame, context: HandlerContext) -> dict[UUID, None]:
            seen.append((len(frame), context.run_id))
            return dict.fromkeys(frame.index)

        assert outcomes(handler, 3, takes="batch") == [Outcome("success")] * 3
        assert seen == [(3, "run-1")]

    def test_a_mapping_of_ids(self) -> None:
        """Each id has its own outcome: None, an Outcome, an instant or an exception; texts are ids too."""
        answers = {
            UUID(int=1): None,
            str(UUID(int=2)): Outcome("failure", error="no"),
            UUID(int=3): ValueError("bad"),
            UUID(int=4): PermanentFailure("gone"),
            UUID(int=5): after(hours=1),
        }
        assert outcomes(lambda _frame: answers, 5, takes="batch") == [
            Outcome("success"),
            Outcome("failure", error="no"),
            Outcome("failure", error="ValueError: bad"),
            Outcome("failure", error="gone", retry=False),
            Outcome("success", next_at=after(hours=1)),
        ]

    @pytest.mark.parametrize("nothing_said", [None, np.nan, pd.NaT, pd.NA])
    def test_a_series(self, nothing_said: Any) -> None:
        """A Series by job id is answered alike; what pandas calls missing is a success."""

        def handler(frame: pd.DataFrame) -> pd.Series[Any]:
            answers = pd.Series([nothing_said] * len(frame), index=frame.index, dtype=object)
            answers.loc[UUID(int=2)] = Outcome("failure", error="no")
            return answers

        assert [one.kind for one in outcomes(handler, 3, takes="batch")] == ["success", "failure", "success"]

    def test_a_series_of_instants(self) -> None:
        """A column of instants plans each job's next one; one that is missing plans nothing."""

        def handler(frame: pd.DataFrame) -> pd.Series[Any]:
            times = frame["scheduled_for"] + pd.Timedelta(hours=1)
            return times.where(frame["name"] != "1")

        assert [one.next_at for one in outcomes(handler, 3, takes="batch")] == [
            after(hours=1),
            None,
            after(hours=1),
        ]

    def test_a_missing_id_is_its_own_failure(self) -> None:
        """A job that the handler doesn't mention has failed; its neighbours haven't."""
        got = outcomes(lambda frame: dict.fromkeys(frame.index[1:]), 3, takes="batch")
        assert [one.kind for one in got] == ["failure", "success", "success"]
        assert "no outcome" in (got[0].error or "")
        assert got[0].retry

    def test_answers_for_others_change_nothing(self) -> None:
        """Ids that aren't in the batch, or are no ids at all, are passed over."""
        got = outcomes(
            lambda frame: {**dict.fromkeys(frame.index), uuid4(): 5, "x": 6, None: 7}, 2, takes="batch"
        )
        assert got == [Outcome("success")] * 2

    @pytest.mark.parametrize("wrong", [42, "done", np.array([1, 2]), [1], object()])
    @pytest.mark.parametrize("as_series", [False, True])
    def test_a_wrong_answer_is_its_own_failure(self, wrong: Any, as_series: bool) -> None:
        """One answer that can't be used fails its job alone, whatever it is compared with."""

        def handler(frame: pd.DataFrame) -> Any:
            answers = dict.fromkeys(frame.index)
            answers[UUID(int=2)] = wrong
            return (
                pd.Series(list(answers.values()), index=frame.index, dtype=object) if as_series else answers
            )

        got = outcomes(handler, 3, takes="batch")
        assert [one.kind for one in got] == ["success", "failure", "success"]
        assert not got[1].retry

    @pytest.mark.parametrize("answer", [None, 5, [None, None], pd.DataFrame({"a": [1, 2]})])
    def test_no_answer_by_id_fails_all(self, answer: Any) -> None:
        """Without an answer by id nothing is known of any job."""
        got = outcomes(lambda _frame: answer, 2, takes="batch")
        assert [one.kind for one in got] == ["failure"] * 2
        assert "mapping or a Series" in (got[0].error or "")

    @pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), PermanentFailure("gone")])
    def test_what_it_raises_fails_all(self, error: BaseException) -> None:
        """An exception of the batch is each job's."""
        got = outcomes(raising(error), 2, takes="batch")
        assert [one.kind for one in got] == ["failure"] * 2
        assert got[0].retry is not isinstance(error, PermanentFailure)

    def test_leaving_returns_the_answers_not_yet_read(self) -> None:
        """The whole batch is done once the handler answered, read or not."""
        jobs = [claimed(number) for number in range(5)]
        job_type = JobType(name="work", takes="batch", handler=lambda frame: dict.fromkeys(frame.index))
        tries = Tries(job_type, jobs, CONTEXT, lambda: False)
        first = next(iter(tries))
        assert [first.job, *(tried.job for tried in tries.leave())] == jobs


def test_a_clock_that_runs_far_ahead_stays_real(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that takes longer than a day keeps real starts: what the clock is was decided at its beginning."""
    from cronless_dagster.engine import handlers

    now = datetime.now(UTC)
    tries = Tries(
        JobType(name="work", handler=nothing), [claimed()], replace(CONTEXT, now=now), lambda: False
    )

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(days=2)

    monkeypatch.setattr(handlers, "datetime", Later)
    [tried] = tries
    assert tried.started_at > now + timedelta(days=1)
