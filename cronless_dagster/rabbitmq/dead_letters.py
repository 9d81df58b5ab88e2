"""Messages that can't be read are copied to the dead letters, with the reason, before they are acknowledged."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pika
from pika.exceptions import ChannelClosed, ChannelWrongStateError, NackError, UnroutableError

from cronless_dagster.rabbitmq.deadlines import limited
from cronless_dagster.rabbitmq.errors import BrokerUnavailable

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

ERROR_HEADER = "x-cronless-error"
QUEUE_HEADER = "x-cronless-queue"
BYTES_HEADER = "x-cronless-body-bytes"
"""The length of the original body, where only its beginning is kept."""
ORIGINAL = "x-cronless-original-"
"""Put before the name of a header that is kept as text, since AMQP or pika couldn't take it as it was.

The broker itself reads some of those: a `CC` that is no list of routing keys would be refused.
"""
AGAIN_SECONDS = 15.0
LARGEST_BODY = 65_536
_LARGEST_VALUE = 2_000
_LARGEST_HEADERS = 16_000  # characters of up to four bytes; all properties must fit into a frame of 128 KiB
_LONGEST_NAME = 120
_PERSISTENT = 2


class Letter(NamedTuple):
    """A message that can't be read: its delivery tag, why, where it came from, and what it was."""

    tag: int
    reason: str
    queue: str
    properties: pika.BasicProperties
    body: bytes


class DeadLetters:
    """Publishes letters to the exchange of the dead letters, each confirmed, on a channel of its own.

    It outlives connections, so that after a failure there is a pause: while its memory alarm is on, the broker
    reads nothing from a connection that publishes, acknowledgements included, until the connection is given up.
    """

    def __init__(self, exchange: str, seconds: float) -> None:
        """Prepare; a channel is opened by the first letter, which seldom comes.

        Args:
            exchange: Where to.
            seconds: How long the broker has to confirm one.
        """
        self._exchange, self._seconds = exchange, seconds
        self.again_seconds = AGAIN_SECONDS
        self._channel: BlockingChannel | None = None
        self._again_at = 0.0
        self.stored = 0

    @property
    def ready(self) -> bool:
        """Whether a letter may be tried now."""
        return time.monotonic() >= self._again_at

    def store(self, connection: BlockingConnection, letter: Letter) -> None:
        """Publish one letter and wait until the broker has it safe.

        Args:
            connection: Used by this thread alone.
            letter: What to publish.

        Raises:
            BrokerUnavailable: It hasn't; the letter must not be acknowledged.
        """
        body, properties = copy_of(letter)
        self._again_at = time.monotonic() + self.again_seconds
        with limited(connection, self._seconds, "confirming a dead letter"):
            try:
                channel = self._channel_on(connection)
                channel.basic_publish(self._exchange, letter.queue, body, properties, mandatory=True)
            except (ChannelClosed, ChannelWrongStateError, NackError, UnroutableError) as error:
                raise BrokerUnavailable(
                    f"a message of {letter.queue} that can't be read could not be copied to {self._exchange}"
                    f" ({error}): check that exchange and its queue"
                ) from error
        self._again_at = 0.0
        self.stored += 1

    def _channel_on(self, connection: BlockingConnection) -> BlockingChannel:
        if self._channel is None or self._channel.is_closed or self._channel.connection is not connection:
            self._channel = connection.channel()
            self._channel.confirm_delivery()
        return self._channel


def copy_of(letter: Letter) -> tuple[bytes, pika.BasicProperties]:
    """Return what is published for a letter: its body, shortened if huge, its properties, and the reason.

    Left out are the expiration, with which the copy would vanish, and the user id, which the broker would refuse
    from somebody else.
    """
    headers: dict[str, Any] = {ERROR_HEADER: letter.reason[:_LARGEST_VALUE], QUEUE_HEADER: letter.queue}
    if len(letter.body) > LARGEST_BODY:
        headers[BYTES_HEADER] = str(len(letter.body))
    headers.update(_readable(letter.properties.headers or {}))
    original = letter.properties
    properties = pika.BasicProperties(
        content_type=original.content_type,
        content_encoding=original.content_encoding,
        headers=headers,
        delivery_mode=_PERSISTENT,
        correlation_id=original.correlation_id,
        reply_to=original.reply_to,
        message_id=original.message_id,
        timestamp=original.timestamp,
        type=original.type,
        app_id=original.app_id,
    )
    return letter.body[:LARGEST_BODY], properties


def _readable(headers: dict[Any, Any]) -> dict[str, Any]:
    """Return an original's headers as pika can write them, as many as fit into a frame beside the rest."""
    kept: dict[str, Any] = {}
    room = _LARGEST_HEADERS
    for name, value in headers.items():
        as_it_is = (
            isinstance(name, str) and isinstance(value, str | bool | int) and len(name) <= _LONGEST_NAME
        )
        key = name if as_it_is else ORIGINAL + str(name)[:_LONGEST_NAME]
        if key in (ERROR_HEADER, QUEUE_HEADER, BYTES_HEADER):
            key = ORIGINAL + key
        shown = value if isinstance(value, bool | int) else str(value)[:_LARGEST_VALUE]
        room -= len(key) + len(str(shown))
        if room < 0:
            break
        kept[key] = shown
    return kept
