"""The queue route of a tick: what is claimed is published, once, however the broker and other ticks behave."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pika
import pytest

from cronless_dagster.engine import queueing
from cronless_dagster.engine import tick as tick_module
from cronless_dagster.engine.job_types import JobType, JobTypes
from cronless_dagster.rabbitmq.address import Broker
from cronless_dagster.rabbitmq.confirms import Delivery
from cronless_dagster.rabbitmq.errors import BrokerUnavailable, TopologyMismatch
from cronless_dagster.rabbitmq.messages import JobMessage, decode
from cronless_dagster.rabbitmq.publisher import Publisher
from cronless_dagster.rabbitmq.topology import queue_name
from cronless_dagster.scheduling.limits import Limits
from cronless_dagster.scheduling.shards import from_prefix
from cronless_dagster.store import jobs
from cronless_dagster.store.database import transaction
from tests.engine.queues import FakeBroker, counters, make_due, queue_types, work_off
from tests.engine.support import NOON, World, after, claim, claims, history, nothing, outcomes, row, sql

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from sqlalchemy import Engine

    from cronless_dagster.rabbitmq.publisher import Published

PATIENCE = queueing.HAND_OVER_PATIENCE


@pytest.fixture
def queues() -> FakeBroker:
    """Queues in memory."""
    return FakeBroker()


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of three messages."""
    monkeypatch.setattr(queueing, "PAGE_SIZE", 3)


@pytest.fixture
def world(virtual: Engine) -> World:
    """The job type "work" on the queue route."""
    return World(virtual, queue_types())


def refuse(*what: UUID, how: Delivery = Delivery.NACKED) -> Any:
    """Return a verdict that lets some jobs' messages fail."""
    return lambda message: how if message.job_id in what else Delivery.STORED


def in_queue(broker: Broker, job_type: str = "work") -> list[JobMessage]:
    """Take all messages out of a real queue."""
    found = []
    connection = pika.BlockingConnection(broker.parameters())
    channel = connection.channel()
    while True:
        method, properties, body = channel.basic_get(queue_name(broker.prefix, job_type), auto_ack=True)
        if method is None:
            connection.close()
            return found
        found.append(decode(body, properties))


class TestWithABroker:
    """With RabbitMQ itself."""

    def test_what_is_due_is_published(self, world: World, broker: Broker) -> None:
        """Each job once, with its claim as token; the claim is dispatched, and the next tick has nothing to do."""
        ids = make_due(world.engine, 5)
        report = world.tick(queue=lambda: Publisher(broker))
        assert (report.errors, report.claimed, report.published) == ([], {"work": 5}, {"work": 5})
        assert report.queues["work"].messages == 0  # as it stood before this tick published
        assert report.hand_over == []
        made = claim(world.engine)
        assert (made.state, made.route, made.dispatches, made.submitted_at) == ("SUBMITTED", "queue", 0, NOON)
        report = world.tick(after(minutes=1), queue=lambda: Publisher(broker))
        assert (report.errors, report.published, report.queues["work"].messages) == ([], {}, 5)
        found = in_queue(broker)
        assert sorted(one.job_id for one in found) == ids
        assert {(one.token, one.job_type, one.tenant_id, one.scheduled_for, one.alone) for one in found} == {
            (made.id, "work", "t", NOON, False)
        }

    def test_two_ticks_at_once(self, world: World, broker: Broker) -> None:
        """Between them each message is published once, though both see the same claims."""
        world.types = queue_types(batch_size=20, limits=Limits(open_claims=None))
        ids = make_due(world.engine, 200)
        barrier = threading.Barrier(2)

        def tick_together() -> Any:
            barrier.wait(30)
            return world.tick(queue=lambda: Publisher(broker))

        with ThreadPoolExecutor(2) as pool:
            reports = [one.result(60) for one in [pool.submit(tick_together) for _ in range(2)]]
        assert [report.errors for report in reports] == [[], []]
        assert sum(report.published.get("work", 0) for report in reports) == 200
        assert sorted(one.job_id for one in in_queue(broker)) == ids

    def test_a_queue_deleted_in_mid_tick(self, world: World, broker: Broker) -> None:
        """Its messages come back unroutable: it is declared again, and they are published once more."""
        ids = make_due(world.engine, 3)

        class Deleting(Publisher):
            deleted = False

            def publish(self, job_type: str, messages: Sequence[JobMessage], **more: Any) -> list[Published]:
                if not self.deleted:
                    self.deleted = True
                    connection = pika.BlockingConnection(broker.parameters())
                    connection.channel().queue_delete(queue_name(broker.prefix, job_type))
                    connection.close()
                return super().publish(job_type, messages, **more)

        report = world.tick(queue=lambda: Deleting(broker))
        assert (report.errors, report.published) == ([], {"work": 3})
        assert sorted(one.job_id for one in in_queue(broker)) == ids
        assert claim(world.engine).state == "SUBMITTED"

    def test_another_queue_of_that_name(self, world: World, broker: Broker) -> None:
        """It is refused with the difference named; nothing is claimed for it, and the others go on."""
        connection = pika.BlockingConnection(broker.parameters())
        connection.channel().queue_declare(
            queue_name(broker.prefix, "work"), durable=True, arguments={"x-max-length": 5}
        )
        connection.close()
        others = (
            JobType(name="plain", handler=nothing),
            JobType(name="other", handler=nothing, route="queue"),
        )
        world.types = JobTypes((*queue_types(), *others))
        for name in ("work", "plain", "other"):
            make_due(world.engine, 1, job_type=name)
        report = world.tick(queue=lambda: Publisher(broker))
        [error] = report.errors
        assert error.startswith("work: ")
        assert "x-max-length" in error or "x-queue-type" in error
        assert report.claimed == {"plain": 1, "other": 1}
        assert report.published == {"other": 1}
        world.types = queue_types()
        [error] = world.tick(after(minutes=1), queue=lambda: Publisher(broker)).errors
        assert error.startswith("broker: The queue ")

    def test_no_broker_at_the_address(self, world: World) -> None:
        """One error that says so, without credentials; what takes the run route goes on."""
        world.types = JobTypes(
            (JobType(name="work", handler=nothing, route="queue"), JobType(name="plain", handler=nothing))
        )
        make_due(world.engine, 1)
        make_due(world.engine, 1, job_type="plain")
        report = world.tick(
            queue=lambda: Publisher(Broker("amqp://guest:secret@127.0.0.1:1/", connect_seconds=2))
        )
        [error] = report.errors
        assert error.startswith("broker: ")
        assert "secret" not in error
        assert report.claimed == {"plain": 1}
        assert len(report.hand_over) == 1


