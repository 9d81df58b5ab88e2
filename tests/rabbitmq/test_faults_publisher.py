"""The publisher on a broker that is down, killed, frozen or under an alarm: bounded, and nothing STORED is lost."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.rabbitmq.address import Broker
from cronless_dagster.rabbitmq.confirms import Delivery
from cronless_dagster.rabbitmq.errors import BrokerUnavailable
from cronless_dagster.rabbitmq.private import MEMORY
from cronless_dagster.rabbitmq.publisher import WINDOW, Published, Publisher
from tests.rabbitmq.support import counted, drain, nothing_left_open, settle, some

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cronless_dagster.rabbitmq.messages import JobMessage
    from cronless_dagster.rabbitmq.private import PrivateBroker

pytestmark = [pytest.mark.crash, pytest.mark.slow]

PATIENT = 120.0
"""Seconds for what is to succeed on a busy machine."""
AGAIN = (Delivery.UNKNOWN, Delivery.NOT_SENT, Delivery.NACKED)
"""Outcomes after which a message is published again."""


class Hooked(list):
    """Messages; asking for the one at an index calls a function first."""

    def __init__(self, messages: Sequence[JobMessage], index: int, hook: Callable[[], None]) -> None:
        super().__init__(messages)
        self.index, self.hook = index, hook

    def __getitem__(self, index):
        if index == self.index:
            self.hook()
        return super().__getitem__(index)


def test_killed_in_the_middle_of_a_batch(own_broker: PrivateBroker) -> None:
    """What a broker confirmed before kill -9 is there after its restart, and the rest once it is published again."""
    broker = Broker(own_broker.url, publish_seconds=PATIENT)
    pid = own_broker.pid
    assert pid is not None
    page = some(5_000)
    with nothing_left_open(), Publisher(broker) as publisher:
        publisher.declare(["research"])
        settle(own_broker)
        published = publisher.publish("research", Hooked(page, 2_500, lambda: os.kill(pid, signal.SIGKILL)))
        assert publisher.broken is not None
    counts = counted(published)
    assert counts.keys() <= {Delivery.STORED, *AGAIN}
    assert counts[Delivery.STORED] >= 2_500 - WINDOW
    assert 0 < counts[Delivery.UNKNOWN] <= WINDOW
    assert counts[Delivery.NOT_SENT] >= 5_000 - 2_500 - WINDOW

    own_broker.kill()
    own_broker.start()
    missing = [one.message for one in published if one.delivery in AGAIN]
    with Publisher(broker) as publisher:
        publisher.declare(["research"])
        assert counted(publisher.publish("research", missing)) == {Delivery.STORED: len(missing)}
    found = drain(broker)
    stored = {one.message.job_id for one in published if one.delivery is Delivery.STORED}
    assert stored <= found.keys()
    assert found.keys() == {message.job_id for message in page}
    # Only an unknown one may be there twice: it was stored, and the broker died before it said so.
    unknown = {one.message.job_id for one in published if one.delivery is Delivery.UNKNOWN}
    assert {job for job, times in found.items() if times > 1} <= unknown
    assert max(found.values()) <= 2


def test_down_then_up_again(own_broker: PrivateBroker) -> None:
    """A broker that is down refuses the connection at once; a new publisher finds it when it is back."""
    broker = Broker(own_broker.url, publish_seconds=PATIENT)
    with Publisher(broker) as publisher:
        publisher.declare(["research"])
        own_broker.stop()
        assert counted(publisher.publish("research", some(5))) == {Delivery.NOT_SENT: 5}
        assert "320" in str(publisher.broken)
    for _ in range(3):
        with nothing_left_open(), pytest.raises(BrokerUnavailable, match="refused"), Publisher(broker):
            pass
    own_broker.start()
    publish_all(broker, some(5))
    assert drain(broker).total() == 5


class TestAlarm:
    def test_that_lasts(self, own_broker: PrivateBroker) -> None:
        """Blocked by a memory alarm: an end in time, in closing too; once it is over everything goes through."""
        broker = Broker(own_broker.url, publish_seconds=1.0)
        with Publisher(broker) as publisher:
            publisher.declare(["research"])
        page = some(3 * WINDOW)
        own_broker.control("set_vm_memory_high_watermark", "absolute", "1")
        with nothing_left_open(), Publisher(broker) as publisher:
            published = publisher.publish("research", page)
            assert "alarm" in str(publisher.broken)
            assert counted(publisher.publish("research", page)) == {Delivery.NOT_SENT: len(page)}
        assert counted(published).keys() <= {Delivery.STORED, Delivery.UNKNOWN, Delivery.NOT_SENT}
        assert counted(published)[Delivery.UNKNOWN] <= WINDOW
        assert counted(published)[Delivery.NOT_SENT] >= WINDOW

        own_broker.control("set_vm_memory_high_watermark", "absolute", MEMORY)
        assert_all_arrive(broker, published)

    def test_that_ends_in_the_middle(self, own_broker: PrivateBroker) -> None:
        """An alarm that is over before the time is up costs nothing but time."""
        broker = Broker(own_broker.url, publish_seconds=PATIENT, blocked_seconds=PATIENT)
        page = some(2 * WINDOW)
        with Publisher(broker) as publisher:
            publisher.declare(["research"])
            own_broker.control("set_vm_memory_high_watermark", "absolute", "1")
            lift = threading.Thread(
                target=own_broker.control, args=("set_vm_memory_high_watermark", "absolute", MEMORY)
            )
            lift.start()
            published = publisher.publish("research", page)
            lift.join()
            assert counted(published) == {Delivery.STORED: len(page)}
            assert counted(publisher.publish("research", some(1))) == {Delivery.STORED: 1}
        assert drain(broker).total() == len(page) + 1


class TestFrozen:
    def test_in_the_middle_of_a_batch(self, own_broker: PrivateBroker) -> None:
        """SIGSTOP of the broker: an end in time, in closing too; thawed, it takes everything."""
        broker = Broker(own_broker.url, publish_seconds=2.0)
        pid = own_broker.pid
        assert pid is not None
        page = some(5_000)
        with Publisher(broker) as publisher:
            publisher.declare(["research"])
        try:
            with nothing_left_open(), Publisher(broker) as publisher:
                published = publisher.publish(
                    "research", Hooked(page, 1_500, lambda: os.kill(pid, signal.SIGSTOP))
                )
                assert "within 2 s" in str(publisher.broken)
                assert counted(publisher.publish("research", page)) == {Delivery.NOT_SENT: len(page)}
        finally:
            os.kill(pid, signal.SIGCONT)
        counts = counted(published)
        assert counts.keys() <= {Delivery.STORED, *AGAIN}
        assert counts[Delivery.STORED] >= 1_500 - WINDOW
        assert 0 < counts[Delivery.UNKNOWN] <= WINDOW
        assert counts[Delivery.NOT_SENT] >= 5_000 - 1_500 - WINDOW
        assert_all_arrive(broker, published)

    def test_before_the_connection(self, own_broker: PrivateBroker) -> None:
        """A frozen broker's port still takes connections: unavailable, in time."""
        broker = Broker(own_broker.url, connect_seconds=0.5)
        pid = own_broker.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            with nothing_left_open(), pytest.raises(BrokerUnavailable, match="no answer"), Publisher(broker):
                pass
        finally:
            os.kill(pid, signal.SIGCONT)


def publish_all(broker: Broker, messages: Sequence[JobMessage]) -> None:
    """Publish until the broker has all of them."""
    with Publisher(dataclasses.replace(broker, publish_seconds=PATIENT)) as publisher:
        publisher.declare(["research"])
        assert counted(publisher.publish("research", messages)) == {Delivery.STORED: len(messages)}


def assert_all_arrive(broker: Broker, published: Sequence[Published]) -> None:
    """Publish again what isn't known to be stored; then all are there, twice only what was unknown."""
    again = [one.message for one in published if one.delivery in AGAIN]
    publish_all(broker, again)
    found = drain(broker)
    assert found.keys() == {one.message.job_id for one in published}
    unknown = {one.message.job_id for one in published if one.delivery is Delivery.UNKNOWN}
    assert {job for job, times in found.items() if times > 1} <= unknown
    assert max(found.values()) <= 2
