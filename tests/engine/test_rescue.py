"""Claims whose holder died, was canceled or never came: nothing is lost, nothing counts against the innocent."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from cronless_dagster.engine import reconcile_step, rescue
from cronless_dagster.engine import tick as tick_module
from cronless_dagster.engine.job_types import JobTypes
from cronless_dagster.engine.local import tick_and_run
from cronless_dagster.engine.rescue import carry_out
from cronless_dagster.engine.tick import tick
from cronless_dagster.store import claims as store
from cronless_dagster.store import jobs
from cronless_dagster.store.database import transaction
from cronless_dagster.store.errors import ClaimLost
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
    from cronless_dagster.engine.running import ClaimReport
    from cronless_dagster.engine.runs import RunState
    from cronless_dagster.store.rows import ClaimedJob

LEASE = timedelta(minutes=10)


def start(world: World, claim_id: UUID, run_id: str) -> None:
    """Let a run pass the start fence and do nothing more."""
    with transaction(world.engine) as connection:
        assert store.start_claim(connection, claim_id, UUID(run_id), run_id, world.at) is not None


def interrupt_after(world: World, finished: int, claim_id: UUID, run_id: str) -> None:
    """Let a run record so many jobs in the order of their ids and cancel it while the next one hangs."""
    hanging = threading.Event()
    begun: list[ClaimedJob] = []

    def handler(job: ClaimedJob) -> None:
        begun.append(job)
        if len(begun) > finished:
            hanging.wait(60)

    def progress(report: ClaimReport) -> None:
        if report.finished == finished:
            raise KeyboardInterrupt

    world.types = types_of(handler, concurrency=1)
    try:
        with pytest.raises(KeyboardInterrupt):
            world.run(claim_id, execution_id=UUID(run_id), run_id=run_id, progress=progress)
    finally:
        hanging.set()


def open_claims(world: World) -> list[store.Claim]:
    """Return the open claims."""
    with transaction(world.engine) as connection:
        return store.open_claims(connection)


class TestRuns:
    """Claims of the run route."""

    def test_a_run_becomes_the_claims(self, world: World) -> None:
        """Once a run exists the claim is submitted and not handed over again."""
        add(world.engine)
        world.tick()
        [hand_over] = world.tick(after(minutes=1)).hand_over
        run_id = world.runs.launch(hand_over)
        report = world.tick(after(minutes=1, seconds=30))
        assert (report.reconciled, report.hand_over) == ({"submitted": 1}, [])
        submitted = claim(world.engine)
        assert (submitted.state, submitted.run_id) == ("SUBMITTED", run_id)
        assert world.tick(after(hours=5)).hand_over == []

    def test_a_run_that_ends_before_it_starts_the_claim(self, world: World) -> None:
        """It is handed over again under a new key, later and later, and no job pays for it."""
        job_id = add(world.engine, "0 0 1 1 *", next_run_at=after(minutes=1))
        [hand_over] = world.tick(after(minutes=1)).hand_over
        world.runs.launch(hand_over, "failure")
        keys = [hand_over.run_key]
        for minute in range(2, 65):
            for one in world.tick(after(minutes=minute)).hand_over:
                keys.append(one.run_key)
                world.runs.launch(one, "failure")
        assert keys == [f"{hand_over.claim_id}:{number}" for number in range(len(keys))]
        assert 5 <= len(keys) <= 8
        kept = row(world.engine, job_id)
        assert (kept.status, kept.attempt, kept.crashes, kept.consecutive_failures) == ("QUEUED", 0, 0, 0)
        assert history(world.engine) == []

    def test_a_lost_hand_over_is_made_again_under_the_same_key(self, world: World) -> None:
        """The caller died with the report: the next tick says the same."""
        add(world.engine)
        world.tick()
        [lost] = world.tick(after(minutes=1)).hand_over
        [again] = world.tick(after(minutes=2)).hand_over
        assert again == lost

    def test_a_deleted_run_is_made_again(self, world: World) -> None:
        """A person deletes the queued run in the UI: the claim gets another."""
        job_id = add(world.engine, "0 0 1 1 *", next_run_at=after(minutes=1))
        [hand_over] = world.tick(after(minutes=1)).hand_over
        run_id = world.runs.launch(hand_over)
        world.tick(after(minutes=2))
        world.runs.delete(str(run_id))
        assert world.tick(after(minutes=3)).reconciled == {"again": 1}
        [ran] = world.go(after(minutes=4))
        assert ran.succeeded == 1
        assert outcomes(world.engine, job_id) == ["success"]

    @pytest.mark.parametrize("started", [False, True])
    def test_a_canceled_run_ends_its_jobs_as_canceled(self, world: World, started: bool) -> None:
        """A person's cancel is obeyed: what isn't finished goes on with its next occurrence, uncounted."""
        ids = add_many(world.engine, 3)
        once = add(world.engine, "@once 2026-03-02T12:01", name="once")
        world.tick()
        [hand_over] = world.tick(after(minutes=1)).hand_over
        run_id = str(world.runs.launch(hand_over))
        if started:
            start(world, hand_over.claim_id, run_id)
        world.runs.set(run_id, "canceled")
        report = world.tick(after(minutes=1, seconds=30))
        assert report.reconciled == {"canceled": 1}
        for job_id in ids:
            kept = row(world.engine, job_id)
            assert (kept.status, kept.next_run_at) == ("PENDING", after(minutes=2))
            assert (kept.consecutive_failures, kept.attempt) == (0, 0)
        assert row(world.engine, once).status == "FAILED"
        lines = history(world.engine)
        assert {(line.outcome, line.run_id) for line in lines} == {("canceled", run_id)}
        assert len(lines) == 4
        assert claim(world.engine).close_reason == "canceled"

    def test_a_canceled_holder_that_still_works_is_refused(self, world: World) -> None:
        """Its late results are discarded: each occurrence is accepted once."""

        def handler(job: ClaimedJob) -> None:
            world.runs.set(str(run_id), "canceled")
            world.tick(after(minutes=1))

        world.types = types_of(handler)
        job_id = add(world.engine)
        world.tick()
        [hand_over] = world.tick(after(minutes=1)).hand_over
        run_id = world.runs.launch(hand_over)
        with pytest.raises(ClaimLost):
            world.run(hand_over.claim_id, execution_id=UUID(run_id), run_id=run_id)
        assert outcomes(world.engine, job_id) == ["canceled"]

    @pytest.mark.parametrize("state", ["failure", "success"])
    def test_a_holder_that_ended_leaves_its_rows_to_smaller_claims(
        self, world: World, state: RunState
    ) -> None:
        """25 unfinished rows become nine claims of at most three, each with its own run."""
        add_many(world.engine, 25)
        world.tick()
        [hand_over] = world.tick(after(minutes=1)).hand_over
        run_id = str(world.runs.launch(hand_over))
        start(world, hand_over.claim_id, run_id)
        world.runs.set(run_id, state)
        report = world.tick(after(minutes=1, seconds=10))
        assert report.reconciled == {"split": 1}
        assert sorted(one.job_count for one in report.hand_over) == [1, *[3] * 8]
        parent, *children = claims(world.engine)
        assert (parent.state, parent.close_reason) == ("CLOSED", "split")
        assert {child.parent_id for child in children} == {parent.id}
        ran = world.launch_and_run(report)
        assert sum(one.succeeded for one in ran) == 25
        assert outcomes(world.engine) == ["success"] * 25
        lines = sql(world.engine, "SELECT DISTINCT attempt, crashes FROM cronless.scheduled_job")
        assert [tuple(line) for line in lines] == [(0, 0)]

    def test_what_the_holder_finished_is_not_done_again(self, world: World) -> None:
        """Only the unfinished rows of a dead claim are split."""
        add_many(world.engine, 10)
        world.tick()
        [hand_over] = world.tick(after(minutes=1)).hand_over
        run_id = str(world.runs.launch(hand_over))

        interrupt_after(world, 5, hand_over.claim_id, run_id)
        assert len(history(world.engine)) == 5
        world.types = types_of()
        world.runs.set(run_id, "failure")
        world.go(after(minutes=1, seconds=10))
        assert outcomes(world.engine) == ["success"] * 10
        assert len({line.job_id for line in history(world.engine)}) == 10

    def test_the_last_one_left_of_a_batch_bears_no_crash(self, world: World) -> None:
        """It may have been doing nothing yet: only who was claimed alone is suspected."""
        ids = add_many(world.engine, 3)
        world.tick()
        [hand_over] = world.tick(after(minutes=1)).hand_over
        run_id = str(world.runs.launch(hand_over))

        interrupt_after(world, 2, hand_over.claim_id, run_id)
        world.runs.set(run_id, "failure")
        assert world.tick(after(minutes=1, seconds=10)).reconciled == {"split": 1}
        left = row(world.engine, max(ids))
        assert (left.crashes, left.attempt) == (0, 0)
        assert "crashed" not in outcomes(world.engine)

    def test_a_dead_holder_without_unfinished_rows(self, world: World) -> None:
        """A run that died between its last finish and the end of its claim left nothing to do."""
        add(world.engine)
        world.tick()
        [hand_over] = world.tick(after(minutes=1)).hand_over
        run_id = str(world.runs.launch(hand_over))
        world.run(hand_over.claim_id, execution_id=UUID(run_id), run_id=run_id)
        sql(
            world.engine,
            "UPDATE cronless.job_claim SET state = 'RUNNING', closed_at = NULL, close_reason = NULL",
        )
        world.runs.set(run_id, "failure")
        assert world.tick(after(minutes=1)).reconciled == {"closed": 1}
        assert len(claims(world.engine)) == 1

    def test_a_holder_without_a_run_is_judged_by_its_lease(self, world: World) -> None:
        """Worker and code server died together, or the run was deleted: the lease alone decides."""
        add(world.engine)
        world.tick()
        [hand_over] = world.tick(after(minutes=1)).hand_over
        run_id = str(world.runs.launch(hand_over, "started"))
        start(world, hand_over.claim_id, run_id)
        world.runs.delete(run_id)
        assert world.tick(after(minutes=11)).reconciled == {}
        assert world.tick(after(minutes=11, seconds=1)).reconciled == {"crashed": 1}

    def test_a_holder_that_was_heard_of_meanwhile_is_alive(self, world: World) -> None:
        """What was decided on an old look doesn't hold for a renewed lease."""
        add(world.engine)
        world.tick()
        [hand_over] = world.tick(after(minutes=1)).hand_over
        run_id = str(world.runs.launch(hand_over, "started"))
        start(world, hand_over.claim_id, run_id)
        [seen] = open_claims(world)
        with transaction(world.engine) as connection:
            store.hold_claim(connection, seen.id, UUID(run_id), after(minutes=5))
        assert carry_out(world.engine, seen, "died", None, world.types, after(minutes=12)) is None
        assert claim(world.engine).state == "RUNNING"

    def test_two_dispatchers_mend_a_claim_once(self, world: World) -> None:
        """Whoever comes second finds the claim closed."""
        add_many(world.engine, 20)
        world.tick()
        [hand_over] = world.tick(after(minutes=1)).hand_over
        run_id = str(world.runs.launch(hand_over, "started"))
        start(world, hand_over.claim_id, run_id)
        [seen] = open_claims(world)
        answers = [
            carry_out(world.engine, seen, "died", None, world.types, after(minutes=12)) for _ in range(2)
        ]
        assert answers == ["split", None]
        assert len(open_claims(world)) == 10

    def test_one_that_is_being_mended_is_passed_over(self, world: World) -> None:
        """A claim that another dispatcher has locked isn't waited for."""
        add(world.engine)
        world.tick()
        world.tick(after(minutes=1))
        [seen] = open_claims(world)
        with transaction(world.engine) as connection:
            assert store.lock_claim(connection, seen.id) is not None
            # On the database's own clock: an overridden now is one transaction's at a time.
            assert carry_out(world.engine, seen, "submitted", "run", world.types, None) is None

    def test_claims_of_other_shards_are_left_alone(self, world: World) -> None:
        """Only the owner of a claim's lower bound mends it."""
        from cronless_dagster.scheduling.shards import shard

        lower, upper = shard(0, 2), shard(1, 2)
        add_many(world.engine, 20)
        world.tick()
        [hand_over] = world.tick(after(minutes=1), ids=upper).hand_over
        world.runs.launch(hand_over, "failure")
        assert world.tick(after(minutes=2), ids=lower).reconciled == {}
        assert world.tick(after(minutes=2), ids=upper).reconciled == {"again": 1}

    def test_a_canceled_claim_of_an_undeclared_type(self, world: World) -> None:
        """A rolled-back deploy can still end what a person canceled."""
        add(world.engine)
        world.tick()
        [hand_over] = world.tick(after(minutes=1)).hand_over
        world.runs.launch(hand_over, "canceled")
        world.types = JobTypes()
        assert world.tick(after(minutes=2)).reconciled == {"canceled": 1}


