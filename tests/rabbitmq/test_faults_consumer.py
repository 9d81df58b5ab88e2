"""The consumer while its broker is stopped, killed, frozen or under an alarm."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pika
import pytest

from cronless_dagster.rabbitmq.address import Broker
from cronless_dagster.rabbitmq.consumer import Consumer
from cronless_dagster.rabbitmq.errors import BrokerRefused
from cronless_dagster.rabbitmq.private import MEMORY, PrivateBroker
from cronless_dagster.rabbitmq.topology import queue_name
from tests.brokers import DIRECTORY_VARIABLE, running
from tests.rabbitmq.receiving import (
    channel_to,
    dead_letters,
    depth,
    job,
    receiving,
    send,
    send_raw,
    take,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.rabbitmq]


@pytest.fixture(scope="module")
def module_server() -> Iterator[PrivateBroker]:
    """A broker for the tests of this module alone, which may do with it what they like."""
    with running(Path(os.environ[DIRECTORY_VARIABLE]) / f"consumed-{uuid4().hex[:8]}") as server:
        yield server


@pytest.fixture
def server(module_server: PrivateBroker) -> PrivateBroker:
    """The module's broker, running whatever the test before did to it."""
    module_server.start()
    return module_server


def to(server: PrivateBroker, **limits: float) -> Broker:
    """Return the address of a broker under a fresh prefix, with limits that a test can wait for."""
    short = {"connect_seconds": 2.0, "heartbeat_seconds": 1, "blocked_seconds": 2.0, "publish_seconds": 10.0}
    return Broker(server.url, prefix=f"test-{uuid4().hex[:8]}", **{**short, **limits})


@contextmanager
def frozen(server: PrivateBroker) -> Iterator[None]:
    """Stop the broker's process without ending it."""
    pid = server.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.crash
class TestRestarts:
    def test_a_killed_broker_comes_back(self, server):
        """What was unsettled comes again from the restarted broker, what had been acknowledged does not."""
        broker = to(server, heartbeat_seconds=30)
        sent = send(broker, [job() for _ in range(200)])
        with receiving(broker, prefetch=100) as consumer:
            items = take(consumer, 100)
            consumer.acknowledge(items[:50])
            until(lambda: depth(broker).messages == 50, "the acknowledgements have arrived")
            # A quorum queue is not safe from a kill before the broker has noted its existence, seconds later.
            time.sleep(5)
            server.kill()
            until(lambda: not consumer.connected, "the loss is noticed")
            consumer.acknowledge(items[50:])
            assert consumer.held == 0
            server.start()
            again = []
            while len(again) < 150:
                some = take(consumer, 1) + consumer.take(500, 0)
                consumer.acknowledge(some)
                again += [item.message for item in some]
            assert sorted(message.job_id for message in again) == sorted(
                message.job_id for message in sent if message not in {item.message for item in items[:50]}
            )
            assert consumer.counts.late >= 50
            until(lambda: consumer.held == 0, "settled")
        assert depth(broker).messages == 0

    def test_a_broker_that_is_down_at_first(self, server):
        """The consumer keeps trying, and the messages arrive once it is there."""
        broker = to(server)
        sent = send(broker, [job()])
        server.stop()
        consumer = Consumer(broker, ["digest"], prefetch=1)
        consumer.start()
        assert consumer.take(1, 0.5) == []
        assert (consumer.connected, consumer.fatal) == (False, None)
        server.start()
        assert [item.message for item in take(consumer, 1)] == sent
        consumer.stop(5)

    def test_stopping_while_the_broker_is_down(self, server):
        """The stop interrupts the pause between two attempts."""
        broker = to(server)
        with receiving(broker) as consumer:
            server.kill()
            until(lambda: not consumer.connected, "the loss is noticed")
            consumer.stop(5)
            assert not consumer._thread.is_alive()


class TestFrozen:
    def test_missing_heartbeats_end_the_connection(self, server):
        """A broker that stops answering is noticed; when it goes on, everything unsettled comes again."""
        broker = to(server)
        sent = send(broker, [job() for _ in range(3)])
        with receiving(broker) as consumer:
            old = take(consumer, 3)
            with frozen(server):
                until(lambda: not consumer.connected, "the loss is noticed")
                assert consumer.held == 0
                consumer.acknowledge(old)
            new = take(consumer, 3)
            assert {item.message for item in new} == set(sent)
            consumer.acknowledge(new)
            until(lambda: consumer.held == 0, "settled")
        assert depth(broker).messages == 0

    @pytest.mark.parametrize("busy", [False, True])
    def test_stopping_is_bounded(self, server, busy):
        """A broker that doesn't answer can't keep the consumer, neither idle nor in the middle of a question."""
        broker = to(server, heartbeat_seconds=60, publish_seconds=60.0)
        with receiving(broker) as consumer, frozen(server):
            if busy:
                consumer.pause()  # a question to the broker, which won't answer
                time.sleep(0.2)
            consumer.stop(0.5)
            assert not consumer._thread.is_alive()

    def test_a_question_that_is_not_answered_ends_the_connection(self, server):
        """Canceling a consumer has a limit of its own, far below that of missing heartbeats."""
        broker = to(server, heartbeat_seconds=600, publish_seconds=0.5)
        with receiving(broker) as consumer:
            with frozen(server):
                consumer.pause()
                until(lambda: not consumer.connected, "the loss is noticed")
            consumer.resume()
            until(lambda: consumer.connected, "connected again")


