"""One life of a consumer's connection: declare, consume, settle, until it ends.

All of it runs on one thread, but for `wake` and `abandon`. Callbacks only take note and the work is done between
them, since pika dispatches nothing while one of its blocking calls waits.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import pika
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import AMQPError

from cronless_dagster.rabbitmq import topology
from cronless_dagster.rabbitmq.dead_letters import Letter
from cronless_dagster.rabbitmq.deadlines import close_within, end_from_elsewhere, limited
from cronless_dagster.rabbitmq.errors import BrokerUnavailable, PoisonMessage
from cronless_dagster.rabbitmq.faults import explain
from cronless_dagster.rabbitmq.messages import decode
from cronless_dagster.scheduling.errors import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from threading import Event

    from pika.adapters.blocking_connection import BlockingChannel
    from pika.frame import Method
    from pika.spec import Basic

    from cronless_dagster.rabbitmq.address import Broker
    from cronless_dagster.rabbitmq.dead_letters import DeadLetters
    from cronless_dagster.rabbitmq.deliveries import Deliveries, Settlement
    from cronless_dagster.rabbitmq.messages import JobMessage

logger = logging.getLogger(__name__)

IDLE_SECONDS = 1.0
"""The longest wait for something to happen; a wake-up, a message and a loss end it at once."""
LETTERS_AT_ONCE = 20
"""Dead letters stored before settlements have their turn again: each waits for the broker's disk."""


