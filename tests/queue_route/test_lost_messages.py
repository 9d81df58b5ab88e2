"""A queue that somebody deletes with messages in it, under its consumers: those are found and published again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cronless_dagster.rabbitmq import topology
from tests.queue_route.support import dropped
from tests.worker.support import until

if TYPE_CHECKING:
    from tests.queue_route.support import Route

JOBS = 200


def test_deleted_queue(route: Route) -> None:
    """Consumers go on with a new queue; what was lost is published once more, once, after a lease."""
    go = route.directory / "go"
    ids = route.add(JOBS, wait_for=str(go))
    route.clean_tick()
    workers = [route.worker(concurrency=2) for _ in range(2)]
    until(lambda: route.statuses() == {"QUEUED": JOBS - 4, "RUNNING": 4}, "two jobs run in each")
    with route.channel() as channel:
        channel.queue_delete(topology.queue_name(route.broker.prefix, "work"))
    # A later occurrence finds its way by itself.
    later = route.add(1)
    report = route.clean_tick()
    assert (report.reconciled, report.published) == ({}, {"work": 1})
    go.touch()
    until(lambda: later[0] in route.tries() and "RUNNING" not in route.statuses(), "what was left is done")
    assert route.clean_tick().reconciled == {}
    route.forward()
    lost = route.statuses()["QUEUED"]
    assert lost >= JOBS - 20
    report = route.clean_tick()
    assert (report.reconciled, report.published) == ({"again": 1}, {"work": lost})
    route.wait_until_done(JOBS + 1)
    assert dropped(*(worker.stop() for worker in workers)) == 0
    assert set(route.calls().values()) == {1}
    assert set(route.tries().values()) == {1}
    route.assert_all_done_once([*ids, *later])
    assert route.dispatches() == {0, 1}
