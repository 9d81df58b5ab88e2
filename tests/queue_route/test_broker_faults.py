"""A broker that is restarted, killed, away or short of memory: jobs wait for it, and nobody's tries are used up."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.rabbitmq.private import MEMORY
from cronless_dagster.store.clock import make_virtual
from tests.conftest import VIRTUAL_NOW
from tests.engine.support import sql
from tests.queue_route.job_types import LEASE_SECONDS
from tests.queue_route.support import dropped
from tests.worker.support import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cronless_dagster.engine.report import TickReport
    from cronless_dagster.rabbitmq.private import PrivateBroker
    from tests.queue_route.support import Route


@contextmanager
def ticking(route: Route) -> Iterator[list[TickReport]]:
    """Tick beside the block; its report is there after it."""
    reports: list[TickReport] = []
    thread = threading.Thread(target=lambda: reports.append(route.tick()), daemon=True)
    thread.start()
    yield reports
    thread.join(60)
    assert not thread.is_alive(), "the tick hangs"


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_restarted_under_load(own_route: Route, own_broker: PrivateBroker, end: str) -> None:
    """Of 5,000 messages in a restarted or killed broker none is lost; two workers connect again by themselves."""
    own_route.clean_tick()
    workers = [own_route.worker() for _ in range(2)]
    until(lambda: own_route.consumers() == 2, "both consume")
    go = own_route.directory / "go"
    ids = own_route.add(1_000, seconds=0.005) + own_route.add(4_000, wait_for=str(go))
    assert own_route.clean_tick().published == {"work": 5_000}
    own_route.wait_until_done(500)
    {"stop": own_broker.stop, "kill": own_broker.kill}[end]()
    assert len(own_route.outcomes()) == 1
    assert own_route.statuses()["QUEUED"] > 1_000
    go.touch()
    later = own_route.add(100)
    assert "broker" in str(own_route.tick().errors)
    own_broker.start()
    until(lambda: own_route.tick().errors == [], "what came due meanwhile is published")
    own_route.wait_until_done(5_100)
    until(lambda: own_route.consumers() == 2, "both have connected again")
    for worker in workers:
        worker.stop()
    assert set(own_route.calls().values()) == {1}
    assert own_route.dispatches() == {0}
    assert set(own_route.tries().values()) == {1}
    own_route.assert_all_done_once([*ids, *later])


@pytest.mark.crash
@pytest.mark.slow
def test_killed_in_mid_publish(own_route: Route, own_broker: PrivateBroker) -> None:
    """What it had not confirmed is published again; what it had stored all the same is refused as a copy."""
    own_route.clean_tick()
    # Some seconds go by until it consumes. RabbitMQ 3.10 never again serves a quorum queue if it is killed within a
    # moment of its declaration: each tick says so then, and only deleting that queue helps.
    worker = own_route.worker(concurrency=8)
    until(lambda: own_route.consumers() == 1, "it consumes")
    ids = own_route.add(5_000)
    with ticking(own_route) as reports:
        until(lambda: own_route.depth() > 0 or own_route.outcomes(), "the tick publishes")
        own_broker.kill()
    [error] = reports[0].errors
    assert error.startswith("work: "), error
    assert reports[0].published.get("work", 0) < 5_000
    own_broker.start()
    until(lambda: own_route.tick().errors == [], "the rest is published")
    own_route.wait_until_done(5_000)
    until(lambda: own_route.depth() == 0, "the copies are taken too")
    worker.stop()
    assert own_route.dispatches() == {0}
    assert set(own_route.calls().values()) == {1}
    own_route.assert_all_done_once(ids)


@pytest.mark.slow
def test_away_for_ten_ticks(own_route: Route, own_broker: PrivateBroker) -> None:
    """What is published, what is claimed and what comes due wait for it, and nothing is published twice."""
    make_virtual(own_route.engine, VIRTUAL_NOW)
    own_route.tick(VIRTUAL_NOW)
    published = own_route.add(30)
    own_route.tick(VIRTUAL_NOW)
    claimed = own_route.add(30)
    own_route.kill_at("claimed", "tick")
    due = own_route.add(30)
    own_broker.stop()
    for minute in range(1, 11):
        report = own_route.tick(VIRTUAL_NOW + timedelta(minutes=minute))
        assert [error.partition(":")[0] for error in report.errors] == ["broker"]
        assert (report.claimed, report.published, report.reconciled) == ({}, {}, {})
    assert own_route.statuses() == {"QUEUED": 60, "PENDING": 30}
    assert LEASE_SECONDS < 600
    own_broker.start()
    assert own_route.clean_tick().published == {"work": 60}
    assert own_route.depth() == 90
    worker = own_route.worker()
    own_route.wait_until_done(90)
    assert dropped(worker.stop()) == 0
    assert own_route.dispatches() == {0}
    assert set(own_route.calls().values()) == {1}
    assert set(own_route.tries().values()) == {1}
    own_route.assert_all_done_once([*published, *claimed, *due])


@contextmanager
def memory_alarm(broker: PrivateBroker) -> Iterator[None]:
    """Let the broker be out of memory for the block's length."""
    broker.control("set_vm_memory_high_watermark", "absolute", "1")
    try:
        yield
    finally:
        broker.control("set_vm_memory_high_watermark", "absolute", MEMORY)


@pytest.mark.slow
def test_memory_alarm(own_route: Route, own_broker: PrivateBroker) -> None:
    """The tick gives up in time and says why; workers go on with what is there; afterwards all is done once."""
    before = own_route.add(50)
    own_route.clean_tick()
    with memory_alarm(own_broker):
        ids = own_route.add(3_000)
        with ticking(own_route) as reports:
            pass
        [error] = reports[0].errors
        assert error.startswith("work: "), error
        assert "alarm" in error
        # One claim was made before that was known; what else is due isn't claimed to wait where nobody sees it.
        assert own_route.statuses() == {"QUEUED": 1_050, "PENDING": 2_000}
        worker = own_route.worker()
        own_route.wait_until_done(50)
    # The broker may have taken some of that claim before it blocked the connection, and a worker may have run them.
    assert 2_000 < own_route.clean_tick().published["work"] <= 3_000
    own_route.wait_until_done(3_050)
    worker.stop()
    assert own_route.dispatches() == {0}
    assert set(own_route.calls().values()) == {1}
    assert set(own_route.tries().values()) == {1}
    assert sql(own_route.engine, "SELECT count(*) FROM cronless.job_claim")[0].count == 4
    own_route.assert_all_done_once([*before, *ids])
