"""What the tests of the consumer share: messages to send, a look at queues, waiting for something to come true."""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pika

from cronless_dagster.rabbitmq import DEAD
from cronless_dagster.rabbitmq.consumer import Consumer
from cronless_dagster.rabbitmq.messages import JobMessage
from cronless_dagster.rabbitmq.publisher import Delivery, Publisher
from cronless_dagster.rabbitmq.topology import QueueDepth, dead_letter_queue, declare, depths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cronless_dagster.rabbitmq.address import Broker
    from cronless_dagster.rabbitmq.consumer import Received

GUARD_SECONDS = 60.0


def until(true: Callable[[], Any], what: str, seconds: float = GUARD_SECONDS) -> None:
    """Wait until something is true; the limit is a guard against a hang, not a measure."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.02)


@contextmanager
def channel_to(broker: Broker) -> Iterator[Any]:
    """Give a channel on a connection of its own."""
    connection = pika.BlockingConnection(broker.parameters())
    try:
        yield connection.channel()
    finally:
        if connection.is_open:
            connection.close()


def job(job_type: str = "digest") -> JobMessage:
    """Return a message of a job of its own."""
    return JobMessage(uuid4(), uuid4(), job_type, "tenant-1", datetime(2026, 3, 2, 12, tzinfo=UTC))


def send(broker: Broker, messages: Iterable[JobMessage]) -> list[JobMessage]:
    """Publish messages to the queues of their types, which are declared if need be; all are stored."""
    by_type: dict[str, list[JobMessage]] = {}
    for message in messages:
        by_type.setdefault(message.job_type, []).append(message)
    with channel_to(broker) as channel:
        declare(channel, broker.prefix, by_type)
    with Publisher(broker) as publisher:
        for job_type, some in by_type.items():
            assert {one.delivery for one in publisher.publish(job_type, some)} == {Delivery.STORED}
    return [message for some in by_type.values() for message in some]


def send_raw(broker: Broker, queue: str, body: bytes, properties: pika.BasicProperties | None = None) -> None:
    """Publish anything at all to a queue, confirmed."""
    with channel_to(broker) as channel:
        channel.confirm_delivery()
        channel.basic_publish("", queue, body, properties, mandatory=True)


def depth(broker: Broker, job_type: str = "digest") -> QueueDepth:
    """Return how full a queue is."""
    with channel_to(broker) as channel:
        return depths(channel.connection, broker.prefix, [] if job_type == DEAD else [job_type])[job_type]


def dead_letters(broker: Broker, count: int) -> list[tuple[pika.BasicProperties, bytes]]:
    """Take so many dead letters, waiting for them."""
    found: list[tuple[pika.BasicProperties, bytes]] = []
    with channel_to(broker) as channel:

        def one_more() -> bool:
            method, properties, body = channel.basic_get(dead_letter_queue(broker.prefix), auto_ack=True)
            if method is not None:
                found.append((properties, body))
            return len(found) == count

        until(one_more, f"{count} dead letters")
    return found


@contextmanager
def receiving(broker: Broker, *job_types: str, prefetch: int = 10) -> Iterator[Consumer]:
    """Run a consumer that is connected."""
    consumer = Consumer(broker, job_types or ("digest",), prefetch=prefetch)
    consumer.start()
    try:
        until(lambda: consumer.connected, "connected")
        yield consumer
    finally:
        consumer.stop(5)


def take(consumer: Consumer, count: int) -> list[Received]:
    """Take exactly so many messages."""
    found: list[Received] = []
    deadline = time.monotonic() + GUARD_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} messages came"
        found += consumer.take(count - len(found), 1.0)
    return found
