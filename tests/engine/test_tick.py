"""The tick on a virtual clock: what it plans, claims, leaves and hands over, and that nothing stops it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from psycopg.errors import QueryCanceled
from sqlalchemy.exc import IntegrityError, OperationalError

from cronless_dagster.engine import claim_step, claiming, planning, rescue
from cronless_dagster.engine import tick as tick_module
from cronless_dagster.engine.job_types import JobType, JobTypes
from cronless_dagster.engine.tick import tick
from cronless_dagster.scheduling.limits import Limits
from cronless_dagster.scheduling.shards import FULL, from_prefix, shard
from cronless_dagster.scheduling.zones import TZDATA_VERSION
from cronless_dagster.store import jobs
from cronless_dagster.store.database import create_store_engine, transaction
from cronless_dagster.store.errors import ClockError, DatabaseNotMigrated, DatabaseUnavailable
from cronless_dagster.store.fairness import Waiting
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

    from sqlalchemy import Engine


class TestFromPlanToPlan:
    """One job's way through a tick and a run."""

    def test_a_job_is_planned_claimed_run_and_planned_again(self, world: World) -> None:
        """New at noon, due at 12:05, served then, planned for 12:10."""
        job_id = add(world.engine, "*/5 * * * *", payload={"n": 1})

        first = world.tick()
        assert (first.planned, first.claimed, first.hand_over) == (1, {}, [])
        assert row(world.engine, job_id).next_run_at == after(minutes=5)
        assert first.summary() == "planned 1"

        early = world.tick(after(minutes=4, seconds=59))
        assert (early.planned, early.claimed, early.summary()) == (0, {}, "nothing is due")

        due = world.tick(after(minutes=5))
        assert due.claimed == {"work": 1}
        [hand_over] = due.hand_over
        claimed = row(world.engine, job_id)
        assert (claimed.status, claimed.claim_id) == ("QUEUED", hand_over.claim_id)
        assert (claimed.next_run_at, claimed.serving_at) == (None, after(minutes=5))
        assert claim(world.engine).state == "CLAIMED"

        [ran] = world.launch_and_run(due)
        assert (ran.status, ran.succeeded, ran.failed, ran.discarded) == ("done", 1, 0, 0)
        done = row(world.engine, job_id)
        assert (done.status, done.claim_id, done.next_run_at) == ("PENDING", None, after(minutes=10))
        closed = claim(world.engine)
        assert (closed.state, closed.close_reason, closed.done_count, closed.failed_count) == (
            "CLOSED",
            "done",
            1,
            0,
        )
        [line] = history(world.engine)
        assert (line.outcome, line.scheduled_for, line.due_at, line.attempt, line.claim_id) == (
            "success",
            after(minutes=5),
            after(minutes=5),
            1,
            closed.id,
        )
        assert line.run_id == str(line.execution_id) == closed.run_id

    def test_a_tick_again_changes_nothing(self, world: World) -> None:
        """The same question twice has no second effect; the claim is handed over under the same key."""
        add(world.engine)
        world.tick()
        due = world.tick(after(minutes=1))
        for _ in range(3):
            again = world.tick(after(minutes=1))
            assert (again.planned, again.claimed, again.reconciled) == (0, {}, {})
            assert [one.run_key for one in again.hand_over] == [one.run_key for one in due.hand_over]
        assert len(claims(world.engine)) == 1
        world.launch_and_run(due)
        assert world.tick(after(minutes=1)).summary() == "nothing is due"
        assert len(history(world.engine)) == 1

    def test_each_job_type_has_a_claim_of_its_own(self, world: World) -> None:
        """Rows are handed over by type, whoever waits longest first."""
        world.types = types_of(nothing, "one", "two")
        add_many(world.engine, 3, "*/2 * * * *", job_type="one")
        add_many(world.engine, 2, job_type="two")
        world.tick()
        report = world.tick(after(minutes=2))
        assert report.claimed == {"two": 2, "one": 3}
        assert list(report.claimed) == ["two", "one"]
        assert {one.job_type: one.job_count for one in report.hand_over} == {"one": 3, "two": 2}

    def test_shards_serve_their_own_part(self, world: World) -> None:
        """Two ticks over halves of the id space claim everything once."""
        ids = add_many(world.engine, 40)
        halves = [shard(0, 2), shard(1, 2)]
        for part in halves:
            world.tick(ids=part)
        reports = [world.tick(after(minutes=1), ids=part) for part in halves]
        for part, report in zip(halves, reports, strict=True):
            assert report.claimed_rows == sum(part.contains(job_id) for job_id in ids)
            assert [one.job_count for one in report.hand_over] == [report.claimed_rows]
        assert sum(report.claimed_rows for report in reports) == 40

    def test_a_prefix_acts_on_one_job_alone(self, world: World) -> None:
        """The prefix may be a whole id: nothing else is planned or claimed."""
        ids = add_many(world.engine, 5)
        only = from_prefix(str(ids[2]))
        assert world.tick(ids=only).planned == 1
        assert world.tick(after(minutes=1), ids=only).claimed == {"work": 1}
        assert [row(world.engine, job_id).status for job_id in ids].count("PENDING") == 4

    def test_what_a_tick_did_is_noted(self, world: World) -> None:
        """The command line's status reads when the last tick was."""
        world.tick(after(minutes=3))
        [note] = sql(world.engine, "SELECT value FROM cronless.progress WHERE key LIKE 'tick:%'")
        assert note.value["at"] == after(minutes=3).isoformat()

    def test_a_report_is_ready_for_json(self, world: World) -> None:
        """The report's values are plain."""
        import json

        add(world.engine)
        world.tick()
        values = json.loads(json.dumps(world.tick(after(minutes=1)).as_dict()))
        assert values["now"] == "2026-03-02T12:01:00Z"
        assert values["claimed"] == {"work": 1}
        assert values["hand_over"][0]["run_key"].endswith(":0")


