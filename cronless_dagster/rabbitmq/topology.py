"""The queues and exchanges of one prefix: their names, how they are declared, how full they are.

A direct exchange routes each job to the durable queue of its job type; a fanout exchange keeps what nobody could
read in one queue of dead letters. Queues are quorum queues and have no other argument: everything else is a
policy's affair, since an argument can't be changed once the queue exists.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pika.exceptions import AMQPError, ChannelClosedByBroker

from cronless_dagster.rabbitmq import DEAD
from cronless_dagster.rabbitmq.errors import BrokerError, BrokerRefused, BrokerUnavailable, TopologyMismatch
from cronless_dagster.rabbitmq.faults import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

QUORUM = {"x-queue-type": "quorum"}

_ACCESS_REFUSED, _NOT_FOUND, _RESOURCE_LOCKED, _PRECONDITION_FAILED = 403, 404, 405, 406
# The arguments are compared in the order of their names, so this one is reported only where no other differs.
_ONLY_CLASSIC = re.compile(r"inequivalent arg 'x-queue-type'.* current is (none|.*'classic')")


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """How full a queue is.

    Attributes:
        messages: Waiting in the queue; those that a consumer holds unacknowledged aren't counted.
        consumers: Connected to it.
    """

    messages: int
    consumers: int


def exchange_name(prefix: str) -> str:
    """Name of the direct exchange that jobs are published to; the routing key is the job type."""
    return f"{prefix}.jobs"


def dead_letter_exchange(prefix: str) -> str:
    """Name of the fanout exchange that takes what can't be read."""
    return f"{prefix}.dlx"


def dead_letter_queue(prefix: str) -> str:
    """Name of the queue that keeps what can't be read, until a person has looked at it."""
    return f"{prefix}.{DEAD}"


def queue_name(prefix: str, job_type: str) -> str:
    """Name of a job type's queue.

    Raises:
        BrokerError: The name is that of the dead letters' queue.
    """
    if job_type == DEAD:
        raise BrokerError(
            f"The job type {job_type!r} can't take the queue route, since {dead_letter_queue(prefix)!r} is the queue"
            " of dead letters: rename the job type, or give it the route 'run'."
        )
    return f"{prefix}.{job_type}"


def declare(channel: BlockingChannel, prefix: str, job_types: Iterable[str]) -> None:
    """Make sure that the exchanges, the queues of these job types and the dead letters' queue exist and are bound.

    Declaring what exists changes nothing. A classic queue of ours is used as it is; whatever else differs is
    refused. Nothing is ever deleted.

    Args:
        channel: Only its connection is used: a refusal closes the channel it is given on.
        prefix: What the names begin with.
        job_types: The job types of the queue route.

    Raises:
        BrokerError: A job type has the name of the dead letters' queue.
        TopologyMismatch: A queue or an exchange of our name exists with other properties.
        BrokerRefused: The user may not declare or bind.
        BrokerUnavailable: The connection is or gets lost, or something was deleted meanwhile.
    """
    jobs, dead_letters = exchange_name(prefix), dead_letter_exchange(prefix)
    queues = {queue_name(prefix, job_type): job_type for job_type in job_types}
    work = _Throwaway(channel.connection)
    try:
        work.exchange(jobs, "direct")
        work.exchange(dead_letters, "fanout")
        work.queue(dead_letter_queue(prefix))
        work.bind(dead_letter_queue(prefix), dead_letters, "")
        for queue, job_type in queues.items():
            work.queue(queue)
            work.bind(queue, jobs, job_type)
    finally:
        work.close()


def depths(connection: BlockingConnection, prefix: str, job_types: Iterable[str]) -> dict[str, QueueDepth]:
    """Ask how full the queues of these job types are, and that of the dead letters (under `DEAD`).

    A queue that doesn't exist is missing from the answer. Nothing is declared.

    Raises:
        BrokerError: A job type has the name of the dead letters' queue.
        BrokerRefused: The user may not ask, or another connection has a queue for itself.
        BrokerUnavailable: The connection is or gets lost.
    """
    queues = {job_type: queue_name(prefix, job_type) for job_type in job_types}
    queues[DEAD] = dead_letter_queue(prefix)
    work = _Throwaway(connection)
    try:
        found = {key: work.depth(queue) for key, queue in queues.items()}
    finally:
        work.close()
    return {key: depth for key, depth in found.items() if depth is not None}


class _Throwaway:
    """A channel for questions to which the broker answers no by closing it: then the next one opens another."""

    def __init__(self, connection: BlockingConnection) -> None:
        self._connection = connection
        self._channel: BlockingChannel | None = None

    def exchange(self, name: str, kind: str) -> None:
        self._ask(
            f"The exchange {name!r}", lambda channel: channel.exchange_declare(name, kind, durable=True)
        )

    def queue(self, name: str) -> None:
        what = f"The queue {name!r}"
        try:
            self._run(lambda channel: channel.queue_declare(name, durable=True, arguments=QUORUM))
        except ChannelClosedByBroker as error:
            if not (error.reply_code == _PRECONDITION_FAILED and _ONLY_CLASSIC.search(error.reply_text)):
                raise _fault(what, error) from error
            self._ask(what, lambda channel: channel.queue_declare(name, passive=True))

    def bind(self, queue: str, exchange: str, key: str) -> None:
        self._ask(
            f"The binding of the queue {queue!r} to the exchange {exchange!r}",
            lambda channel: channel.queue_bind(queue, exchange, key),
        )

    def depth(self, queue: str) -> QueueDepth | None:
        try:
            answer = self._run(lambda channel: channel.queue_declare(queue, passive=True)).method
        except ChannelClosedByBroker as error:
            if error.reply_code == _NOT_FOUND:
                return None
            raise BrokerRefused(
                f"The depth of the queue {queue!r} can't be had ({reason(error)})."
            ) from error
        return QueueDepth(answer.message_count, answer.consumer_count)

    def close(self) -> None:
        if self._channel is not None and self._channel.is_open:
            with suppress(AMQPError):  # the answers are there already
                self._channel.close()

    def _ask(self, what: str, question: Callable[[BlockingChannel], Any]) -> None:
        try:
            self._run(question)
        except ChannelClosedByBroker as error:
            raise _fault(what, error) from error

    def _run(self, question: Callable[[BlockingChannel], Any]) -> Any:
        try:
            if self._channel is None or not self._channel.is_open:
                self._channel = self._connection.channel()
            return question(self._channel)
        except ChannelClosedByBroker:
            raise
        except AMQPError as error:
            raise BrokerUnavailable(
                f"The connection to RabbitMQ is lost ({reason(error)}): check that it runs, and its alarms."
            ) from error


def _fault(what: str, error: ChannelClosedByBroker) -> BrokerError:
    said = reason(error)
    if error.reply_code == _ACCESS_REFUSED:
        return BrokerRefused(
            f"{what} can't be declared by this user ({said}): give it the permissions to configure, write and read"
            " names that begin with our prefix."
        )
    if error.reply_code in (_PRECONDITION_FAILED, _RESOURCE_LOCKED):
        return TopologyMismatch(
            f"{what} exists with other properties ({said}): remove it once nothing needs it, or choose another"
            " CRONLESS_BROKER_PREFIX; nothing was changed or deleted."
        )
    return BrokerUnavailable(f"{what} can't be declared ({said}): it may work later.")