class TestForgottenTypes:
    """Claims of a job type that was taken out of the code."""

    @pytest.fixture
    def left(self, world: World) -> UUID:
        """Claim a job at 13:00, then run code that doesn't know its type."""
        job_id = add(world.engine, "0 * * * *")
        world.tick()
        self.handed = world.tick(after(hours=1)).hand_over[0]
        world.types = types_of(nothing, "other")
        return job_id

    @pytest.mark.parametrize("runs", ["run", "local"])
    def test_unstarted_rows_go_back_after_a_day(self, world: World, left: UUID, runs: str) -> None:
        """Whoever ticks releases them as they were; while the type may come back they are kept."""
        for hours in (2, 24):
            assert world.tick(after(hours=hours)).reconciled == {}
        assert row(world.engine, left).status == "QUEUED"
        report = world.tick(after(hours=26), **({} if runs == "run" else {"runs": None, "route": "local"}))
        assert report.reconciled == {"released": 1}
        assert (claim(world.engine).state, claim(world.engine).close_reason) == ("CLOSED", "released")
        back = row(world.engine, left)
        assert (back.status, back.next_run_at, back.scheduled_for, back.claim_id, back.attempt) == (
            "PENDING",
            after(hours=1),
            after(hours=1),
            None,
            0,
        )
        world.types = types_of()
        assert world.tick(after(hours=27)).claimed == {"work": 1}

    def test_declared_elsewhere_they_stay(self, world: World, left: UUID) -> None:
        """Another code location that declares the type keeps its claims, though this one can't run them."""
        for hours in range(2, 40, 6):
            tick(world.engine, types_of(), now=after(hours=hours), runs=None)
            assert world.tick(after(hours=hours)).reconciled == {}
        assert row(world.engine, left).status == "QUEUED"

    def test_a_run_that_may_still_come_is_waited_for(self, world: World, left: UUID) -> None:
        """A run in Dagster's queue keeps its claim, one that was deleted doesn't; then a late start is refused."""
        run_id = world.runs.launch(self.handed)
        assert run_id is not None
        assert world.tick(after(hours=2)).reconciled == {"submitted": 1}
        assert world.tick(after(hours=26)).reconciled == {}
        world.runs.delete(run_id)
        assert world.tick(after(hours=27)).reconciled == {"again": 1}
        assert world.tick(after(hours=28)).reconciled == {"released": 1}
        assert row(world.engine, left).status == "PENDING"
        world.types = types_of()
        assert world.run(self.handed.claim_id).status != "done"

    def test_a_started_one_is_left_to_its_holder(self, world: World, left: UUID) -> None:
        """Behind the start fence the lease decides, as ever."""
        sql(
            world.engine,
            "UPDATE cronless.job_claim SET state = 'RUNNING', execution_id = gen_random_uuid(),"
            " lease_expires_at = :later",
            later=after(days=9),
        )
        assert world.tick(after(hours=26)).reconciled == {}
        assert row(world.engine, left).status == "QUEUED"