class TestOutbox:
    """The claim is committed first; what isn't confirmed is published again, with the same id and token."""

    def test_committed_before_it_is_published(self, world: World, queues: FakeBroker) -> None:
        """While messages are on their way the rows are claimed for all to see, and no transaction is open."""
        make_due(world.engine, 2)
        seen = []

        def look(message: JobMessage) -> Delivery:
            seen.append((row(world.engine, message.job_id).status, claim(world.engine).state))
            [(opened,)] = sql(
                world.engine,
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND state LIKE 'idle in transaction%'",
            )
            seen.append(opened)
            return Delivery.STORED

        queues.verdict = look
        world.tick(queue=queues)
        assert seen == [("QUEUED", "CLAIMED"), 0] * 2

    def test_what_is_not_confirmed_is_published_again(
        self, world: World, queues: FakeBroker, small_pages: None
    ) -> None:
        """The next tick goes on after the last confirmed page, with the same token."""
        ids = make_due(world.engine, 8)
        queues.verdict = refuse(ids[7], how=Delivery.UNKNOWN)
        report = world.tick(queue=queues)
        [error] = report.errors
        assert "1 of 2 messages are not confirmed" in error
        left = claim(world.engine)
        assert (left.state, left.published_to, left.handed_over_at) == ("CLAIMED", ids[5], None)
        queues.verdict = lambda _: Delivery.STORED
        report = world.tick(after(seconds=1), queue=queues)
        assert (report.errors, report.published, report.claimed) == ([], {"work": 2}, {})
        assert queues.sent_ids == [*ids[:7], *ids[6:]]
        assert {message.token for message in queues.sent} == {left.id}
        assert (claim(world.engine).state, claim(world.engine).dispatches) == ("SUBMITTED", 0)
        assert work_off(world.engine, queues, after(seconds=2)) == set(ids)
        assert outcomes(world.engine) == ["success"] * 8

    def test_another_tick_meanwhile(self, world: World, queues: FakeBroker, small_pages: None) -> None:
        """It leaves the claim to the one that is at it, for as long as that one comes further."""
        ids = make_due(world.engine, 7)
        reports = []

        def interrupt(message: JobMessage) -> Delivery:
            if message.job_id in (ids[0], ids[4]):
                reports.append(world.tick(NOON + PATIENCE / 2, queue=beside))
            return Delivery.STORED

        beside = FakeBroker()
        queues.verdict = interrupt
        world.tick(queue=queues)
        assert [report.published for report in reports] == [{}, {}]
        assert (beside.sent, queues.sent_ids) == ([], ids)

    def test_a_dispatcher_that_died(self, world: World, queues: FakeBroker, small_pages: None) -> None:
        """Nobody waits for it longer than the patience; what it had confirmed isn't sent again."""
        ids = make_due(world.engine, 5)

        def die(message: JobMessage) -> Delivery:
            if message.job_id == ids[4]:
                raise KeyboardInterrupt
            return Delivery.STORED

        queues.verdict = die
        with pytest.raises(KeyboardInterrupt):
            world.tick(queue=queues)
        queues.verdict = lambda _: Delivery.STORED
        assert world.tick(NOON + PATIENCE - timedelta(seconds=1), queue=queues).published == {}
        assert world.tick(NOON + PATIENCE, queue=queues).published == {"work": 2}
        assert claim(world.engine).state == "SUBMITTED"
        assert queues.sent_ids == [*ids[:4], *ids[3:]]

    def test_one_that_comes_back_too_late(self, world: World, queues: FakeBroker, small_pages: None) -> None:
        """Taken over meanwhile, it publishes at most the page it was at, and spoils nothing."""
        ids = make_due(world.engine, 7)

        def freeze(message: JobMessage) -> Delivery:
            if message.job_id == ids[0]:
                assert world.tick(NOON + PATIENCE, queue=other).published == {"work": 7}
            return Delivery.STORED

        other = FakeBroker()
        queues.verdict = freeze
        report = world.tick(queue=queues)
        assert (report.errors, queues.sent_ids) == ([], ids[:3])
        assert claim(world.engine).state == "SUBMITTED"

    def test_the_time_is_up(
        self, world: World, queues: FakeBroker, small_pages: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No further page begins; the next tick goes on at once, before it claims anything."""
        world.types = queue_types(batch_size=7)
        ids = make_due(world.engine, 7)
        make_due(world.engine, 2, after(seconds=1))
        clock = [0.0]
        monkeypatch.setattr(tick_module.time, "monotonic", lambda: clock[0])

        def slow(_: JobMessage) -> Delivery:
            clock[0] += 4
            return Delivery.STORED

        queues.verdict = slow
        report = world.tick(after(seconds=1), queue=queues, budget_seconds=20)
        assert (report.errors, queues.sent_ids) == ([], ids[:6])
        assert "work" in report.left
        queues.verdict = lambda _: Delivery.STORED
        report = world.tick(after(seconds=2), queue=queues, budget_seconds=20)
        assert queues.sent_ids[6] == ids[6]
        assert (report.claimed, report.published) == ({"work": 2}, {"work": 3})


class TestRefusals:
    """What the broker says of a message, and what follows."""

    def test_unroutable_once(self, world: World, queues: FakeBroker) -> None:
        """The queue is declared again and those messages, no others, are published once more."""
        ids = make_due(world.engine, 3)
        refused = []

        def once(message: JobMessage) -> Delivery:
            if message.job_id != ids[0] and message.job_id not in refused:
                refused.append(message.job_id)
                return Delivery.UNROUTABLE
            return Delivery.STORED

        queues.verdict = once
        report = world.tick(queue=queues)
        assert (report.errors, report.published) == ([], {"work": 3})
        assert queues.declared == [["work"], ["work"]]
        assert queues.sent_ids == ids

    def test_unroutable_for_good(self, world: World, queues: FakeBroker) -> None:
        """Told with the reason; the claim waits, and no more is claimed for that queue."""
        world.types = queue_types(batch_size=2)
        ids = make_due(world.engine, 4)
        queues.verdict = refuse(*ids, how=Delivery.UNROUTABLE)
        for minute in range(3):
            report = world.tick(after(minutes=minute), queue=queues)
            assert "2 of 2 messages are not confirmed" in report.errors[0]
            assert "unroutable: so it is" in report.errors[0]
        assert [one.state for one in claims(world.engine)] == ["CLAIMED"]

    @pytest.mark.parametrize("error", [BrokerUnavailable("it is away"), TopologyMismatch("it is another")])
    def test_a_queue_that_cannot_be_declared_again(
        self, world: World, queues: FakeBroker, monkeypatch: pytest.MonkeyPatch, error: Exception
    ) -> None:
        """The reason is told, and the claim is free for the next tick at once."""
        make_due(world.engine, 1)
        queues.verdict = lambda _: Delivery.UNROUTABLE
        real = queues.declare

        def declare(job_types: Sequence[str]) -> None:
            if queues.declared:
                raise error
            real(job_types)

        monkeypatch.setattr(queues, "declare", declare)
        report = world.tick(queue=queues)
        [told] = report.errors
        assert str(error) in told
        left = claim(world.engine)
        assert (left.state, left.handed_over_at) == ("CLAIMED", None)

    def test_a_full_queue_holds_up_no_other(self, virtual: Engine, queues: FakeBroker) -> None:
        """Its claim waits, older than all others; the other type's are claimed and published as ever."""
        world = World(virtual, queue_types("full", "free"))
        make_due(world.engine, 2, job_type="full")
        queues.verdict = lambda message: Delivery.NACKED if message.job_type == "full" else Delivery.STORED
        for minute in range(1, 4):
            make_due(world.engine, 2, after(minutes=minute), job_type="free")
            make_due(world.engine, 2, after(minutes=minute), job_type="full")
            report = world.tick(after(minutes=minute), queue=queues)
            assert (report.published, len(report.errors)) == ({"free": 2}, 1)
            assert "full" in report.left or minute == 1
        assert [one.job_type for one in claims(world.engine) if one.state == "CLAIMED"] == ["full"]

    @pytest.mark.parametrize("how", [Delivery.NOT_SENT, Delivery.UNKNOWN])
    def test_a_broken_connection_ends_the_publishing(
        self, virtual: Engine, queues: FakeBroker, how: Delivery
    ) -> None:
        """No more is claimed for any queue; run types were claimed before."""
        types = [
            JobType(name="a", handler=nothing, route="queue", batch_size=1),
            JobType(name="b", handler=nothing, route="queue", batch_size=1),
            JobType(name="plain", handler=nothing),
        ]
        world = World(virtual, JobTypes(tuple(types)))
        make_due(world.engine, 3, job_type="a")
        make_due(world.engine, 3, after(seconds=1), job_type="b")
        make_due(world.engine, 1, after(seconds=2), job_type="plain")
        queues.verdict = lambda _: how
        report = world.tick(after(minutes=1), queue=queues)
        assert report.claimed == {"plain": 1, "a": 1}
        assert set(report.left) == {"a", "b"}
        assert len(report.errors) == 1
        # The next tick tries another queue first, and has no better luck. From then on nothing is claimed for queues.
        assert world.tick(after(minutes=2), queue=queues).claimed == {"b": 1}
        assert world.tick(after(minutes=3), queue=queues).claimed == {}
        assert sorted(one.job_type for one in claims(world.engine)) == ["a", "b", "plain"]

    def test_a_message_that_cannot_be_written(self, world: World, queues: FakeBroker) -> None:
        """That row alone is INVALID, with the reason; its neighbours are published, and run."""
        ids = make_due(world.engine, 3)
        queues.verdict = refuse(ids[1], how=Delivery.INVALID)
        report = world.tick(queue=queues)
        assert (report.errors, report.published) == ([], {"work": 2})
        found = row(world.engine, ids[1])
        assert (found.status, found.claim_id) == ("INVALID", None)
        assert found.invalid_reason == "its message can't be written: so it is"
        assert (claim(world.engine).state, claim(world.engine).job_count) == ("SUBMITTED", 2)
        work_off(world.engine, queues, after(seconds=1))
        assert claim(world.engine).state == "CLOSED"

    def test_none_that_can_be_written(self, world: World, queues: FakeBroker) -> None:
        """The claim holds nothing, and the next tick closes it."""
        ids = make_due(world.engine, 2)
        queues.verdict = refuse(*ids, how=Delivery.INVALID)
        world.tick(queue=queues)
        assert world.tick(after(minutes=1), queue=queues).reconciled == {"closed": 1}
        assert claim(world.engine).state == "CLOSED"

    def test_a_broker_away_for_long(self, world: World, queues: FakeBroker) -> None:
        """Nothing is claimed for it, nothing is rescued, nobody's counters move; then all goes on."""
        ids = make_due(world.engine, 3)
        world.tick(queue=queues)
        queues.away = BrokerUnavailable("RabbitMQ is away")
        make_due(world.engine, 2, after(minutes=1))
        lost = queues.take()
        for minute in range(1, 60, 7):
            report = world.tick(after(minutes=minute), queue=queues)
            assert (report.errors, report.claimed) == (["broker: RabbitMQ is away"], {})
            assert (report.reconciled, report.hand_over) == ({}, [])
        assert {row(world.engine, one).status for one in ids} == {"QUEUED"}
        assert [one.dispatches for one in claims(world.engine)] == [0]
        assert counters(world.engine) == {(0, 0, 0)}
        queues.away = None
        queues.queues["work"] += lost
        assert world.tick(after(hours=1), queue=queues).published == {"work": 2}
        assert len(work_off(world.engine, queues, after(hours=1))) == 5


class TestClaiming:
    """What is claimed for queues, in which order, within which limits."""

    def test_types_with_backlogs_take_turns(
        self, virtual: Engine, queues: FakeBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One claim of each in turn, so that the time that there is serves both."""
        world = World(virtual, queue_types("a", "b", batch_size=2))
        make_due(world.engine, 20, job_type="a")
        make_due(world.engine, 20, after(seconds=1), job_type="b")
        clock = [0.0]
        monkeypatch.setattr(tick_module.time, "monotonic", lambda: clock[0])

        def slow(_: JobMessage) -> Delivery:
            clock[0] += 1.7
            return Delivery.STORED

        queues.verdict = slow
        report = world.tick(after(minutes=1), queue=queues, budget_seconds=20)
        assert "".join(message.job_type for message in queues.sent) == "aabbaabbaabb"
        assert set(report.left) == {"a", "b"}

    def test_all_that_is_due_at_one_tick(self, world: World, queues: FakeBroker) -> None:
        """A queue holds what its workers get to later: a tick makes as many claims as there are batches due."""
        world.types = queue_types(batch_size=10)
        ids = make_due(world.engine, 95)
        report = world.tick(queue=queues)
        assert (report.claims, report.published) == (10, {"work": 95})
        assert sorted(queues.sent_ids) == ids

    @pytest.mark.parametrize(
        ("limits", "most", "why"),
        [
            (Limits(open_claims=2), 20, "2 claims"),
            (Limits(open_claims=None, in_flight=25), 25, "25"),
            (Limits(open_claims=None, per_tenant=15), 15, "15 jobs in flight"),
        ],
    )
    def test_limits_hold(self, world: World, queues: FakeBroker, limits: Limits, most: int, why: str) -> None:
        """Of claims, of rows and of a tenant's rows; what is done makes room at the next tick."""
        world.types = queue_types(batch_size=10, limits=limits)
        make_due(world.engine, 60)
        report = world.tick(queue=queues)
        assert report.published == {"work": most}
        assert why in report.left["work"]
        assert world.tick(after(seconds=1), queue=queues).published == {}
        work_off(world.engine, queues, after(seconds=2))
        assert world.tick(after(seconds=3), queue=queues).published == {"work": most}

    def test_the_most_claims_of_a_tick(self, world: World, queues: FakeBroker) -> None:
        """As the type says, where it says so."""
        world.types = queue_types(batch_size=10, claims_per_tick=3)
        make_due(world.engine, 60)
        assert world.tick(queue=queues).published == {"work": 30}

    def test_misfires_are_decided(self, world: World, queues: FakeBroker) -> None:
        """What is past its grace is planned anew or served late as its policy says; only what is served is sent."""
        skipped = make_due(world.engine, 2, after(hours=-3), schedule="15 * * * *", grace_seconds=60)
        sql(
            world.engine,
            "UPDATE cronless.scheduled_job SET misfire_policy = 'skip', plan_count = plan_count + 1",
        )
        served = make_due(world.engine, 1, after(hours=-3), schedule="30 * * * *", grace_seconds=60)
        report = world.tick(queue=queues)
        assert (report.errors, report.misfired) == ([], 3)
        assert [(one.job_id, one.scheduled_for) for one in queues.sent] == [(served[0], after(minutes=-30))]
        assert {row(world.engine, one).next_run_at for one in skipped} == {after(minutes=15)}
        assert {line.outcome for line in history(world.engine)} == {"missed"}

    def test_what_a_person_asked_for(self, world: World, queues: FakeBroker) -> None:
        """It is published beside what is due, as an occurrence of its own."""
        [asked] = make_due(world.engine, 1, after(hours=5))
        [due] = make_due(world.engine, 1)
        with transaction(world.engine) as connection:
            jobs.trigger(connection, asked)
        report = world.tick(after(seconds=1), queue=queues)
        assert report.published == {"work": 2}
        assert {one.job_id: one.scheduled_for for one in queues.sent} == {due: NOON, asked: NOON}
        work_off(world.engine, queues, after(seconds=2))
        assert row(world.engine, asked).next_run_at == after(hours=5)
        assert [line.manual for line in history(world.engine, asked)] == [True]

    def test_each_shard_sends_its_own(self, world: World, queues: FakeBroker) -> None:
        """What another shard claimed and hasn't sent is left to it, whoever sees it."""
        ids = make_due(world.engine, 40)
        low, high = from_prefix("0"), from_prefix("8")
        mine = [one for one in ids if low.contains(one)]
        others = [one for one in ids if high.contains(one)]
        [extra] = sql(
            world.engine,
            "INSERT INTO cronless.scheduled_job (id, tenant_id, job_type, schedule, next_run_at, scheduled_for)"
            " VALUES ('80000000-0000-4000-8000-000000000000', 't', 'work', '@daily', :at, :at) RETURNING id",
            at=NOON,
        )
        others = sorted([*others, extra.id])
        queues.verdict = lambda _: Delivery.UNKNOWN
        world.tick(ids=high, queue=queues)
        queues.verdict = lambda _: Delivery.STORED
        world.tick(after(seconds=1), ids=low, queue=queues)
        assert sorted(queues.sent_ids) == mine
        report = world.tick(after(seconds=2), ids=high, queue=queues)
        assert report.published == {"work": len(others)}

    def test_beside_runs(self, virtual: Engine, queues: FakeBroker) -> None:
        """Each type goes its own way; a queue's claim is no run's to hand over."""
        types = (JobType(name="work", handler=nothing, route="queue"), JobType(name="plain", handler=nothing))
        world = World(virtual, JobTypes(types))
        make_due(world.engine, 2)
        make_due(world.engine, 3, job_type="plain")
        report = world.tick(queue=queues)
        assert report.claimed == {"plain": 3, "work": 2}
        assert [one.job_type for one in report.hand_over] == ["plain"]
        assert report.published == {"work": 2}

    def test_without_an_executor(self, world: World, queues: FakeBroker) -> None:
        """A dispatcher that knows no Dagster serves the queues, and nothing else."""
        world.types = JobTypes(
            (JobType(name="work", handler=nothing, route="queue"), JobType(name="plain", handler=nothing))
        )
        make_due(world.engine, 2)
        make_due(world.engine, 3, job_type="plain")
        assert world.tick(queue=queues, runs=None).claimed == {"work": 2}

    def test_without_a_broker(self, world: World) -> None:
        """Such types take the run route."""
        make_due(world.engine, 2)
        [hand_over] = world.tick().hand_over
        assert (hand_over.job_type, claim(world.engine).route) == ("work", "run")


class TestDepths:
    """How the queues stand, and since when one has been empty."""

    def test_noted_when_it_changes(self, world: World, queues: FakeBroker) -> None:
        """Empty since the tick that first saw it so; a tick that sees the same writes nothing."""

        def noted() -> tuple[Any, Any]:
            [found] = sql(
                world.engine, "SELECT value, updated_at FROM cronless.progress WHERE key = 'queue:work'"
            )
            return found.value, found.updated_at

        world.tick(queue=queues)
        assert noted() == (NOON.isoformat(), NOON)
        world.tick(after(minutes=1), queue=queues)
        assert noted() == (NOON.isoformat(), NOON)
        make_due(world.engine, 1, after(minutes=2))
        world.tick(after(minutes=2), queue=queues)
        world.tick(after(minutes=3), queue=queues)
        assert noted() == (None, after(minutes=3))
        world.tick(after(minutes=4), queue=queues)
        assert noted() == (None, after(minutes=3))
        queues.take()
        world.tick(after(minutes=5), queue=queues)
        assert noted() == (after(minutes=5).isoformat(), after(minutes=5))

    def test_in_the_report(self, world: World, queues: FakeBroker) -> None:
        """What waits is told in the summary, ready for JSON as all the rest."""
        make_due(world.engine, 3)
        world.tick(queue=queues)
        report = world.tick(after(minutes=1), queue=queues)
        assert "work queue: 3 waiting, 0 consumers" in report.summary()
        assert report.as_dict()["queues"]["work"] == {"messages": 3, "consumers": 0}
