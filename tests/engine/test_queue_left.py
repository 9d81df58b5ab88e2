"""What else can be in the way of the queue route's jobs, and of all others': nobody waits for what isn't theirs."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from cronless_dagster.engine.job_types import JobType, JobTypes
from cronless_dagster.rabbitmq.confirms import Delivery
from cronless_dagster.store import database
from tests.engine.queues import FakeBroker, finish, make_due, queue_types, start
from tests.engine.support import NOON, World, after, claims, nothing, outcomes, row, sql, types_of

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cronless_dagster.rabbitmq.messages import JobMessage

LEASE = timedelta(minutes=10)
SECOND = timedelta(seconds=1)


@pytest.fixture
def queues() -> FakeBroker:
    """Queues in memory."""
    return FakeBroker()


@pytest.fixture
def world(virtual: Engine) -> World:
    """The job type "work" on the queue route, a lease of ten minutes."""
    return World(virtual, queue_types(lease=LEASE))


class TestWithoutABroker:
    """Ticks that are given none, since no job type takes the queue route any more."""

    def test_what_was_never_started(self, world: World, queues: FakeBroker) -> None:
        """It goes back after a lease, and a run takes it."""
        make_due(world.engine, 2)
        world.tick(queue=queues)
        world.types = types_of(nothing, lease=LEASE)
        assert world.tick(NOON + LEASE).reconciled == {}
        report = world.tick(NOON + LEASE + SECOND)
        assert (report.reconciled, report.claimed) == ({"released": 1}, {"work": 2})
        world.launch_and_run(report)
        assert outcomes(world.engine) == ["success"] * 2
        assert len(start(world.engine, queues.take(), world.at).stale) == 2

    def test_what_a_worker_died_with(self, world: World, queues: FakeBroker) -> None:
        """It is taken from it, goes back another lease later, and counts against nobody."""
        [job] = make_due(world.engine, 1)
        world.tick(queue=queues)
        start(world.engine, queues.take(), NOON)
        world.types = types_of(nothing, lease=LEASE)
        assert world.tick(NOON + LEASE + SECOND).reconciled == {"split": 1}
        report = world.tick(NOON + 2 * (LEASE + SECOND))
        assert (report.reconciled, report.claimed) == ({"released": 1}, {"work": 1})
        assert row(world.engine, job).crashes == 0

    def test_what_is_on_the_queue_route_still(self, world: World, queues: FakeBroker) -> None:
        """It is left to the ticks that have a broker, whatever it looks like from here."""
        make_due(world.engine, 2)
        world.tick(queue=queues)
        start(world.engine, queues.take(count=1), NOON)
        before = [tuple(one) for one in claims(world.engine)]
        for hour in (1, 9):
            assert world.tick(after(hours=hour)).reconciled == {}
        assert [tuple(one) for one in claims(world.engine)] == before


class TestOneThatIsStuck:
    """A queue, or a claim, that nothing can be done about keeps no other waiting."""

    def test_a_queue_that_answers_nothing(self, world: World, queues: FakeBroker) -> None:
        """It is asked last from the next tick on, so that the others are served at each, and comes back by itself."""
        world.types = queue_types("stuck", "well", lease=LEASE)
        silent: list[JobMessage] = []

        def verdict(message: JobMessage) -> Delivery:
            if message.job_type == "stuck":
                silent.append(message)
            # What comes after has no connection any more.
            return Delivery.UNKNOWN if silent else Delivery.STORED

        queues.verdict = verdict
        make_due(world.engine, 1, NOON - SECOND, job_type="stuck")
        make_due(world.engine, 2, job_type="well")
        assert world.tick(queue=queues).published == {}
        for minute in (1, 2):
            silent.clear()
            make_due(world.engine, 1, after(minutes=minute), job_type="well")
            report = world.tick(after(minutes=minute), queue=queues)
            assert report.published == {"well": 3 if minute == 1 else 1}
            assert report.unconfirmed == ["stuck"]
            assert len(silent) == 1
        queues.verdict = lambda _: Delivery.STORED
        make_due(world.engine, 1, after(minutes=3), job_type="stuck")
        report = world.tick(after(minutes=3), queue=queues)
        assert (report.published, report.unconfirmed) == ({"stuck": 2}, [])

    def test_more_than_one_of_them(self, world: World, queues: FakeBroker) -> None:
        """The others are served all the same, and so is the first of them that answers again."""
        world.types = queue_types("x", "y", "well", lease=LEASE)
        stuck, silent = {"x", "y"}, [False]

        def verdict(message: JobMessage) -> Delivery:
            silent[0] = silent[0] or message.job_type in stuck
            return Delivery.UNKNOWN if silent[0] else Delivery.STORED

        queues.verdict = verdict
        published = []
        for minute in range(9):
            silent[0] = False
            for name in ("x", "y", "well"):
                make_due(world.engine, 1, after(minutes=minute), job_type=name)
            if minute == 6:
                stuck.remove("y")
            published.append(world.tick(after(minutes=minute), queue=queues).published)
        assert all("well" in one for one in published[3:])
        assert any("y" in one for one in published[6:8])
        assert not any("x" in one for one in published)

    def test_a_slow_broker(self, world: World, queues: FakeBroker) -> None:
        """What waits to be published takes a part of the tick's time, and runs are claimed in the rest."""
        work = JobType(name="work", handler=nothing, route="queue", batch_size=1)
        world.types = JobTypes((work, JobType(name="runs", handler=nothing)))
        make_due(world.engine, 40)
        world.tick(queue=queues)
        sql(
            world.engine,
            "UPDATE cronless.job_claim SET state = 'CLAIMED', submitted_at = NULL, handed_over_at = NULL,"
            " published_to = NULL",
        )
        make_due(world.engine, 1, job_type="runs")

        def slow(_message: JobMessage) -> Delivery:
            time.sleep(0.2)
            return Delivery.STORED

        queues.verdict = slow
        report = world.tick(after(minutes=1), queue=queues, budget_seconds=3.0)
        assert 0 < report.published["work"] < 40
        assert report.claimed == {"runs": 1}

    def test_a_claim_that_somebody_has_locked(
        self, world: World, queues: FakeBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is told of, and the others are published and claimed."""
        begin = vars(database.transaction)["__wrapped__"]
        monkeypatch.setattr(begin, "__kwdefaults__", {**begin.__kwdefaults__, "lock_timeout_ms": 50})
        world.types = queue_types("a", "b", lease=LEASE)
        make_due(world.engine, 1, job_type="a")
        make_due(world.engine, 1, job_type="b")
        queues.verdict = lambda _: Delivery.NACKED
        world.tick(queue=queues)
        queues.verdict = lambda _: Delivery.STORED
        with world.engine.connect() as person:
            person.execute(text("SELECT 1 FROM cronless.job_claim WHERE job_type = 'a' FOR UPDATE"))
            report = world.tick(after(minutes=1), queue=queues)
            person.rollback()
        assert report.published == {"b": 1}
        assert len(report.errors) == 1
        assert "claim" in report.errors[0]
        assert world.tick(after(minutes=2), queue=queues).published == {"a": 1}


def test_rows_past_their_grace_take_turns_too(world: World, queues: FakeBroker) -> None:
    """A type with nothing but missed occurrences has its batches decided one by one, between the others' claims."""
    world.types = queue_types("late", "well", lease=LEASE, batch_size=1)
    make_due(world.engine, 5, NOON - timedelta(hours=1), job_type="late", grace_seconds=0)
    sql(world.engine, "UPDATE cronless.scheduled_job SET misfire_policy = 'skip'")
    make_due(world.engine, 3, job_type="well")
    decided: list[int] = []

    def verdict(_message: JobMessage) -> Delivery:
        [found] = sql(
            world.engine,
            "SELECT count(*) FROM cronless.scheduled_job WHERE job_type = 'late' AND next_run_at > :now",
            now=NOON,
        )
        decided.append(found.count)
        return Delivery.STORED

    queues.verdict = verdict
    report = world.tick(queue=queues)
    assert (report.published, report.misfired) == ({"well": 3}, 5)
    assert decided == [1, 2, 3]


def test_one_that_is_alone_and_passed_over(world: World, queues: FakeBroker) -> None:
    """While no worker is idle others overtake it, many leases long: it comes again and again, and always alone."""
    [job] = make_due(world.engine, 1)
    world.tick(queue=queues)
    start(world.engine, queues.take(), NOON)
    for number in range(1, 7):
        at = NOON + number * (LEASE + SECOND)
        make_due(world.engine, 1, at)
        world.tick(at, queue=queues)
        others = [one for one in queues.take() if one.job_id != job]
        finish(world.engine, start(world.engine, others, at).jobs, at)
    sent = [one.alone for one in queues.sent if one.job_id == job]
    assert sent == [False] + [True] * (len(sent) - 1)
    assert len(sent) >= 4
    assert row(world.engine, job).status == "QUEUED"
    [message] = [one for one in queues.sent[::-1] if one.job_id == job][:1]
    assert len(finish(world.engine, start(world.engine, [message], world.at).jobs, world.at)) == 1


def test_a_manual_run_whose_worker_died(world: World, queues: FakeBroker) -> None:
    """However often that happens, the planned occurrence keeps its tries."""
    [job] = make_due(world.engine, 1, after(hours=9))
    sql(world.engine, "UPDATE cronless.scheduled_job SET trigger_requested_at = :now, attempt = 1", now=NOON)
    world.tick(queue=queues)
    for number in (1, 2):
        start(world.engine, queues.take(), world.at)
        world.tick(NOON + number * (LEASE + SECOND), queue=queues)
    jobs = start(world.engine, queues.take(), world.at).jobs
    assert [one.tries for one in jobs] == [1]
    assert len(finish(world.engine, jobs, world.at)) == 1
    found = row(world.engine, job)
    assert (found.attempt, found.next_run_at, found.crashes) == (1, after(hours=9), 0)