class TestAJobThatKillsItsHolder:
    """Its neighbours are served, and it is set aside."""

    def test_neighbours_are_served_and_it_ends_invalid(self, world: World) -> None:
        """Of 200 jobs one kills whoever runs it: 199 succeed once, untouched; it is INVALID after three deaths."""
        ids = add_many(world.engine, 200, "0 0 1 1 *", next_run_at=after(minutes=1))
        killer = sorted(ids)[137]
        deaths = 0
        at = after(minutes=1)
        for _ in range(60):
            report = world.tick(at)
            for one in report.hand_over:
                run_id = world.runs.launch(one)
                if run_id is None:
                    continue
                rows = sql(
                    world.engine,
                    "SELECT id FROM cronless.scheduled_job WHERE claim_id = :claim",
                    claim=one.claim_id,
                )
                if killer in {line.id for line in rows}:
                    start(world, one.claim_id, run_id)
                    world.runs.set(run_id, "failure")
                    deaths += 1
                else:
                    world.run(one.claim_id, execution_id=UUID(run_id), run_id=run_id)
                    world.runs.set(run_id, "success")
            at += timedelta(minutes=1)
        dead = row(world.engine, killer)
        assert (dead.status, dead.crashes, dead.claim_id) == ("INVALID", 3, None)
        assert "kills its worker" in dead.invalid_reason
        # 200, 20, 2, then alone three times
        assert deaths == 6
        assert outcomes(world.engine, killer) == ["crashed"] * 3
        others = [line for line in history(world.engine) if line.job_id != killer]
        assert [line.outcome for line in others] == ["success"] * 199
        assert len({line.job_id for line in others}) == 199
        assert {line.attempt for line in others} == {1}
        assert open_claims(world) == []

    def test_an_innocent_job_that_died_alone_is_forgiven(self, world: World) -> None:
        """A success clears the crashes; they count as tries, not as failed occurrences."""
        job_id = add(world.engine)
        world.tick()
        [hand_over] = world.tick(after(minutes=1)).hand_over
        run_id = str(world.runs.launch(hand_over))
        start(world, hand_over.claim_id, run_id)
        world.runs.set(run_id, "failure")
        report = world.tick(after(minutes=1, seconds=10))
        assert report.reconciled == {"crashed": 1}
        crashed = row(world.engine, job_id)
        assert (crashed.crashes, crashed.attempt, crashed.status) == (1, 1, "QUEUED")
        world.launch_and_run(report)
        forgiven = row(world.engine, job_id)
        assert (forgiven.crashes, forgiven.attempt, forgiven.consecutive_failures) == (0, 0, 0)
        assert [(line.outcome, line.attempt) for line in history(world.engine, job_id)] == [
            ("crashed", 1),
            ("success", 2),
        ]

    def test_an_edit_brings_it_back(self, world: World) -> None:
        """Once somebody mended its payload, it is planned again with a clean slate."""
        job_id = add(world.engine)
        world.tick()
        world.tick(after(minutes=1))
        for _ in range(3):
            [one] = world.tick().hand_over
            run_id = str(world.runs.launch(one))
            start(world, one.claim_id, run_id)
            world.runs.set(run_id, "failure")
        world.tick()
        assert row(world.engine, job_id).status == "INVALID"
        with transaction(world.engine) as connection:
            jobs.change(connection, job_id, payload={"mended": True})
        world.go(after(minutes=2))
        world.go(after(minutes=3))
        back = row(world.engine, job_id)
        assert (back.status, back.crashes) == ("PENDING", 0)
        assert outcomes(world.engine, job_id)[-1] == "success"