class TestAlarm:
    def test_a_memory_alarm_stops_neither_receiving_nor_acknowledging(self, server):
        """Only publishing is blocked: a message that can't be read waits for the end of the alarm, unlost."""
        broker = to(server)
        sent = send(broker, [job() for _ in range(5)])
        send_raw(broker, queue_name(broker.prefix, "digest"), b"poison")
        sent += send(broker, [job() for _ in range(200)])
        server.control("set_vm_memory_high_watermark", "absolute", "1")
        with receiving(broker, prefetch=3) as consumer:
            consumer._dead_letters.again_seconds = 5.0
            done = set()
            while len(done) < len(sent):
                items = take(consumer, 1)
                consumer.acknowledge(items)
                done |= {item.message for item in items}
            assert done == set(sent)
            assert consumer.counts.poisoned == 0
            assert consumer.counts.reconnects >= 1
            server.control("set_vm_memory_high_watermark", "absolute", MEMORY)
            ((_, body),) = dead_letters(broker, 1)
            assert body == b"poison"


@pytest.mark.parametrize(
    ("configure", "read"),
    [("^$", ".*"), (".*", r"\.(jobs|dlx)$")],
    ids=["may not declare", "may not consume"],
)
def test_a_missing_permission_is_final(server, configure, read):
    """It is said in one sentence, by whichever step it forbids, and not tried again."""
    name = f"user-{uuid4().hex[:8]}"
    server.control("add_user", name, "secret")
    server.control("set_permissions", name, configure, ".*", read)
    broker = to(server)
    broker = replace(broker, url=broker.url.replace("guest:guest", f"{name}:secret"))
    consumer = Consumer(broker, ["digest"], prefetch=1)
    consumer.start()
    with pytest.raises(BrokerRefused, match=r"ACCESS_REFUSED.*permissions") as caught:
        consumer.take(1, 60)
    assert "secret" not in str(caught.value)
    assert not consumer.connected
    consumer.stop(5)
    assert not consumer._thread.is_alive()


def test_a_message_that_pika_cannot_decode_does_not_end_the_consumer(server, monkeypatch):
    """A time header beyond all years breaks pika's reading; once that message is gone, all others arrive."""
    broker = to(server)
    queue = queue_name(broker.prefix, "digest")
    send(broker, [job()])
    with monkeypatch.context() as patch:
        patch.setattr("pika.data.calendar.timegm", lambda _: 1_770_000_000_000)
        send_raw(broker, queue, b"", pika.BasicProperties(headers={"at": datetime(2026, 3, 2, tzinfo=UTC)}))
    states: list[str] = []
    consumer = Consumer(broker, ["digest"], prefetch=5, on_state=states.append)
    consumer.start()
    until(lambda: sum(state.startswith("disconnected") for state in states) >= 2, "tried again")
    assert consumer.fatal is None
    with channel_to(broker) as channel:
        until(
            lambda: channel.queue_purge(queue).method.message_count == 2,
            "both are back in the queue, and gone",
        )
    (last,) = send(broker, [job()])
    until(lambda: last in {item.message for item in consumer.take(10, 1)}, "the others arrive")
    consumer.stop(5)


def test_an_unacknowledged_message_may_time_out(server):
    """The broker closes the channel of a message held for too long; the consumer connects again and has it anew."""
    for name, milliseconds in {"consumer_timeout": 1_000, "channel_tick_interval": 500}.items():
        server.control("eval", f"application:set_env(rabbit, {name}, {milliseconds}).")
    broker = to(server, heartbeat_seconds=30)
    sent = send(broker, [job()])
    with receiving(broker) as consumer:
        (old,) = take(consumer, 1)
        (new,) = take(consumer, 1)
        assert [old.message, new.message] == sent * 2
        consumer.acknowledge([new])
        until(lambda: consumer.held == 0, "settled")
        assert consumer.counts.reconnects == 1
    assert depth(broker).messages == 0
    server.stop()  # and the limits with it
