"""Messages that are copies, outdated or unreadable: each job runs once, and its neighbours are done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cronless_dagster.rabbitmq import topology
from cronless_dagster.rabbitmq.messages import JobMessage
from cronless_dagster.rabbitmq.publisher import Delivery, Publisher
from tests.engine.support import sql
from tests.queue_route.support import dropped
from tests.worker.support import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from tests.queue_route.support import Route

JOBS = 300


def messages_of(route: Route, ids: Sequence[UUID]) -> list[JobMessage]:
    """Return the messages of claimed jobs, as their tick publishes them."""
    rows = sql(
        route.engine,
        "SELECT id, claim_id, serving_at FROM cronless.scheduled_job WHERE id = ANY (:ids) ORDER BY id",
        ids=list(ids),
    )
    return [JobMessage(row.id, row.claim_id, "work", "t", row.serving_at) for row in rows]


def publish(route: Route, messages: Sequence[JobMessage]) -> None:
    """Publish messages beside the tick's."""
    with Publisher(route.broker) as publisher:
        assert {one.delivery for one in publisher.publish("work", messages)} == {Delivery.STORED}


def lose_all(route: Route) -> None:
    """Empty the queue, and let a lease pass since the next tick has seen that."""
    with route.channel() as channel:
        channel.queue_purge(topology.queue_name(route.broker.prefix, "work"))
    route.clean_tick()
    route.forward()


def test_delivered_twice(route: Route) -> None:
    """A worker that gets each message twice runs each job once, and counts the copies."""
    ids = route.add(JOBS)
    route.clean_tick()
    publish(route, messages_of(route, ids))
    assert route.depth() == 2 * JOBS
    worker = route.worker()
    route.wait_until_done(JOBS)
    until(lambda: route.depth() == 0, "the copies are taken too")
    assert dropped(worker.stop()) == JOBS
    assert set(route.calls().values()) == {1}
    route.assert_all_done_once(ids)


def test_copies_to_two_workers_at_once(route: Route) -> None:
    """Two workers that race for the two copies of each message: one of them has the job."""
    ids = route.add(JOBS)
    route.kill_at("claimed", "tick")
    workers = [route.worker(concurrency=8) for _ in range(2)]
    until(lambda: route.consumers() == 2, "both consume")
    publish(route, [one for message in messages_of(route, ids) for one in (message, message)])
    route.wait_until_done(JOBS)
    until(lambda: route.depth() == 0, "the copies are taken too")
    counts = [worker.stop() for worker in workers]
    assert dropped(*counts) == JOBS
    assert all(one["done"] + dropped(one) for one in counts)
    assert set(route.calls().values()) == {1}
    route.assert_all_done_once(ids)


def test_an_older_token(route: Route) -> None:
    """A message that turns up after its job was lost, released and claimed anew starts nothing."""
    ids = route.add(JOBS)
    route.clean_tick()
    older = messages_of(route, ids)
    lose_all(route)
    assert route.clean_tick().reconciled == {"again": 1}
    lose_all(route)
    # Lost twice, the claim is released; another is made, and not published yet.
    route.kill_at("claimed", "tick")
    newer = messages_of(route, ids)
    assert {one.token for one in newer}.isdisjoint(one.token for one in older)
    publish(route, older)
    worker = route.worker()
    until(lambda: route.depth() == 0, "the older ones are taken")
    assert route.clean_tick().published == {"work": JOBS}
    route.wait_until_done(JOBS)
    assert dropped(worker.stop()) == JOBS
    assert set(route.calls().values()) == {1}
    assert set(route.tries().values()) == {1}
    route.assert_all_done_once(ids)


def test_poison(route: Route) -> None:
    """What can't be read ends among the dead letters; the job it was meant for is found and published again."""
    ids = route.add(JOBS)
    route.clean_tick()
    queue = topology.queue_name(route.broker.prefix, "work")
    with route.channel() as channel:
        _, properties, body = channel.basic_get(queue, auto_ack=True)
        channel.confirm_delivery()
        for poison in (body[:-1], b"\xff", b"", b'{"version": 2}'):
            channel.basic_publish(topology.exchange_name(route.broker.prefix), "work", poison, properties)
    worker = route.worker()
    route.wait_until_done(JOBS - 1)
    until(lambda: route.clean_tick().queues[topology.DEAD].messages == 4, "four dead letters")
    route.forward()
    assert route.clean_tick().reconciled == {"again": 1}
    route.wait_until_done(JOBS)
    assert worker.stop()["poisoned"] == 4
    assert set(route.calls().values()) == {1}
    assert set(route.tries().values()) == {1}
    route.assert_all_done_once(ids)