class TestNothingStopsATick:
    """Bad rows, failing types and steps, and an executor that can't be asked."""

    def test_bad_rows_are_set_aside_with_their_reason(self, world: World) -> None:
        """Rows that can't be planned become INVALID alone; the good ones beside them are planned."""
        good = add_many(world.engine, 5)
        bad = {
            "not a schedule": ("UTC", "vixie"),
            "0 0 * * *": ("Mars/Olympus", "vixie"),
            "0 1 * * *": ("UTC", "whatever"),
            "@every 1s": ("UTC", "vixie"),
            "x" * 10_000: ("UTC", "vixie"),
            "": ("UTC", "vixie"),
        }
        for name, (schedule, (zone, policy)) in enumerate(bad.items()):
            sql(
                world.engine,
                "INSERT INTO cronless.scheduled_job (tenant_id, job_type, name, schedule, timezone, dst_policy)"
                " VALUES ('bad', 'work', :name, :schedule, :zone, :policy)",
                name=str(name),
                schedule=schedule,
                zone=zone,
                policy=policy,
            )
        report = world.tick()
        assert (report.planned, report.invalid, report.errors) == (5, 6, [])
        rows = sql(world.engine, "SELECT * FROM cronless.scheduled_job WHERE tenant_id = 'bad'")
        assert {line.status for line in rows} == {"INVALID"}
        assert all(line.invalid_reason for line in rows)
        assert world.tick(after(minutes=1)).claimed == {"work": len(good)}

    @pytest.mark.parametrize("value", ["infinity", "-infinity", "20000-01-01Z", "0044-03-15Z BC"])
    def test_instants_that_python_cannot_hold_are_refused(self, world: World, value: str) -> None:
        """One row with such an instant would stop the planning of all others: the database refuses it."""
        for column in ("starts_at", "ends_at", "next_run_at", "trigger_requested_at"):
            with pytest.raises(IntegrityError, match="scheduled_job_instants"):
                sql(
                    world.engine,
                    f"INSERT INTO cronless.scheduled_job (tenant_id, job_type, schedule, {column})"
                    " VALUES ('bad', 'work', '* * * * *', CAST(:value AS timestamptz))",
                    value=value,
                )

    def test_a_schedule_that_broke_while_claimed_is_its_own(self, world: World) -> None:
        """A zone that vanished between plan and misfire sets its row aside in the claim."""
        ids = add_many(world.engine, 3, misfire_grace_seconds=0)
        world.tick()
        sql(
            world.engine,
            "UPDATE cronless.scheduled_job SET timezone = 'Mars/Olympus', plan_count = plan_count + 1"
            " WHERE id = :id",
            id=ids[0],
        )
        report = world.tick(after(minutes=2))
        assert (report.claimed, report.errors) == ({"work": 2}, [])
        assert row(world.engine, ids[0]).status == "INVALID"
        assert claim(world.engine).job_count == 2

    def test_a_failing_type_does_not_stop_the_others(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever keeps one type from being claimed, the next is claimed, and the report says so."""
        world.types = types_of(nothing, "one", "two", "three")
        for name in ("one", "two", "three"):
            add(world.engine, job_type=name)
        world.tick()
        real = claiming.claim_one

        def claim_one(engine: Engine, job_type: JobType, *rest: Any, **options: Any) -> Any:
            if job_type.name == "two":
                raise OperationalError("SELECT", {}, Exception("canceling statement due to timeout"))
            return real(engine, job_type, *rest, **options)

        monkeypatch.setattr(claim_step, "claim_one", claim_one)
        report = world.tick(after(minutes=1))
        assert set(report.claimed) == {"one", "three"}
        [error] = report.errors
        assert error.startswith("two: ")
        assert error in report.summary()

    @pytest.mark.parametrize(
        "name", ["finish_reported", "plan_rows", "follow_zone_data", "ensure_partitions"]
    )
    @pytest.mark.parametrize("error", [ValueError("bug\nmore"), OperationalError("x", {}, QueryCanceled())])
    def test_a_failing_step_does_not_stop_the_others(
        self, world: World, monkeypatch: pytest.MonkeyPatch, name: str, error: Exception
    ) -> None:
        """Due rows are claimed whatever happened in an earlier step, even by a mistake of ours."""
        add(world.engine)
        world.tick()

        def failing(*_: Any, **__: Any) -> None:
            raise error

        monkeypatch.setattr(tick_module, name, failing)
        report = world.tick(after(days=1))
        assert report.claimed == {"work": 1}
        [said] = report.errors
        assert "\n" not in said

    def test_an_error_without_a_word_is_named(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """An exception with an empty message is reported by its kind."""

        def failing(*_: Any, **__: Any) -> None:
            raise RuntimeError

        monkeypatch.setattr(tick_module, "plan_rows", failing)
        assert world.tick().errors == ["plan: RuntimeError"]

    def test_one_claim_that_cannot_be_mended_does_not_stop_the_others(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each claim is reconciled in a transaction of its own."""
        world.types = types_of(nothing, "one", "two")
        for name in ("one", "two"):
            add(world.engine, job_type=name)
        world.tick()
        for one in world.tick(after(minutes=1)).hand_over:
            world.runs.launch(one, "failure")
        real = rescue.store.lock_claim
        broken = claims(world.engine)[0].id

        def lock_claim(connection: Any, claim_id: UUID) -> Any:
            if claim_id == broken:
                raise OperationalError("SELECT", {}, Exception("deadlock detected"))
            return real(connection, claim_id)

        monkeypatch.setattr(rescue.store, "lock_claim", lock_claim)
        report = world.tick(after(minutes=2))
        assert report.reconciled == {"again": 1}
        assert len(report.errors) == 1

    @pytest.mark.parametrize(
        "error", [RuntimeError("no answer"), OperationalError("x", {}, Exception("gone"))]
    )
    def test_without_the_executors_answer_nothing_is_claimed_or_rescued(
        self, world: World, error: Exception
    ) -> None:
        """A dispatcher that can't see the runs plans, and leaves claims and hand-overs to others."""
        world.types = types_of(nothing, "one", "two")
        add(world.engine, job_type="one")
        world.tick()
        [ran] = world.tick(after(minutes=1)).hand_over
        world.runs.launch(ran, "failure")
        add(world.engine, job_type="two")
        world.runs.broken = error
        for minute in (1, 2, 30):
            report = world.tick(after(minutes=minute))
            assert (report.claimed, report.reconciled, report.hand_over) == ({}, {}, [])
            assert len(report.errors) == 1
        assert claim(world.engine).state == "CLAIMED"
        world.runs.broken = None
        report = world.tick(after(minutes=31))
        assert (report.claimed, report.reconciled) == ({"two": 1}, {"again": 1})

    def test_without_an_executor_nothing_is_claimed_or_rescued(self, world: World) -> None:
        """A node without the executor's address plans and no more."""
        add(world.engine)
        assert world.tick(runs=None).planned == 1
        report = world.tick(after(minutes=1), runs=None)
        assert (report.claimed, report.hand_over, claims(world.engine)) == ({}, [], [])
        world.tick(after(minutes=2))
        assert claim(world.engine).state == "CLAIMED"
        report = world.tick(after(hours=2), runs=None)
        assert (report.reconciled, report.hand_over) == ({}, [])

    def test_unknown_types_stay_pending(self, world: World) -> None:
        """Rows that no running code can serve wait as they are, and no claim is made for them."""
        unknown = add(world.engine, job_type="tomorrows")
        add(world.engine)
        assert world.tick().planned == 2
        report = world.tick(after(minutes=1))
        assert report.claimed == {"work": 1}
        waiting = row(world.engine, unknown)
        assert (waiting.status, waiting.next_run_at) == ("PENDING", after(minutes=1))
        world.types = types_of(nothing, "work", "tomorrows")
        assert world.tick(after(minutes=1)).claimed == {"tomorrows": 1}

    def test_claims_of_types_that_are_gone_do_not_hold_up_others(self, world: World) -> None:
        """A rolled-back deploy leaves claims that nobody here can hand over: others are made all the same."""
        world.types = types_of(nothing, *(f"gone_{n}" for n in range(5)))
        for n in range(5):
            add(world.engine, job_type=f"gone_{n}")
        world.tick()
        world.tick(after(minutes=1), max_hand_over=20)
        sql(world.engine, "UPDATE cronless.job_claim SET handed_over_at = NULL")
        world.types = types_of()
        add(world.engine)
        world.tick(after(minutes=1))
        report = world.tick(after(minutes=2), max_hand_over=5)
        assert report.claimed == {"work": 1}
        assert [one.job_type for one in report.hand_over] == ["work"]

    def test_no_job_types_at_all(self, world: World) -> None:
        """A code location without job types plans and says nothing."""
        world.types = JobTypes()
        add(world.engine)
        assert world.tick().planned == 1
        assert world.tick(after(minutes=1)).summary() == "nothing is due"

    def test_a_database_that_is_gone_is_said_at_once(self, world: World) -> None:
        """Nothing can be done then, so the tick raises, in one sentence."""
        gone = create_store_engine("postgresql://nobody@127.0.0.1:1/none")
        with pytest.raises(DatabaseUnavailable, match="can't be reached"):
            tick(gone, world.types)

    def test_a_database_without_the_schema_is_said_at_once(self, empty_pg_url: str, world: World) -> None:
        """As is one that was never migrated."""
        bare = create_store_engine(empty_pg_url)
        with pytest.raises(DatabaseNotMigrated, match="cronless db upgrade"):
            tick(bare, world.types)
        bare.dispose()

    def test_a_reported_instant_that_no_datetime_holds(self, world: World) -> None:
        """A report that can't be read must not stop the outcomes of others: the fallback plans."""
        ids = add_many(world.engine, 2, "@handler fallback=2h")
        world.tick()
        [hand_over] = world.tick(after(minutes=1)).hand_over
        for job_id in ids:
            execution = uuid4()
            sql(
                world.engine,
                "SELECT * FROM cronless.cronless_start(:job, :claim, :execution)",
                job=job_id,
                claim=hand_over.claim_id,
                execution=execution,
            )
            sql(
                world.engine,
                "SELECT cronless.cronless_finish(:job, :claim, :execution, 'success',"
                " next_at => '2026-03-02T15:00Z')",
                job=job_id,
                claim=hand_over.claim_id,
                execution=execution,
            )
        sql(
            world.engine,
            'UPDATE cronless.scheduled_job SET report = report || \'{"next_at": "20000-01-01T00:00:00+00:00"}\','
            " plan_count = plan_count + 1 WHERE id = :id",
            id=ids[0],
        )
        report = world.tick(after(minutes=2))
        assert (report.finished, report.errors) == (2, [])
        assert [row(world.engine, job_id).next_run_at for job_id in ids] == [
            after(minutes=122),
            after(hours=3),
        ]
        assert claim(world.engine).state == "CLOSED"


class TestTime:
    """Budgets, and the clock."""

    def test_now_is_refused_on_real_time(self, engine: Engine) -> None:
        """A typing error must not fire a year of jobs."""
        with pytest.raises(ClockError, match="runs on real time"):
            tick(engine, types_of(), now=after(days=365))
        assert sql(engine, "SELECT * FROM cronless.progress") == []

    def test_now_needs_a_zone(self, world: World) -> None:
        """A naive instant could mean anything."""
        with pytest.raises(ClockError, match="has no zone"):
            world.tick(NOON.replace(tzinfo=None))

    def test_on_real_time_the_databases_clock_decides(self, engine: Engine) -> None:
        """Without `now`, what is due by the database's clock is claimed."""
        world = World(engine, types_of())
        job_id = add(engine)
        tick(engine, world.types)
        sql(
            engine,
            "UPDATE cronless.scheduled_job SET next_run_at = now() - interval '3 seconds' WHERE id = :id",
            id=job_id,
        )
        report = tick(engine, world.types, runs=world.runs)
        assert report.claimed == {"work": 1}
        [at] = sql(engine, "SELECT now() AS now")
        assert timedelta(0) <= at.now - report.now < timedelta(minutes=5)

    def test_no_batch_begins_after_the_budget(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """With the time up, what is due is left, and the report says why."""
        world.types = types_of(nothing, batch_size=2, claims_per_tick=10, limits=Limits(open_claims=None))
        add_many(world.engine, 10)
        world.tick()
        clock = [0.0]
        monkeypatch.setattr(tick_module.time, "monotonic", lambda: clock[0])
        real = claiming.claim_one

        def slow(*rest: Any, **options: Any) -> Any:
            clock[0] += 9
            return real(*rest, **options)

        monkeypatch.setattr(claim_step, "claim_one", slow)
        report = world.tick(after(minutes=1), budget_seconds=20)
        assert report.claimed == {"work": 6}
        assert "time is up" in report.left["work"]
        assert len(report.hand_over) == 3

    def test_planning_leaves_time_for_what_is_due(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A bulk load takes at most a part of the budget, even inside a batch, and goes on at the next tick."""
        due = add(world.engine)
        world.tick()
        for number in range(50):
            add(world.engine, "0 0 * * *", name=f"bulk-{number}")
        clock = [0.0]
        monkeypatch.setattr(tick_module.time, "monotonic", lambda: clock[0])
        real = planning.plan_first

        def slow(*rest: Any) -> Any:
            clock[0] += 1
            return real(*rest)

        monkeypatch.setattr(planning, "plan_first", slow)
        report = world.tick(after(minutes=1), budget_seconds=20)
        assert report.planned == 8
        assert report.claimed == {"work": 1}
        assert row(world.engine, due).status == "QUEUED"
        planned = 8
        for minute in range(2, 20):
            planned += world.tick(after(minutes=minute), budget_seconds=20).planned
        assert planned == 50

    def test_planning_goes_on_batch_after_batch(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """More rows than a batch are planned by one tick."""
        monkeypatch.setattr(planning, "PLAN_BATCH", 7)
        add_many(world.engine, 20)
        assert world.tick().planned == 20


class TestLimits:
    """What a tick may claim of a type."""

    @pytest.mark.parametrize(
        ("options", "claimed", "left"),
        [
            ({}, 4, "may have more due"),
            ({"claims_per_tick": 2}, 8, "may have more due"),
            ({"claims_per_tick": 9}, 12, "3 claims are open and the limit is 3"),
            ({"claims_per_tick": 9, "limits": Limits(open_claims=2)}, 8, "2 claims are open"),
            ({"claims_per_tick": 9, "limits": Limits(open_claims=None)}, 20, None),
            ({"claims_per_tick": 9, "limits": Limits(in_flight=6)}, 6, "6 jobs are in flight"),
            ({"claims_per_tick": 9, "limits": Limits(in_flight=3)}, 3, "3 jobs are in flight"),
        ],
    )
    def test_limits_of_one_tick(
        self, world: World, options: dict[str, Any], claimed: int, left: str | None
    ) -> None:
        """A tick takes what claims a tick, open claims and rows in flight allow, and says what is left."""
        world.types = types_of(nothing, batch_size=4, **options)
        add_many(world.engine, 20)
        world.tick()
        report = world.tick(after(minutes=1))
        assert report.claimed == {"work": claimed}
        assert max(one.job_count for one in report.hand_over) <= 4
        if left is None:
            assert report.left == {}
        else:
            assert left in report.left["work"]

    def test_a_type_at_its_limit_gets_nothing_until_claims_end(self, world: World) -> None:
        """Open claims hold up their own type, and no other; an ended one makes room."""
        world.types = JobTypes(
            (
                JobType(name="work", handler=nothing, batch_size=2, limits=Limits(open_claims=1)),
                JobType(name="other", handler=nothing),
            )
        )
        add_many(world.engine, 4)
        world.tick()
        first = world.tick(after(minutes=1))
        add(world.engine, job_type="other")
        world.tick(after(minutes=1))
        second = world.tick(after(minutes=2))
        assert second.claimed == {"other": 1}
        assert "1 claims are open" in second.left["work"]
        world.launch_and_run(first)
        assert world.tick(after(minutes=2)).claimed == {"work": 2}

    def test_finished_jobs_make_room_in_flight_before_their_claim_ends(self, world: World) -> None:
        """In flight counts rows, not claims."""
        world.types = types_of(nothing, batch_size=10, limits=Limits(in_flight=4))
        add_many(world.engine, 10)
        world.tick()
        world.tick(after(minutes=1))
        sql(world.engine, "UPDATE cronless.job_claim SET done_count = 3, job_count = 4")
        assert world.tick(after(minutes=2)).claimed == {"work": 3}

    def test_a_limit_for_each_tenant(self, world: World) -> None:
        """No tenant has more in flight than its limit, over several claims."""
        world.types = types_of(
            nothing, batch_size=6, claims_per_tick=5, limits=Limits(per_tenant=2, open_claims=None)
        )
        add_many(world.engine, 9, tenant_id="big")
        add_many(world.engine, 1, tenant_id="small")
        world.tick()
        report = world.tick(after(minutes=1))
        assert report.claimed == {"work": 3}
        in_flight = sql(
            world.engine,
            "SELECT tenant_id, count(*) AS rows FROM cronless.scheduled_job WHERE status = 'QUEUED' GROUP BY 1",
        )
        assert {line.tenant_id: line.rows for line in in_flight} == {"big": 2, "small": 1}
        world.launch_and_run(report)
        assert world.tick(after(minutes=1, seconds=30)).claimed == {"work": 2}

    def test_no_more_claims_than_one_tick_hands_over(self, world: World) -> None:
        """New claims stop where the hand-over's limit is reached: they would only wait."""
        world.types = types_of(
            nothing, *(f"type_{n}" for n in range(8)), claims_per_tick=3, limits=Limits(open_claims=None)
        )
        for n in range(8):
            add(world.engine, job_type=f"type_{n}")
        world.tick()
        report = world.tick(after(minutes=1), max_hand_over=5)
        assert len(report.claimed) == len(report.hand_over) == 5
        assert set(report.left) == {"type_5", "type_6", "type_7"}
        assert set(report.left.values()) == {"may have more due: the tick hands over no more claims"}

    def test_a_backlog_of_many_claims_leaves_room_for_other_types(self, world: World) -> None:
        """A type of one job a claim, due the longest, takes its turns and not all places of the hand-over."""
        world.types = types_of(
            nothing, "backlog", "other", claims_per_tick=20, batch_size=1, limits=Limits(open_claims=None)
        )
        for n in range(10):
            add(world.engine, job_type="backlog", name=str(n))
        world.tick()
        add(world.engine, job_type="other")
        world.tick(after(seconds=30))
        assert world.tick(after(minutes=2), max_hand_over=4).claimed == {"backlog": 3, "other": 1}

    def test_a_persons_requests_come_beside_what_is_due(self, world: World) -> None:
        """A request each minute must not keep a type's due rows waiting for ever."""
        due = add_many(world.engine, 3)
        asked = add(world.engine, "0 0 1 1 *", name="asked")
        world.tick()
        with transaction(world.engine) as connection:
            jobs.trigger(connection, asked)
        report = world.tick(after(minutes=1))
        assert report.claimed == {"work": 4}
        assert sorted((one.manual, one.job_count) for one in report.hand_over) == [(False, 3), (True, 1)]
        world.launch_and_run(report)
        kept = row(world.engine, asked)
        assert (kept.status, kept.next_run_at) == ("PENDING", NOON.replace(year=2027, month=1, day=1, hour=0))
        assert row(world.engine, due[0]).next_run_at == after(minutes=2)

    def test_a_flood_of_requests_leaves_room_for_what_is_due(self, world: World) -> None:
        """While something is due, requests get one claim a tick and not the last place, though each runs for long."""
        world.types = types_of(
            nothing, batch_size=10, claims_per_tick=9, limits=Limits(open_claims=3, per_tenant=5)
        )
        flood = add_many(world.engine, 50, "0 0 1 1 *", tenant_id="a")
        add_many(world.engine, 10, tenant_id="b")
        world.tick()
        with transaction(world.engine) as connection:
            for job_id in flood:
                jobs.trigger(connection, job_id)
        first = world.tick(after(minutes=1))
        assert sorted((one.manual, one.job_count) for one in first.hand_over) == [(False, 5), (True, 10)]
        # The limit of a tenant keeps the rest of b's back, and the last place is kept for them.
        assert world.tick(after(minutes=2)).claimed == {}
        [due] = [one for one in first.hand_over if not one.manual]
        world.run(due.claim_id)
        assert world.tick(after(minutes=2, seconds=30)).claimed == {"work": 15}
        assert sum(not one.manual for one in claims(world.engine)) == 2

    def test_requests_go_on_where_nothing_is_due(self, world: World) -> None:
        """With the due rows claimed, the rest of the tick's places are for requests."""
        world.types = types_of(nothing, batch_size=10, claims_per_tick=9, limits=Limits(open_claims=4))
        flood = add_many(world.engine, 50, "0 0 1 1 *", tenant_id="a")
        add_many(world.engine, 4, tenant_id="b")
        world.tick()
        with transaction(world.engine) as connection:
            for job_id in flood:
                jobs.trigger(connection, job_id)
        report = world.tick(after(minutes=1))
        assert (
            sorted((one.manual, one.job_count) for one in report.hand_over) == [(False, 4)] + [(True, 10)] * 3
        )

    def test_requests_never_take_the_last_hand_over(self, world: World) -> None:
        """A tick that can hand over one more claim hands over what is due."""
        add(world.engine)
        asked = add(world.engine, "0 0 1 1 *")
        world.tick()
        with transaction(world.engine) as connection:
            jobs.trigger(connection, asked)
        report = world.tick(after(minutes=1), max_hand_over=1)
        assert [one.manual for one in report.hand_over] == [False]

    def test_two_hundred_open_claims_leave_room_for_new_ones(self, world: World) -> None:
        """Claims whose runs never came are handed over in turn, and a new one goes before them."""
        names = [f"type_{n}" for n in range(200)]
        world.types = types_of(nothing, *names, "fresh")
        with transaction(world.engine) as connection:
            for name in names:
                jobs.add(connection, tenant_id="t", job_type=name, schedule="* * * * *")
        world.tick()
        minute = 0
        while len(claims(world.engine)) < 200:
            minute += 1
            world.tick(after(minutes=minute))
            assert minute < 15
        add(world.engine, "* * * * *", job_type="fresh")
        world.tick(after(minutes=minute))
        report = world.tick(after(minutes=minute + 1))
        assert report.open_claims == 201
        assert len(report.hand_over) == 20
        assert report.hand_over[0].job_type == "fresh"
        handed = {one.claim_id for one in report.hand_over}
        for later in range(minute + 2, minute + 12):
            handed |= {one.claim_id for one in world.tick(after(minutes=later)).hand_over}
        assert len(handed) == 201


class TestMisfires:
    """What a dispatcher that was away finds, by the rows' policies, through the real claim."""

    @pytest.fixture
    def away(self, world: World) -> Callable[..., UUID]:
        """Plan a job that fires each hour, then let three and a half hours pass without a tick."""

        def away(policy: str, **values: Any) -> UUID:
            job_id = add(world.engine, "0 * * * *", misfire_policy=policy, **values)
            world.tick()
            world.at = after(hours=3, minutes=30)
            return job_id

        return away

    def test_latest_serves_the_last_instant(self, world: World, away: Callable[..., UUID]) -> None:
        """13:00 and 14:00 are missed in one history row, 15:00 is served, 16:00 comes next."""
        job_id = away("latest")
        report = world.tick()
        assert (report.claimed, report.misfired) == ({"work": 1}, 1)
        world.launch_and_run(report)
        lines = {line.outcome: line for line in history(world.engine, job_id)}
        missed = lines["missed"]
        assert (missed.scheduled_for, missed.missed_last) == (after(hours=1), after(hours=2))
        assert (missed.missed_count, missed.missed_reason) == (2, "misfire")
        assert lines["success"].scheduled_for == after(hours=3)
        assert lines["success"].due_at == after(hours=1)
        assert row(world.engine, job_id).next_run_at == after(hours=4)

    def test_skip_waits_for_the_next(self, world: World, away: Callable[..., UUID]) -> None:
        """All three are missed, nothing runs, and the claim that took the row is closed without a run."""
        job_id = away("skip")
        report = world.tick()
        assert (report.claimed, report.misfired, report.hand_over) == ({}, 1, [])
        closed = claim(world.engine)
        assert (closed.state, closed.close_reason, closed.job_count) == ("CLOSED", "misfired", 0)
        [missed] = history(world.engine, job_id)
        assert (missed.outcome, missed.missed_count) == ("missed", 3)
        assert (missed.scheduled_for, missed.missed_last) == (after(hours=1), after(hours=3))
        waiting = row(world.engine, job_id)
        assert (waiting.status, waiting.next_run_at, waiting.claim_id) == ("PENDING", after(hours=4), None)

    def test_skip_serves_the_last_within_its_grace(self, world: World, away: Callable[..., UUID]) -> None:
        """With the last instant within grace, it is served."""
        job_id = away("skip", misfire_grace_seconds=1800)
        world.launch_and_run(world.tick())
        assert outcomes(world.engine, job_id) == ["missed", "success"]
        assert history(world.engine, job_id)[0].missed_count == 2

    def test_all_serves_each_in_order(self, world: World, away: Callable[..., UUID]) -> None:
        """Three claims in a row serve 13:00, 14:00, 15:00; nothing is missed."""
        job_id = away("all")
        for _ in range(4):
            world.go()
        lines = history(world.engine, job_id)
        assert [line.outcome for line in lines] == ["success"] * 3
        assert [line.scheduled_for for line in lines] == [after(hours=n) for n in (1, 2, 3)]
        assert row(world.engine, job_id).next_run_at == after(hours=4)

    def test_deciding_stops_with_the_ticks_time(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """What isn't decided in time is left as it was, due; the next ticks decide it."""
        ids = add_many(world.engine, 10, "0 * * * *", misfire_policy="skip")
        served = add_many(world.engine, 3, "0 * * * *", misfire_grace_seconds=86_400, tenant_id="u")
        world.tick()
        edited = ids[0]
        with transaction(world.engine) as connection:
            jobs.change(connection, edited, next_run_at=after(hours=1))
        before = {job_id: row(world.engine, job_id) for job_id in ids}
        clock = [0.0]
        monkeypatch.setattr(tick_module.time, "monotonic", lambda: clock[0])
        real = claiming.decide_misfire

        def slow(*rest: Any) -> Any:
            clock[0] += 5
            return real(*rest)

        monkeypatch.setattr(claiming, "decide_misfire", slow)
        report = world.tick(after(hours=3, minutes=30), budget_seconds=20)
        assert (report.claimed, report.misfired, report.errors) == ({"work": 3}, 4, [])
        assert "time is up" in report.left["work"]
        assert claim(world.engine).job_count == 3
        assert {row(world.engine, job_id).status for job_id in served} == {"QUEUED"}
        rows = {job_id: row(world.engine, job_id) for job_id in ids}
        left = [job_id for job_id in ids if rows[job_id].next_run_at == after(hours=1)]
        assert len(left) == 6
        for job_id in left:
            for column in (
                "status",
                "scheduled_for",
                "tzdata_version",
                "attempt",
                "plan_version",
                "claim_id",
            ):
                assert getattr(rows[job_id], column) == getattr(before[job_id], column), column
        assert len(history(world.engine)) == 4
        assert world.tick(budget_seconds=20).misfired == 4
        assert world.tick(budget_seconds=20).misfired == 2
        assert {row(world.engine, job_id).next_run_at for job_id in ids} == {after(hours=4)}

    def test_no_time_to_decide_any(self, world: World) -> None:
        """A claim whose rows all stay due is closed without a run, and no row is lost."""
        ids = add_many(world.engine, 3, "0 * * * *")
        world.tick()
        result = claiming.claim_one(
            world.engine,
            world.types["work"],
            Waiting(after(hours=1), None),
            route="run",
            ids=FULL,
            now=after(hours=3),
            more=lambda: False,
        )
        assert (result.rows, result.misfired, result.claim_id) == (0, 0, None)
        closed = claim(world.engine)
        assert (closed.state, closed.close_reason, closed.job_count) == ("CLOSED", "released", 0)
        assert {row(world.engine, job_id).next_run_at for job_id in ids} == {after(hours=1)}
        assert world.tick(after(hours=3)).claimed == {"work": 3}

    def test_within_grace_it_is_late_and_no_more(self, world: World) -> None:
        """At the grace's last moment the planned instant is served as it is."""
        job_id = add(world.engine, "0 * * * *", misfire_policy="skip", misfire_grace_seconds=600)
        world.tick()
        report = world.tick(after(hours=1, minutes=10))
        assert (report.claimed, report.misfired) == ({"work": 1}, 0)
        world.launch_and_run(report)
        assert outcomes(world.engine, job_id) == ["success"]

    def test_a_mixed_claim_keeps_only_what_it_serves(self, world: World) -> None:
        """Rows of all policies in one claim: its count is what its run will find."""
        for n in range(12):
            add(world.engine, "0 * * * *", name=str(n), misfire_policy=("latest", "skip", "all")[n % 3])
        world.tick()
        report = world.tick(after(hours=3, minutes=30))
        assert (report.claimed, report.misfired) == ({"work": 8}, 12)
        assert claim(world.engine).job_count == 8
        [ran] = world.launch_and_run(report)
        assert (ran.job_count, ran.succeeded) == (8, 8)
        assert claim(world.engine).close_reason == "done"

    def test_rows_that_only_wait_cost_no_claim(self, world: World) -> None:
        """After an outage, claims full of skipped rows don't use up the tick: fresh due rows are claimed."""
        world.types = types_of(nothing, batch_size=5)
        for n in range(23):
            add(world.engine, "0 * * * *", name=str(n), misfire_policy="skip")
        world.tick()
        fresh = add(world.engine, "30 15 * * *", name="fresh")
        world.tick(after(minutes=1))
        report = world.tick(after(hours=3, minutes=30))
        assert (report.claimed, report.misfired) == ({"work": 1}, 23)
        assert row(world.engine, fresh).status == "QUEUED"


class TestZoneData:
    """Rows planned with other zone data, after an update of `tzdata`."""

    @pytest.fixture
    def old(self, world: World) -> Callable[..., UUID]:
        """Plan a job as an older release with older zone data would have, at a wrong hour."""
        wrong = after(hours=20)

        def old(schedule: str = "0 9 * * *", at: Any = wrong, **values: Any) -> UUID:
            job_id = add(world.engine, schedule, **values)
            world.tick()
            sql(
                world.engine,
                "UPDATE cronless.scheduled_job SET tzdata_version = '2020a', next_run_at = :at,"
                " scheduled_for = :at, plan_count = plan_count + 1 WHERE id = :id",
                id=job_id,
                at=at,
            )
            return job_id

        return old

    @staticmethod
    def swept(world: World, version: str) -> None:
        """Note a sweep of that version as done."""
        sql(
            world.engine,
            "UPDATE cronless.progress SET value = jsonb_build_object('version', CAST(:version AS text),"
            " 'after', NULL) WHERE key LIKE 'zone_data:%'",
            version=version,
        )

    def test_future_rows_are_planned_anew(self, world: World, old: Callable[..., UUID]) -> None:
        """A row that lies ahead gets its instant by the new data, in the same tick."""
        job_id = old()
        self.swept(world, "2020a")
        report = world.tick()
        assert (report.replanned_zones, report.planned) == (1, 1)
        planned = row(world.engine, job_id)
        assert planned.next_run_at == after(hours=21)
        assert planned.tzdata_version == TZDATA_VERSION
        assert outcomes(world.engine, job_id) == []

    def test_what_no_zone_decides_keeps_its_instant(self, world: World, old: Callable[..., UUID]) -> None:
        """Due rows, direct edits, handlers' own instants and elapsed time stay as they are."""
        handler = old("@handler fallback=24h")
        every = old("@every 90m")
        due = old(at=NOON)
        edited = old()
        with transaction(world.engine) as connection:
            jobs.change(connection, edited, next_run_at=after(hours=5))
        self.swept(world, "2020a")
        report = world.tick()
        assert report.replanned_zones == 0
        for job_id, at in ((handler, after(hours=20)), (every, after(hours=20)), (edited, after(hours=5))):
            assert row(world.engine, job_id).next_run_at == at
        assert row(world.engine, due).serving_at == NOON

    def test_only_forward(self, world: World, old: Callable[..., UUID]) -> None:
        """A node with older data beside newer ones leaves their rows alone."""
        job_id = old()
        self.swept(world, "2999z")
        assert world.tick().replanned_zones == 0
        assert row(world.engine, job_id).next_run_at == after(hours=20)

    def test_once_for_each_version(self, world: World, old: Callable[..., UUID]) -> None:
        """When the sweep is through, ticks no longer look."""
        old()
        self.swept(world, "2020a")
        world.tick()
        left = old(name="left")
        assert world.tick().replanned_zones == 0
        assert row(world.engine, left).tzdata_version == "2020a"

    def test_a_new_database_is_not_swept(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing was planned before the first tick, however many rows were loaded."""

        def swept(*_: Any, **__: Any) -> None:
            pytest.fail("the table was swept")

        monkeypatch.setattr(planning, "clear_other_zone_data", swept)
        add(world.engine)
        assert world.tick().errors == []
        assert world.tick(after(minutes=1)).errors == []

    def test_a_small_part_does_not_count_as_the_whole(self, world: World, old: Callable[..., UUID]) -> None:
        """A tick of a part that begins where the id space begins leaves the sweep of the rest to be done."""
        ids = [old(name=str(n)) for n in range(20)]
        self.swept(world, "2020a")
        world.tick(ids=shard(0, 16))
        world.tick()
        assert {row(world.engine, job_id).tzdata_version for job_id in ids} == {TZDATA_VERSION}

    def test_in_batches_and_by_shard(
        self, world: World, old: Callable[..., UUID], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A tick sweeps a batch; the next goes on behind it; each shard sweeps its own part."""
        monkeypatch.setattr(planning, "ZONE_DATA_BATCH", 4)
        ids = [old(name=str(n)) for n in range(20)]
        self.swept(world, "2020a")
        halves = [shard(0, 2), shard(1, 2)]
        cleared = 0
        for _ in range(20):
            for part in halves:
                cleared += world.tick(ids=part).replanned_zones
        assert cleared == 20
        assert {row(world.engine, job_id).tzdata_version for job_id in ids} == {TZDATA_VERSION}


class TestHistory:
    """Partitions of the history, kept by the ticks."""

    def test_the_days_ahead_are_made_once_a_day(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """The first tick of a day makes them, the others don't look."""
        calls = []
        real = tick_module.ensure_partitions
        monkeypatch.setattr(
            tick_module, "ensure_partitions", lambda *rest, **opt: calls.append(1) or real(*rest, **opt)
        )
        for at in (NOON, after(minutes=1), after(hours=11), after(hours=12), after(hours=13)):
            world.tick(at)
        assert len(calls) == 2

    def test_a_far_day_is_made_by_what_writes_into_it(self, world: World) -> None:
        """A clock that jumped far ahead finds no partition, makes it and goes on."""
        add(world.engine, misfire_policy="latest")
        world.tick()
        far = after(days=200)
        sql(
            world.engine,
            "UPDATE cronless.progress SET value = :day WHERE key = 'history'",
            day=f'"{far.date()}"',
        )
        report = world.tick(far)
        assert (report.claimed, report.errors) == ({"work": 1}, [])
        assert outcomes(world.engine) == ["missed"]

    def test_readers_of_old_days_hold_up_no_tick(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """While somebody reads a day that is to go, its removal gives up after a while and comes back."""
        from cronless_dagster.store import history as history_module

        monkeypatch.setattr(history_module, "PRUNE_SECONDS", 0.5)
        add(world.engine)
        world.tick()
        world.go(after(minutes=1))
        later = after(days=60)
        with world.engine.connect() as reader:
            reader.exec_driver_sql("SELECT count(*) FROM cronless.job_execution")
            report = world.tick(later)
            assert report.errors == []
            assert report.claimed == {"work": 1}
        world.tick(after(days=61))
        days = sql(
            world.engine,
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'job_execution_2026030%'"
            " AND relnamespace = 'cronless'::regnamespace",
        )
        assert days == []