class Session:
    """A connection, its channel and the consumers on it: one generation of deliveries."""

    def __init__(self, broker: Broker, deliveries: Deliveries, dead_letters: DeadLetters) -> None:
        """Connect; nothing is declared and consumed yet.

        Raises:
            BrokerUnavailable: The broker is down, or doesn't answer in time.
            BrokerRefused: It doesn't let us in.
        """
        self._broker, self._deliveries, self._dead_letters = broker, deliveries, dead_letters
        self._consumers: dict[str, str] = {}  # job type to consumer tag
        self._unread: deque[Letter] = deque()
        self._queue_lost = False
        self._prefetch = 0
        with self._explained():
            self._connection = pika.BlockingConnection(broker.parameters())

    def run(self, job_types: Sequence[str], on_ready: Callable[[], None], stopping: Event) -> None:
        """Consume until told to stop; settlements asked for until then are sent.

        Args:
            job_types: Whose queues.
            on_ready: Called once everything is declared and consumed.
            stopping: Looked at after each `wake`.

        Raises:
            BrokerUnavailable: The connection or the channel is lost.
            BrokerRefused: A permission is missing.
            TopologyMismatch: A queue or an exchange of our name is another one.
        """
        with self._explained():
            with self._limited("declaring the queues"):
                channel = self._connection.channel()
                topology.declare(channel, self._broker.prefix, job_types)
                channel.add_on_cancel_callback(self._on_cancel)
            generation = self._deliveries.begin()
            self._consume(channel, job_types, generation)
            on_ready()
            while True:
                # Before the settlements are collected: those asked for until then are to be sent.
                ending = stopping.is_set()
                settlements = self._deliveries.outgoing()
                # After the settlements were collected and before they are sent: what was given back after a pause
                # must not come back to the consumer that the pause is about to cancel.
                self._consume(channel, job_types, generation)
                _send(channel, settlements)
                self._bury(channel, job_types)
                if ending:
                    return
                urgent = self._unread and self._dead_letters.ready
                self._connection.process_data_events(time_limit=0 if urgent else IDLE_SECONDS)
                if channel.is_closed:
                    raise channel._closing_reason or BrokerUnavailable("the channel was closed")  # noqa: SLF001

    def wake(self) -> None:
        """Make `run` look at what is asked of it; called by any thread."""
        with suppress(AMQPError):
            self._connection.add_callback_threadsafe(_nothing)

    def abandon(self, why: str) -> None:
        """End the connection whatever `run` or `close` waits for; called by any thread."""
        end_from_elsewhere(self._connection, why)

    def close(self, seconds: float) -> None:
        """Close the connection; the broker gives what is unsettled to others."""
        close_within(self._connection, seconds)

    def _consume(self, channel: BlockingChannel, job_types: Sequence[str], generation: int) -> None:
        """Bring the consumers in line with what is wanted: none while paused, else one a queue."""
        paused, prefetch = self._deliveries.paused, self._deliveries.prefetch
        if paused or prefetch != self._prefetch:
            with self._limited("canceling the consumers"):
                while self._consumers:
                    channel.basic_cancel(self._consumers.popitem()[1])
                if prefetch != self._prefetch:
                    # A consumer keeps the one that it began with.
                    channel.basic_qos(prefetch_count=prefetch)
                    self._prefetch = prefetch
        if paused:
            return
        # To the broker it will be a new consumer, to which what an earlier one still holds doesn't count.
        missing = [
            job_type
            for job_type in job_types
            if job_type not in self._consumers and self._deliveries.held_of(job_type) < prefetch
        ]
        if not missing:
            return
        with self._limited("consuming"):
            if self._queue_lost:
                topology.declare(channel, self._broker.prefix, job_types)
                self._queue_lost = False
            for job_type in missing:
                queue = topology.queue_name(self._broker.prefix, job_type)
                receive = partial(self._on_message, job_type, generation)
                self._consumers[job_type] = channel.basic_consume(queue, receive)

    def _on_message(
        self,
        job_type: str,
        generation: int,
        _channel: BlockingChannel,
        method: Basic.Deliver,
        properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        tag = int(method.delivery_tag)
        try:
            message = _read(body, properties, job_type)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it must not come back for ever
            text = str(error) if isinstance(error, PoisonMessage) else repr(error)
            queue = topology.queue_name(self._broker.prefix, job_type)
            self._deliveries.hold(tag, job_type)
            self._unread.append(Letter(tag, text, queue, properties, body))
        else:
            self._deliveries.deliver(generation, tag, message)

    def _on_cancel(self, frame: Method[Basic.Cancel]) -> None:
        """Note that the broker ended a consumer, since its queue was deleted or moved."""
        self._queue_lost = True
        ended = frame.method.consumer_tag
        logger.warning("the broker ended a consumer, its queue may have been deleted: declaring it again")
        self._consumers = {job_type: tag for job_type, tag in self._consumers.items() if tag != ended}

    def _bury(self, channel: BlockingChannel, job_types: Sequence[str]) -> None:
        """Copy what can't be read to the dead letters, then acknowledge it; what fails is held and tried again."""
        for _ in range(LETTERS_AT_ONCE):
            if not (self._unread and self._dead_letters.ready):
                return
            letter = self._unread[0]
            try:
                self._dead_letters.store(self._connection, letter)
            except BrokerUnavailable as error:
                if not self._connection.is_open:
                    raise
                logger.warning("%s", error)
                with self._limited("declaring the dead letters"):
                    topology.declare(channel, self._broker.prefix, job_types)
                return
            logger.warning("a message of %s went to the dead letters: %s", letter.queue, letter.reason)
            channel.basic_ack(letter.tag)
            self._deliveries.settled(letter.tag)
            self._unread.popleft()

    def _limited(self, doing: str) -> AbstractContextManager[None]:
        return limited(self._connection, self._broker.publish_seconds, doing)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (AMQPError, AMQPConnectorException, OSError) as error:
            raise explain(error, self._broker) from error


def _send(channel: BlockingChannel, settlements: Iterable[Settlement]) -> None:
    """Write settlements into the connection's buffer; whatever uses the connection next sends them all at once.

    The blocking channel's own methods would send each by itself, at twice the cost for a message.
    """
    inner = channel._impl  # noqa: SLF001 - see above
    for tag, acknowledged in settlements:
        if acknowledged:
            inner.basic_ack(tag)
        else:
            inner.basic_nack(tag, requeue=True)


def _read(body: bytes, properties: pika.BasicProperties, job_type: str) -> JobMessage:
    message = decode(body, properties)
    if message.job_type != job_type:
        raise PoisonMessage(f"the message is of the job type {shown(message.job_type)}, not of this queue's")
    return message


def _nothing() -> None:
    """Be called back: that alone ends the wait."""