class TestLocalClaims:
    """Claims that a process of the command line runs by itself."""

    def test_tick_and_run(self, world: World) -> None:
        """One call plans, claims and runs, without an executor."""
        job_id = add(world.engine)
        tick_and_run(world.engine, world.types, now=NOON)
        report, [ran] = tick_and_run(world.engine, world.types, now=after(minutes=1))
        assert (report.claimed, ran.succeeded) == ({"work": 1}, 1)
        assert row(world.engine, job_id).next_run_at == after(minutes=2)
        assert claim(world.engine).route == "local"

    def test_the_sensor_leaves_them_to_their_lease(self, world: World) -> None:
        """A tick of the run route neither hands them over nor takes them within their lease."""
        add(world.engine)
        world.tick()
        world.tick(after(minutes=1), route="local", runs=None)
        report = world.tick(after(minutes=5))
        assert (report.reconciled, report.hand_over) == ({}, [])

    def test_never_started_they_go_back_as_they_were(self, world: World) -> None:
        """A process that died before it began: its rows are due again, at the same instant, at no cost."""
        job_id = add(world.engine, "0 * * * *")
        manual = add(world.engine, "0 0 1 1 *", name="manual")
        world.tick()
        with transaction(world.engine) as connection:
            jobs.trigger(connection, manual)
        world.tick(after(hours=1), route="local", runs=None)
        sql(world.engine, "UPDATE cronless.job_claim SET lease_expires_at = created_at")
        before = row(world.engine, job_id)
        report = world.tick(after(hours=1, seconds=1))
        assert report.reconciled == {"released": 2}
        assert report.claimed == {"work": 2}
        again = row(world.engine, job_id)
        assert (again.serving_at, again.due_at) == (before.serving_at, before.due_at) == (after(hours=1),) * 2
        assert (again.attempt, again.crashes) == (0, 0)
        ran = world.launch_and_run(report)
        assert sum(one.succeeded for one in ran) == 2
        assert [line.manual for line in history(world.engine, manual)] == [True]

    def test_started_they_are_split_after_their_lease(self, world: World) -> None:
        """A process that died in the middle: what it left is run in smaller claims."""
        add_many(world.engine, 20)
        world.tick()
        [hand_over] = world.tick(after(minutes=1), route="local", runs=None).hand_over
        start(world, hand_over.claim_id, str(uuid4()))
        assert world.tick(after(minutes=11)).reconciled == {}
        report = world.tick(after(minutes=11, seconds=1))
        assert report.reconciled == {"split": 1}
        _, ran = tick_and_run(world.engine, world.types, now=after(minutes=11, seconds=2))
        assert [one.succeeded for one in ran] == [2] * 10
        served = [line.scheduled_for for line in history(world.engine) if line.outcome == "success"]
        assert served == [after(minutes=1)] * 20

    def test_a_claim_that_was_taken_away_does_not_stop_the_rest(self, world: World) -> None:
        """The other claims of the tick are run, and the lost one is reported."""

        def handler(job: ClaimedJob) -> None:
            if job.job_type == "one":
                sql(
                    world.engine,
                    "UPDATE cronless.job_claim SET execution_id = gen_random_uuid() WHERE id = :id",
                    id=job.claim_id,
                )

        types = types_of(handler, "one", "two")
        add(world.engine, job_type="one")
        add(world.engine, job_type="two")
        tick_and_run(world.engine, types, now=NOON)
        _, ran = tick_and_run(world.engine, types, now=after(minutes=1))
        assert {one.job_type: one.status for one in ran} == {"one": "lost", "two": "done"}


