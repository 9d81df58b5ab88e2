"""Publishing with the broker's word for each message, pipelined, and bounded in time whatever the broker does.

Waiting for a confirm after each message would be some twenty times slower, and publishing without confirms loses
messages silently when a broker dies.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pika.exceptions import AMQPError
from pika.spec import Basic

from cronless_dagster.rabbitmq import topology
from cronless_dagster.rabbitmq.confirms import Confirms, Delivery
from cronless_dagster.rabbitmq.connection import CLOSE_SECONDS, DrivenConnection
from cronless_dagster.rabbitmq.errors import BrokerError, BrokerUnavailable
from cronless_dagster.rabbitmq.messages import JobMessage, encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cronless_dagster.rabbitmq.address import Broker
    from cronless_dagster.rabbitmq.topology import QueueDepth

WINDOW = 1_000
"""The most messages that wait for their answer at a time: more gain no speed, and all are `UNKNOWN` should the
broker die."""
_REFILL_AT = WINDOW // 2

_NOT_WRITABLE = (BrokerError, AMQPError, AssertionError, AttributeError, TypeError, ValueError, struct.error)
"""What our encoding, and pika's, raise for values that don't fit; nothing has been written then."""


class Published(NamedTuple):
    """A message, what became of it, and why it isn't `STORED`; None where it is."""

    message: JobMessage
    delivery: Delivery
    error: str | None


class Publisher:
    """A connection to declare, to ask for depths and to publish, open inside a `with` block; for one thread.

    Entering it connects, which raises:
        BrokerUnavailable: The broker is down, unreachable or too slow.
        BrokerRefused: It doesn't let this user in.
        BrokerError: A certificate or key can't be read.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._exchange = topology.exchange_name(broker.prefix)
        self._confirms = Confirms(0)
        self._broken: str | None = None

    def __enter__(self) -> Self:
        self._connection = DrivenConnection(self._broker)
        self._connection.limit(self._broker.connect_seconds)
        try:
            self._channel = self._connection.channel()
            self._channel.raw.add_on_return_callback(self._on_return)
            self._channel.confirm_delivery(self._on_answer)
        except BaseException:
            self._connection.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # A broker that left something unanswered gets no time for a goodbye.
        self._connection.close(seconds=0.0 if self._broken else CLOSE_SECONDS)

    @property
    def broken(self) -> str | None:
        """Why nothing can be published any more, or None; only a new publisher mends it."""
        return self._broken

    def declare(self, job_types: Sequence[str]) -> None:
        """Declare the exchanges and the queues of these job types, within `broker.publish_seconds`.

        Raises:
            TopologyMismatch: One exists with other properties.
            BrokerRefused: The user may not.
            BrokerUnavailable: The connection is lost, or the broker too slow.
        """
        with self._asking():
            topology.declare(self._channel, self._broker.prefix, job_types)

    def depths(self, job_types: Sequence[str]) -> dict[str, QueueDepth]:
        """Ask how much waits in the queues of these job types, within `broker.publish_seconds`.

        Returns:
            By job type, and by `topology.DEAD` the dead letters; a queue that doesn't exist is left out.

        Raises:
            BrokerUnavailable: The connection is lost, or the broker too slow.
        """
        with self._asking():
            return topology.depths(self._connection, self._broker.prefix, job_types)

    def publish(
        self, job_type: str, messages: Sequence[JobMessage], *, seconds: float | None = None
    ) -> list[Published]:
        """Publish messages to the queue of a job type, and wait for the broker's answers.

        Args:
            job_type: The type of all of them.
            messages: Encoded one by one on their way out, so that a page of any length takes little memory.
            seconds: How long it may take in all; None: `broker.publish_seconds`.

        Returns:
            Each message, in the order given, with exactly one outcome. What is neither `STORED` nor `UNROUTABLE`
            may be published again with the same id and token, but for `INVALID`.
        """
        self._confirms = Confirms(len(messages), self._confirms.last_tag)
        why = self._broken
        if why is None:
            try:
                why = self._send(
                    job_type, messages, self._broker.publish_seconds if seconds is None else seconds
                )
            except BaseException:
                self._broken = "Publishing was interrupted: make a new publisher."
                raise
        outcomes = self._confirms.finish(why or "")
        return [Published(message, *outcome) for message, outcome in zip(messages, outcomes, strict=True)]

    def _send(self, job_type: str, messages: Sequence[JobMessage], seconds: float) -> str | None:
        """Write and wait for the answers; return why some are missing, or None."""
        if seconds <= 0:
            return "No time was left to publish it."
        self._connection.limit(seconds)
        written = 0
        try:
            self._connection.check()
            while written < len(messages) or self._confirms.waiting:
                self._wait_for_room(_REFILL_AT if written < len(messages) else 0)
                while written < len(messages) and self._confirms.waiting < WINDOW:
                    self._write(job_type, written, messages[written])
                    written += 1
        except BrokerError as error:
            self._broken = str(error)
        return self._broken

    def _wait_for_room(self, most: int) -> None:
        """Wait until at most so many messages wait for their answer, and the broker takes more if there is room.

        Raises:
            BrokerError: It won't come to that.
        """

        def has_room() -> bool:
            return self._confirms.waiting <= most and not (most and self._connection.blocked)

        in_time = self._connection.wait(lambda: not self._channel.is_open or has_room())
        if not self._channel.is_open:
            self._connection.check()
            raise BrokerUnavailable(
                f"RabbitMQ refused to take messages for the exchange {self._exchange!r} ({self._channel.closed}):"
                " declare it, and check the user's permissions."
            )
        if not in_time:
            raise self._connection.slow()

    def _write(self, job_type: str, index: int, message: JobMessage) -> None:
        try:
            body, properties = encode(message)
            if message.job_type != job_type:
                raise ValueError(f"a message of {message.job_type!r} can't go to the queue of {job_type!r}")
            self._channel.raw.basic_publish(self._exchange, job_type, body, properties, mandatory=True)
        except _NOT_WRITABLE as error:
            self._confirms.invalid(index, str(error) or type(error).__name__)
        else:
            self._confirms.sent(index, properties.message_id)

    def _on_answer(self, frame: Any) -> None:
        answer = frame.method
        self._confirms.answered(
            answer.delivery_tag, multiple=answer.multiple, stored=isinstance(answer, Basic.Ack)
        )

    def _on_return(self, _channel: Any, method: Any, properties: Any, _body: bytes) -> None:
        why = f"No queue takes the routing key {method.routing_key!r} ({method.reply_code} {method.reply_text})."
        self._confirms.returned(properties.message_id, why)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        if self._broken is not None:
            raise BrokerUnavailable(self._broken)
        self._connection.limit(self._broker.publish_seconds)
        try:
            yield
        except BrokerUnavailable as error:
            self._broken = str(error)
            raise
