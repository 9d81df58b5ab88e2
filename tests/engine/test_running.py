"""Running a claim: its fence, its batches, its interruptions, and what people change meanwhile."""

from __future__ import annotations

import signal
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from cronless_dagster.engine import running
from cronless_dagster.engine.errors import PermanentFailure, UnknownJobType
from cronless_dagster.engine.job_types import JobTypes
from cronless_dagster.engine.lease import Heartbeat
from cronless_dagster.scheduling.models import Outcome, RetryPolicy
from cronless_dagster.store import jobs
from cronless_dagster.store.database import transaction
from cronless_dagster.store.errors import ClaimLost, DatabaseUnavailable
from tests.engine.support import (
    NOON,
    World,
    add,
    add_many,
    after,
    claim,
    claims,
    history,
    nothing,
    outcomes,
    row,
    sql,
    types_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from cronless_dagster.engine.handlers import HandlerContext
    from cronless_dagster.engine.running import ClaimReport
    from cronless_dagster.store.rows import ClaimedJob


def failing(_job: object) -> None:
    """Fail."""
    raise ValueError("no luck")


def claimed(
    world: World, count: int = 1, schedule: str = "* * * * *", **values: Any
) -> tuple[UUID, list[UUID]]:
    """Add jobs and claim them at 12:01; returns the claim and the jobs."""
    ids = add_many(world.engine, count, schedule, **values)
    world.tick()
    [hand_over] = world.tick(after(minutes=1)).hand_over
    return hand_over.claim_id, ids


class TestFence:
    """A claim has one holder."""

    def test_an_unknown_claim_is_said(self, world: World) -> None:
        """A run whose claim was pruned succeeds and says so."""
        report = world.run(uuid4())
        assert report.status == "unknown"
        assert "there is no claim" in report.message

    def test_a_closed_claim_is_said(self, world: World) -> None:
        """A run that is executed again finds its claim closed, and runs nothing twice."""
        claim_id, [job_id] = claimed(world)
        world.run(claim_id)
        again = world.run(claim_id)
        assert (again.status, again.finished) == ("closed", 0)
        assert "closed (done)" in again.message
        assert outcomes(world.engine, job_id) == ["success"]

    def test_another_holder_is_refused(self, world: World) -> None:
        """While one run holds the claim, a second one is told and runs nothing."""
        refused: list[ClaimReport] = []

        def handler(job: ClaimedJob) -> None:
            refused.append(world.run(job.claim_id, run_id="second"))

        world.types = types_of(handler)
        claim_id, [job_id] = claimed(world)
        report = world.run(claim_id, run_id="first")
        assert [one.status for one in refused] == ["held"]
        assert "held by run first" in refused[0].message
        assert (report.status, outcomes(world.engine, job_id)) == ("done", ["success"])

    def test_the_same_holder_may_ask_again(self, world: World) -> None:
        """A holder that lost the answer of its start goes on under its own execution id."""
        claim_id, [job_id] = claimed(world)
        me = uuid4()
        with transaction(world.engine) as connection:
            assert running.store.start_claim(connection, claim_id, me, "run", after(minutes=1))
        assert world.run(claim_id, execution_id=me).status == "done"
        assert outcomes(world.engine, job_id) == ["success"]

    def test_an_undeclared_type_starts_nothing(self, world: World) -> None:
        """A run without the code of its claim fails before it takes the claim."""
        claim_id, _ = claimed(world)
        world.types = JobTypes()
        with pytest.raises(UnknownJobType, match="'work'"):
            world.run(claim_id)
        assert claim(world.engine).state == "CLAIMED"

    @pytest.mark.parametrize("concurrency", [1, 4])
    def test_a_claim_taken_away_discards_what_comes_late(self, world: World, concurrency: int) -> None:
        """Once another holder has the claim, results are counted as discarded and change nothing."""

        def handler(job: ClaimedJob) -> None:
            if job.name == "0":
                sql(
                    world.engine,
                    "UPDATE cronless.job_claim SET execution_id = gen_random_uuid() WHERE id = :id",
                    id=job.claim_id,
                )

        world.types = types_of(handler, concurrency=concurrency)
        claim_id, ids = claimed(world, 5)
        with pytest.raises(ClaimLost, match="0 results had been accepted, 5 are discarded"):
            world.run(claim_id)
        assert history(world.engine) == []
        assert {row(world.engine, job_id).status for job_id in ids} == {"QUEUED"}

    def test_results_accepted_before_stay(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """A claim lost in the middle keeps what was accepted, and counts the rest."""
        monkeypatch.setattr(running, "FINISH_BATCH", 2)
        monkeypatch.setattr(running, "FINISH_SECONDS", 60.0)
        begun: list[str] = []

        def handler(job: ClaimedJob) -> None:
            begun.append(job.name)
            if len(begun) == 4:
                while len(outcomes(world.engine)) < 2:
                    time.sleep(0.05)
                sql(
                    world.engine,
                    "UPDATE cronless.job_claim SET execution_id = gen_random_uuid() WHERE id = :id",
                    id=job.claim_id,
                )

        world.types = types_of(handler, concurrency=1)
        claim_id, _ = claimed(world, 10)
        # The handler's thread is ahead of the one that records, so how many are discarded is left open.
        with pytest.raises(ClaimLost, match="2 results had been accepted"):
            world.run(claim_id)
        assert outcomes(world.engine) == ["success"] * 2

    def test_a_row_that_is_no_longer_the_claims_is_discarded_alone(self, world: World) -> None:
        """A job that left the claim meanwhile is left out; its neighbours are accepted."""

        def handler(job: ClaimedJob) -> None:
            if job.name == "0":
                sql(
                    world.engine,
                    "UPDATE cronless.scheduled_job SET status = 'PENDING', claim_id = NULL,"
                    " plan_count = plan_count + 1 WHERE id = :id",
                    id=job.id,
                )

        world.types = types_of(handler)
        claim_id, ids = claimed(world, 3)
        report = world.run(claim_id)
        assert (report.succeeded, report.discarded) == (2, 1)
        assert outcomes(world.engine, ids[0]) == []
        assert claim(world.engine).state == "CLOSED"


class TestLease:
    """A holder that is heard of keeps its claim."""

    def test_it_is_renewed_while_handlers_work(self, world: World) -> None:
        """The heartbeat moves the lease on, however long one handler takes."""
        leases = []

        def handler(job: ClaimedJob) -> None:
            for _ in range(600):
                [line] = sql(
                    world.engine,
                    "SELECT lease_expires_at FROM cronless.job_claim WHERE id = :id",
                    id=job.claim_id,
                )
                leases.append(line.lease_expires_at)
                if leases[-1] > leases[0]:
                    return
                time.sleep(0.1)

        world.types = types_of(handler, lease=timedelta(seconds=5))
        claim_id, _ = claimed(world)
        # By the database's clock, which the test moves on.
        sql(world.engine, "UPDATE cronless.clock SET virtual_now = virtual_now")
        moving = threading.Event()

        def move() -> None:
            while not moving.wait(0.05):
                sql(world.engine, "UPDATE cronless.clock SET virtual_now = virtual_now + interval '1 second'")

        mover = threading.Thread(target=move)
        mover.start()
        try:
            report = world.run(claim_id, now=None)
        finally:
            moving.set()
            mover.join()
        assert report.status == "done"
        assert leases[-1] > leases[0]

    def test_a_lost_claim_is_noticed_between_finishes(self, world: World) -> None:
        """The heartbeat says that the claim was lost, and no further job begins."""
        begun: list[str] = []

        def handler(job: ClaimedJob) -> None:
            begun.append(job.name)
            sql(
                world.engine,
                "UPDATE cronless.job_claim SET execution_id = gen_random_uuid() WHERE id = :id",
                id=job.claim_id,
            )
            for _ in range(600):
                if any("lease" in thread.name for thread in threading.enumerate()):
                    time.sleep(0.1)

        world.types = types_of(handler, concurrency=1, lease=timedelta(seconds=5))
        claim_id, _ = claimed(world, 3)
        with pytest.raises(ClaimLost, match="1 are discarded"):
            world.run(claim_id)
        assert len(begun) == 1

    def test_a_database_that_is_away_is_tried_again(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A renewal that fails is no reason to give the claim up."""
        from cronless_dagster.engine import lease
        from cronless_dagster.store.errors import DatabaseUnavailable

        claim_id, _ = claimed(world)
        me = uuid4()
        with transaction(world.engine) as connection:
            running.store.start_claim(connection, claim_id, me, None, NOON)
        renewed = threading.Event()
        real, calls = lease.hold_claim, []

        def hold_claim(*rest: Any) -> None:
            calls.append(1)
            if len(calls) < 3:
                raise DatabaseUnavailable("the database can't be reached")
            real(*rest)
            renewed.set()

        monkeypatch.setattr(lease, "hold_claim", hold_claim)
        with Heartbeat(world.engine, claim_id, me, 0.03, None) as heartbeat:
            assert renewed.wait(60)
            assert not heartbeat.lost.is_set()


class TestBatches:
    """Many jobs of one claim."""

    def test_all_pages_are_run(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """A claim larger than a page is loaded page by page, each job once."""
        monkeypatch.setattr(running, "PAGE_SIZE", 7)
        monkeypatch.setattr(running, "FINISH_BATCH", 3)
        seen: list[UUID] = []
        shown: list[int] = []
        world.types = types_of(lambda job: seen.append(job.id))
        claim_id, ids = claimed(world, 50)
        report = world.run(claim_id, progress=lambda report: shown.append(report.finished))
        assert sorted(seen) == sorted(ids)
        assert (report.succeeded, report.job_count) == (50, 50)
        assert outcomes(world.engine) == ["success"] * 50
        assert shown == sorted(shown)
        assert shown[-1] == 50
        assert claim(world.engine).done_count == 50

    def test_results_are_recorded_while_others_still_work(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A slow job doesn't keep its neighbours' results in memory until it ends."""
        monkeypatch.setattr(running, "FINISH_BATCH", 1)
        recorded = threading.Event()

        def handler(job: ClaimedJob) -> None:
            if job.name == "0":
                assert recorded.wait(60)

        def progress(report: ClaimReport) -> None:
            if report.finished == 4:
                recorded.set()

        world.types = types_of(handler, concurrency=2)
        claim_id, _ = claimed(world, 5)
        assert world.run(claim_id, progress=progress).succeeded == 5

    def test_a_frame_of_the_whole_claim(self, world: World) -> None:
        """A batch handler gets the claim's jobs at once, and answers for each."""
        sizes: list[int] = []

        def handler(frame: Any) -> dict[UUID, Any]:
            sizes.append(len(frame))
            return {
                job_id: Outcome("failure", error="odd") if int(name) % 2 else None
                for job_id, name in zip(frame["job_id"], frame["name"], strict=True)
            }

        world.types = types_of(handler, takes="batch", batch_size=10_000)
        claim_id, _ = claimed(world, 10)
        report = world.run(claim_id)
        assert sizes == [10]
        assert (report.succeeded, report.failed) == (5, 5)

    def test_failures_are_shown_with_what_follows(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The report names failed jobs, at most so many, and when each comes back."""
        monkeypatch.setattr(running, "MAX_SHOWN_FAILURES", 3)
        world.types = types_of(failing, retry=RetryPolicy(max_attempts=1))
        claim_id, _ = claimed(world, 5)
        report = world.run(claim_id)
        assert report.recorded == {"exhausted": 5}
        assert len(report.failures) == 3
        shown = report.failures[0]
        assert shown.error == "ValueError: no luck"
        assert shown.follows == "next at 2026-03-02 12:02:00Z"
        assert (shown.tenant_id, shown.tries, shown.scheduled_for) == ("t", 1, after(minutes=1))

    def test_lateness_counts_from_due(self, world: World) -> None:
        """Each finished try says how long after its due instant it began."""
        add(world.engine)
        world.tick()
        report = world.tick(after(minutes=3))
        [ran] = world.launch_and_run(report)
        assert ran.lateness == [120.0]

    def test_errors_with_what_the_database_cannot_hold(self, world: World) -> None:
        """NUL characters and megabytes in an error's text don't lose the result."""

        def handler(_job: object) -> None:
            raise ValueError("\x00" + "x" * 1_000_000 + "\ud800")

        world.types = types_of(handler, retry=RetryPolicy(max_attempts=1))
        claim_id, [job_id] = claimed(world)
        assert world.run(claim_id).failed == 1
        assert len(row(world.engine, job_id).last_error) <= 4_000

    def test_what_a_handler_is_given(self, world: World) -> None:
        """Payload, tenant, name, occurrence, tries and key arrive as they were scheduled."""
        seen: list[ClaimedJob] = []
        world.types = types_of(seen.append)
        claim_id, [job_id] = claimed(world, payload={"mail": "x@example.org"}, jitter_seconds=0)
        world.run(claim_id)
        [job] = seen
        assert (job.id, job.tenant_id, job.name, job.tries) == (job_id, "t", "0", 1)
        assert job.payload == {"mail": "x@example.org"}
        assert (job.scheduled_for, job.due_at, job.manual) == (after(minutes=1), after(minutes=1), False)
        assert job.claim_id == claim_id

    def test_handlers_that_keep_connections_do_not_starve_the_run(self, world: World) -> None:
        """Sixteen handlers each hold a connection until their neighbours' results are recorded."""
        holding = threading.Barrier(16)
        recorded = threading.Event()

        def handler(job: ClaimedJob, context: HandlerContext) -> None:
            if int(job.name) < 16:
                with context.engine.begin() as connection:
                    connection.exec_driver_sql("SELECT 1")
                    holding.wait(60)
                    if job.name != "0":
                        assert recorded.wait(60)

        def progress(report: ClaimReport) -> None:
            recorded.set()

        world.types = types_of(handler, concurrency=16)
        claim_id, _ = claimed(world, 40)
        assert world.run(claim_id, progress=progress).succeeded == 40

    def test_handlers_have_an_engine_of_their_own_for_the_runs_length(self, world: World) -> None:
        """The handlers' connections are closed when the run ends, and are none of the store's."""
        engines: list[Any] = []

        def handler(_job: ClaimedJob, context: HandlerContext) -> None:
            with context.engine.begin() as connection:
                connection.exec_driver_sql("SELECT 1")
            engines.append(context.engine)

        world.types = types_of(handler)
        claim_id, _ = claimed(world)
        world.run(claim_id)
        [theirs] = engines
        assert theirs is not world.engine
        assert theirs.pool.checkedin() == 0

    def test_one_slow_job_withholds_nothing_at_concurrency_one(self, world: World) -> None:
        """What ended before a slow job is recorded while it runs, also where jobs run one by one."""
        seen: list[int] = []

        def handler(job: ClaimedJob) -> None:
            if job.id == ids[-1]:
                for _ in range(600):
                    if len(outcomes(world.engine)) == 2:
                        break
                    time.sleep(0.05)
                seen.append(len(outcomes(world.engine)))

        world.types = types_of(handler, concurrency=1)
        ids: list[UUID] = []
        claim_id, made = claimed(world, 3)
        ids += sorted(made)
        assert world.run(claim_id).succeeded == 3
        assert seen == [2]


class TestInTheWay:
    """Results outlast what keeps them from being written."""

    def test_a_locked_row_keeps_no_neighbour_waiting(self, world: World) -> None:
        """A person's open transaction on one row delays that row's result alone, however long it lasts."""
        called: list[UUID] = []
        recorded: list[int] = []
        world.types = types_of(lambda job: called.append(job.id))
        claim_id, ids = claimed(world, 20)
        blocker = world.engine.connect()
        blocker.execute(
            text("SELECT 1 FROM cronless.scheduled_job WHERE id = :id FOR UPDATE"), {"id": ids[7]}
        )

        def release() -> None:
            for _ in range(600):
                recorded[:] = [len(outcomes(world.engine))]
                if recorded == [19]:
                    break
                time.sleep(0.05)
            blocker.close()

        releasing = threading.Thread(target=release)
        releasing.start()
        report = world.run(claim_id)
        releasing.join()
        assert recorded == [19]
        assert (report.succeeded, report.discarded) == (20, 0)
        assert sorted(called) == sorted(ids)
        assert outcomes(world.engine, ids[7]) == ["success"]
        assert (claim(world.engine).state, claim(world.engine).done_count) == ("CLOSED", 20)

    def test_an_edit_that_held_the_row_is_kept(self, world: World) -> None:
        """The result that waited for an edit is accepted beside it, and the edited row waits for its plan."""
        claim_id, [job_id] = claimed(world)
        with world.engine.connect() as editing:
            editing.execute(
                text("UPDATE cronless.scheduled_job SET schedule = '0 15 * * *' WHERE id = :id"),
                {"id": job_id},
            )
            timer = threading.Timer(1.5, editing.commit)
            timer.start()
            report = world.run(claim_id)
            timer.join()
        waiting = row(world.engine, job_id)
        assert report.succeeded == 1
        assert (waiting.status, waiting.next_run_at, waiting.schedule) == ("PENDING", None, "0 15 * * *")

    @pytest.mark.parametrize("where", ["finish_jobs", "plan_next", "load_page"])
    def test_a_short_outage_repeats_no_work(
        self, world: World, monkeypatch: pytest.MonkeyPatch, where: str
    ) -> None:
        """A database that is away for a moment, wherever the run stands, is asked again; no handler runs twice."""
        called: list[UUID] = []
        world.types = types_of(lambda job: called.append(job.id))
        claim_id, ids = claimed(world, 5)
        real, calls = getattr(running, where), []

        def away(*rest: Any, **options: Any) -> Any:
            calls.append(1)
            if len(calls) <= 2:
                raise DatabaseUnavailable("the database can't be reached")
            return real(*rest, **options)

        monkeypatch.setattr(running, where, away)
        assert world.run(claim_id).succeeded == 5
        assert sorted(called) == sorted(ids)

    def test_a_connection_that_is_cut(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """A finish whose connection the server ends is made again."""
        real, calls = running.finish_jobs, []

        def cut(connection: Any, *rest: Any, **options: Any) -> Any:
            calls.append(1)
            if len(calls) == 1:
                pid = connection.scalar(text("SELECT pg_backend_pid()"))
                sql(world.engine, "SELECT pg_terminate_backend(:pid)", pid=pid)
            return real(connection, *rest, **options)

        monkeypatch.setattr(running, "finish_jobs", cut)
        claim_id, _ = claimed(world, 5)
        assert world.run(claim_id).succeeded == 5

    def test_odd_answers_leave_neighbours_alone(self, world: World) -> None:
        """Answers that no database could hold are recorded as far as they go, and their neighbours' as they are."""

        class Silent(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no words")

        def handler(job: ClaimedJob) -> Any:
            if job.name == "0":
                return Outcome("failure", error=ValueError("no text"))  # type: ignore[arg-type]
            if job.name == "1":
                return Outcome("canceled", error="bad\x00x\ud800")
            if job.name == "2":
                raise Silent
            return None

        world.types = types_of(handler, retry=RetryPolicy(max_attempts=1, pause_after=1))
        claim_id, ids = claimed(world, 20, "@once 2026-03-02T12:01")
        report = world.run(claim_id)
        assert (report.succeeded, report.failed, report.discarded) == (17, 3, 0)
        assert row(world.engine, ids[0]).last_error == "no text"
        assert row(world.engine, ids[1]).last_error == "bad\\x00x\\ud800"
        assert "__str__ raised RuntimeError" in row(world.engine, ids[2]).last_error


class TestInterruption:
    """A run that is canceled in the middle records what is done."""

    @pytest.mark.parametrize("error", [KeyboardInterrupt, type("RunCanceled", (BaseException,), {})])
    def test_in_the_middle_of_single_jobs(self, world: World, error: type[BaseException]) -> None:
        """What was finished before the interruption is recorded; the rest stays claimed."""
        begun: list[str] = []
        over = threading.Event()

        def interrupt(*_: object) -> None:
            raise error

        def handler(job: ClaimedJob) -> None:
            begun.append(job.name)
            if len(begun) == 4:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
                over.wait(60)

        before = signal.signal(signal.SIGUSR1, interrupt)
        world.types = types_of(handler, concurrency=1)
        claim_id, ids = claimed(world, 10)
        try:
            with pytest.raises(error):
                world.run(claim_id)
        finally:
            signal.signal(signal.SIGUSR1, before)
            over.set()
        assert outcomes(world.engine) == ["success"] * 3
        assert [row(world.engine, job_id).status for job_id in ids].count("QUEUED") == 7
        held = claim(world.engine)
        assert (held.state, held.done_count) == ("RUNNING", 3)

    def test_while_threads_work(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """Finished tries of other threads are recorded, and nobody waits for those still at work."""
        monkeypatch.setattr(running, "FINISH_BATCH", 1)
        hanging = threading.Event()
        done: list[str] = []

        def handler(job: ClaimedJob) -> None:
            if len(done) >= 6:
                hanging.wait(60)
            done.append(job.name)

        def progress(_report: ClaimReport) -> None:
            for _ in range(600):
                if len(done) >= 6:
                    raise KeyboardInterrupt
                time.sleep(0.1)

        world.types = types_of(handler, concurrency=2)
        claim_id, _ = claimed(world, 20)
        with pytest.raises(KeyboardInterrupt):
            world.run(claim_id, progress=progress)
        recorded = len(outcomes(world.engine))
        hanging.set()
        assert 6 <= recorded <= 8

    def test_in_the_middle_of_a_finish(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """An interruption inside the finishing transaction loses nothing: the batch is written on the way out."""
        real, calls = running.finish_jobs, []

        def finish_jobs(*rest: Any, **options: Any) -> Any:
            calls.append(1)
            if len(calls) == 1:
                raise KeyboardInterrupt
            return real(*rest, **options)

        monkeypatch.setattr(running, "finish_jobs", finish_jobs)
        claim_id, _ = claimed(world, 5)
        with pytest.raises(KeyboardInterrupt):
            world.run(claim_id)
        assert outcomes(world.engine) == ["success"] * 5

    def test_a_batch_that_was_answered(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """The answers of a batch handler are recorded even when the run is canceled while it records them."""
        monkeypatch.setattr(running, "FINISH_BATCH", 2)

        def progress(_report: ClaimReport) -> None:
            if not interrupted:
                interrupted.append(1)
                raise KeyboardInterrupt

        interrupted: list[int] = []
        world.types = types_of(lambda frame: dict.fromkeys(frame.index), takes="batch")
        claim_id, _ = claimed(world, 9)
        with pytest.raises(KeyboardInterrupt):
            world.run(claim_id, progress=progress)
        assert outcomes(world.engine) == ["success"] * 9


class TestPeopleMeanwhile:
    """Edits, pauses, triggers and removals while the handler works."""

    @pytest.fixture
    def during(self, world: World) -> Callable[..., tuple[UUID, ClaimReport]]:
        """Run one claimed job and do something to it in the middle."""

        def during(action: Callable[[Any, UUID], Any], outcome: Any = None) -> tuple[UUID, ClaimReport]:
            def handler(job: ClaimedJob) -> Any:
                # On another connection, as anybody would.
                with transaction(world.engine) as connection:
                    action(connection, job.id)
                if isinstance(outcome, Exception):
                    raise outcome
                return outcome

            world.types = types_of(handler)
            claim_id, [job_id] = claimed(world)
            return job_id, world.run(claim_id, now=None)

        return during

    def test_an_edited_schedule_is_planned_by_the_next_tick(
        self, world: World, during: Callable[..., tuple[UUID, ClaimReport]]
    ) -> None:
        """The result counts, the old plan doesn't: the next tick plans by what the person wrote."""
        job_id, report = during(lambda db, one: jobs.change(db, one, schedule="0 15 * * *"))
        assert report.succeeded == 1
        waiting = row(world.engine, job_id)
        assert (waiting.status, waiting.next_run_at, waiting.last_outcome) == ("PENDING", None, "success")
        assert world.tick(after(minutes=1)).planned == 1
        assert row(world.engine, job_id).next_run_at == after(hours=3)
        assert outcomes(world.engine, job_id) == ["success"]

    def test_a_direct_instant_wins(
        self, world: World, during: Callable[..., tuple[UUID, ClaimReport]]
    ) -> None:
        """An instant written while the job runs is the next one."""
        job_id, _ = during(lambda db, one: jobs.change(db, one, next_run_at=after(hours=7)))
        waiting = row(world.engine, job_id)
        assert (waiting.next_run_at, waiting.scheduled_for) == (after(hours=7), after(hours=7))

    def test_a_changed_payload_waits_for_the_next_occurrence(
        self, world: World, during: Callable[..., tuple[UUID, ClaimReport]]
    ) -> None:
        """A payload is no plan: the next instant stands."""
        job_id, _ = during(lambda db, one: jobs.change(db, one, payload={"new": True}))
        assert row(world.engine, job_id).next_run_at == after(minutes=2)

    def test_a_pause_is_honoured_at_the_finish(
        self, world: World, during: Callable[..., tuple[UUID, ClaimReport]]
    ) -> None:
        """The result counts, and nothing more is claimed until someone resumes."""
        job_id, report = during(lambda db, one: jobs.pause(db, one, reason="holiday"))
        assert report.succeeded == 1
        assert world.tick(after(minutes=10)).claimed == {}
        with transaction(world.engine) as connection:
            jobs.resume(connection, job_id)
        world.tick(after(minutes=10))
        assert row(world.engine, job_id).next_run_at == after(minutes=11)
        [success, missed] = history(world.engine, job_id)
        assert (success.outcome, missed.missed_reason, missed.missed_count) == ("success", "paused", 9)

    def test_a_trigger_runs_afterwards_and_keeps_the_plan(
        self, world: World, during: Callable[..., tuple[UUID, ClaimReport]]
    ) -> None:
        """A request while the job runs is served next, beside the plan."""
        job_id, _ = during(jobs.trigger)
        world.types = types_of()
        [ran] = world.go(after(minutes=1, seconds=30))
        assert (ran.succeeded, [one.manual for one in claims(world.engine)]) == (1, [False, True])
        assert [line.manual for line in history(world.engine, job_id)] == [False, True]
        assert row(world.engine, job_id).next_run_at == after(minutes=2)

    @pytest.mark.parametrize("outcome", [None, ValueError("no")])
    def test_a_removed_job_is_gone_after_its_result(
        self, world: World, during: Callable[..., tuple[UUID, ClaimReport]], outcome: Any
    ) -> None:
        """The late result is recorded, then the row goes."""
        job_id, report = during(jobs.remove, outcome)
        assert report.finished == 1
        assert sql(world.engine, "SELECT 1 FROM cronless.scheduled_job") == []
        assert len(outcomes(world.engine, job_id)) == 1
        assert claim(world.engine).state == "CLOSED"


class TestFailures:
    """What follows a failure, end to end."""

    def test_retries_then_exhaustion(self, world: World) -> None:
        """Three tries with growing pauses, then the next regular occurrence."""
        world.types = types_of(failing, retry=RetryPolicy(max_attempts=3, delay=timedelta(minutes=1)))
        job_id = add(world.engine, "0 * * * *")
        world.tick()
        tries = []
        at = after(hours=1)
        for _ in range(3):
            world.go(at)
            waiting = row(world.engine, job_id)
            tries.append((waiting.attempt, waiting.scheduled_for, waiting.consecutive_failures))
            at = waiting.next_run_at
        assert tries == [(1, after(hours=1), 0), (2, after(hours=1), 0), (0, after(hours=2), 1)]
        lines = history(world.engine, job_id)
        assert [(line.outcome, line.attempt) for line in lines] == [
            ("failure", 1),
            ("failure", 2),
            ("exhausted", 3),
        ]
        assert {line.scheduled_for for line in lines} == {after(hours=1)}
        assert at == after(hours=2)

    def test_a_retry_that_would_come_too_late_is_superseded(self, world: World) -> None:
        """A job of each minute isn't retried in an hour: its next occurrence comes first."""
        world.types = types_of(
            failing, retry=RetryPolicy(delay=timedelta(hours=1), max_delay=timedelta(hours=1))
        )
        job_id = add(world.engine)
        world.tick()
        world.go(after(minutes=1))
        assert outcomes(world.engine, job_id) == ["superseded"]
        waiting = row(world.engine, job_id)
        assert (waiting.next_run_at, waiting.consecutive_failures) == (after(minutes=2), 1)

    def test_a_waiting_retry_is_superseded_by_a_late_claim(self, world: World) -> None:
        """A retry that nobody claimed before the next occurrence gives way to it."""
        world.types = types_of(failing)
        job_id = add(world.engine, "*/10 * * * *", misfire_grace_seconds=60)
        world.tick()
        world.go(after(minutes=10))
        assert row(world.engine, job_id).attempt == 1
        world.types = types_of()
        world.go(after(minutes=25))
        lines = history(world.engine, job_id)
        assert [line.outcome for line in lines] == ["failure", "missed", "success"]
        assert lines[1].missed_reason == "superseded"
        assert lines[2].scheduled_for == after(minutes=20)

    def test_the_rows_own_policy_goes_before_the_types(self, world: World) -> None:
        """Columns of the row replace the type's retry policy one by one."""
        world.types = types_of(failing, retry=RetryPolicy(max_attempts=1, delay=timedelta(seconds=30)))
        job_id = add(world.engine, "0 * * * *", max_attempts=2)
        world.tick()
        world.go(after(hours=1))
        assert outcomes(world.engine, job_id) == ["failure"]
        assert row(world.engine, job_id).next_run_at >= after(hours=1, seconds=30)

    def test_a_permanent_failure_is_not_tried_again(self, world: World) -> None:
        """The handler knows that another try is useless."""

        def handler(_job: object) -> None:
            raise PermanentFailure("account closed")

        world.types = types_of(handler)
        job_id = add(world.engine, "0 * * * *")
        world.tick()
        world.go(after(hours=1))
        assert outcomes(world.engine, job_id) == ["exhausted"]
        assert row(world.engine, job_id).last_error == "account closed"

    def test_a_job_pauses_itself_after_so_many_failures(self, world: World) -> None:
        """Three exhausted occurrences pause it with the reason; a resume starts the count anew."""
        world.types = types_of(failing, retry=RetryPolicy(max_attempts=1, pause_after=3))
        job_id = add(world.engine)
        world.tick()
        reports = [world.go(after(minutes=minute)) for minute in range(1, 6)]
        assert [[one.paused for one in report] for report in reports] == [[0], [0], [1], [], []]
        paused = row(world.engine, job_id)
        assert (paused.status, paused.consecutive_failures) == ("PENDING", 3)
        assert paused.paused_at == after(minutes=3)
        assert "3 occurrences failed in a row" in paused.pause_reason
        assert paused.pause_reason == reports[2][0].failures[0].follows
        with transaction(world.engine) as connection:
            jobs.resume(connection, job_id)
        resumed = row(world.engine, job_id)
        assert (resumed.consecutive_failures, resumed.pause_reason) == (0, None)

    def test_a_success_ends_the_row_of_failures(self, world: World) -> None:
        """Only failures in a row count."""
        world.types = types_of(failing, retry=RetryPolicy(max_attempts=1))
        job_id = add(world.engine)
        world.tick()
        world.go(after(minutes=1))
        world.types = types_of()
        world.go(after(minutes=2))
        assert row(world.engine, job_id).consecutive_failures == 0

    @pytest.mark.parametrize(("handler", "status"), [(nothing, "DONE"), (failing, "FAILED")])
    def test_a_one_time_job_ends(self, world: World, handler: Any, status: str) -> None:
        """After its only occurrence a one-time job is DONE, or FAILED once its tries are used up."""
        world.types = types_of(handler, retry=RetryPolicy(max_attempts=1))
        job_id = add(world.engine, "@once 2026-03-02T12:05")
        world.tick()
        world.go(after(minutes=5))
        ended = row(world.engine, job_id)
        assert (ended.status, ended.next_run_at) == (status, None)
        assert world.tick(after(days=1)).claimed == {}

    def test_a_handler_plans_its_own_next_instant(self, world: World) -> None:
        """An `@handler` job comes back when its handler says, and by its fallback when it says nothing."""
        answers = iter([after(minutes=42), None, NOON])
        world.types = types_of(lambda _job: next(answers))
        job_id = add(world.engine, "@handler fallback=6h")
        world.tick()
        world.go(NOON)
        assert row(world.engine, job_id).next_run_at == after(minutes=42)
        world.go(after(minutes=42))
        assert row(world.engine, job_id).next_run_at == after(hours=6, minutes=42)
        world.go(after(hours=6, minutes=42))
        assert row(world.engine, job_id).next_run_at == after(hours=12, minutes=42)
        assert outcomes(world.engine, job_id) == ["success"] * 3