def test_missing_history_is_made_by_a_rescue(world: World) -> None:
    """A crash recorded on a day without a partition makes it."""
    add(world.engine)
    world.tick()
    [hand_over] = world.tick(after(minutes=1)).hand_over
    run_id = str(world.runs.launch(hand_over))
    start(world, hand_over.claim_id, run_id)
    world.runs.set(run_id, "failure")
    far = after(days=300)
    sql(
        world.engine, "UPDATE cronless.progress SET value = :day WHERE key = 'history'", day=f'"{far.date()}"'
    )
    report = world.tick(far)
    assert (report.errors, report.reconciled) == ([], {"crashed": 1})


def test_rescues_end_with_the_ticks_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many dead claims are mended over several ticks."""
    names = [f"type_{n}" for n in range(6)]
    world.types = types_of(nothing, *names)
    for name in names:
        add(world.engine, job_type=name)
    world.tick()
    for one in world.tick(after(minutes=1)).hand_over:
        world.runs.launch(one, "failure")
    clock = [0.0]
    monkeypatch.setattr(tick_module.time, "monotonic", lambda: clock[0])
    real = rescue.carry_out

    def slow(*rest: object) -> object:
        clock[0] += 8
        return real(*rest)  # type: ignore[arg-type]

    monkeypatch.setattr(reconcile_step, "carry_out", slow)
    assert world.tick(after(minutes=2), budget_seconds=20).reconciled == {"again": 3}
    assert world.tick(after(minutes=2), budget_seconds=20).reconciled == {"again": 3}
