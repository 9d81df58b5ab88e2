"""What the tests of the publisher share: messages, what a queue holds, and what a process has open."""

from __future__ import annotations

import gc
import threading
import time
import uuid
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pika
import psutil

from cronless_dagster.rabbitmq.messages import JobMessage, decode
from cronless_dagster.rabbitmq.topology import queue_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cronless_dagster.rabbitmq.address import Broker
    from cronless_dagster.rabbitmq.confirms import Delivery
    from cronless_dagster.rabbitmq.private import PrivateBroker
    from cronless_dagster.rabbitmq.publisher import Published

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def some(count: int, job_type: str = "research") -> list[JobMessage]:
    """Make messages of jobs that differ in their ids."""
    return [JobMessage(uuid.uuid4(), uuid.uuid4(), job_type, f"tenant-{i % 7}", NOON) for i in range(count)]


def counted(published: Sequence[Published]) -> Counter[Delivery]:
    """Count the outcomes."""
    return Counter(one.delivery for one in published)


def drain(broker: Broker, job_type: str = "research") -> Counter[uuid.UUID]:
    """Take everything out of a queue, and say how often each job was in it."""
    queue = queue_name(broker.prefix, job_type)
    jobs: Counter[uuid.UUID] = Counter()
    connection = pika.BlockingConnection(broker.parameters())
    try:
        channel = connection.channel()
        left = channel.queue_declare(queue, passive=True).method.message_count
        if left:
            for _, properties, body in channel.consume(queue, auto_ack=True):
                jobs[decode(body, properties).job_id] += 1
                left -= 1
                if not left:
                    break
            left_over = channel.cancel()  # number of messages that came beyond the count
            assert left_over == 0
        assert channel.basic_get(queue)[0] is None
    finally:
        connection.close()
    return jobs


def settle(broker: PrivateBroker) -> None:
    """Have a broker write down which quorum queues it has, as it does by itself within some three minutes.

    RabbitMQ 3.10 keeps their names in files that are written late. After a kill before that, a new queue comes back
    empty, and never confirms anything again, whatever it had confirmed.
    """
    broker.control("eval", "[dets:sync(Table) || Table <- dets:all()].")


@contextmanager
def nothing_left_open() -> Iterator[None]:
    """Let a block end with as many file descriptors as it began with, and with no other threads."""
    gc.collect()  # what earlier tests left may go at any moment, and must not be counted
    process = psutil.Process()
    descriptors, threads = process.num_fds(), set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - threads:
        thread.join(10)  # the look-up of a host's name ends by itself
    assert set(threading.enumerate()) <= threads
    # The other end of a connection may live in this process too, and takes a moment to notice.
    deadline = time.monotonic() + 10
    while process.num_fds() > descriptors:
        assert time.monotonic() < deadline, (
            f"{process.num_fds()} descriptors are open, {descriptors} were before"
        )
        time.sleep(0.05)
