"""Time limits for pika's blocking calls, which have none of their own.

A blocking call waits inside pika's loop for the broker's answer, for as long as heartbeats come. Nothing public
ends such a wait, neither a timer nor a close from another thread. pika's own limits (heartbeat, blocked
connection) do it by ending the stream from a timer of the inner connection, and so does this.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from pika.exceptions import AMQPError

from cronless_dagster.rabbitmq.errors import BrokerUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pika.adapters.blocking_connection import BlockingConnection

logger = logging.getLogger(__name__)


@contextmanager
def limited(connection: BlockingConnection, seconds: float, doing: str) -> Iterator[None]:
    """End the connection if the block's calls take longer than so many seconds.

    Args:
        connection: Used by this thread alone.
        seconds: From now on.
        doing: What is being waited for, for the message.

    Raises:
        BrokerUnavailable: By pika's calls inside the block, when the time is up.
    """
    inner = connection._impl  # noqa: SLF001 - see the module's docstring
    late = BrokerUnavailable(
        f"the broker didn't answer within {seconds:g} s ({doing}): check its state and alarms"
    )
    timer = inner._adapter_call_later(max(seconds, 0.0), partial(_end, connection, late))  # noqa: SLF001
    try:
        yield
    finally:
        inner._adapter_remove_timeout(timer)  # noqa: SLF001


def end_from_elsewhere(connection: BlockingConnection, why: str) -> None:
    """End a connection that another thread may be waiting in; it gets `BrokerUnavailable`."""
    with suppress(AMQPError, OSError):
        connection._impl._adapter_add_callback_threadsafe(  # noqa: SLF001 - see the module's docstring
            partial(_end, connection, BrokerUnavailable(why))
        )


def close_within(connection: BlockingConnection, seconds: float) -> None:
    """Close a connection politely if the broker answers in time, and without its answer if not."""
    if connection.is_closed:
        return
    try:
        with limited(connection, seconds, "closing"):
            connection.close()
    except Exception as error:  # noqa: BLE001 - also pika's own confusion must not keep a socket open
        logger.debug("the connection was not closed politely: %s", error)
        _end(connection, BrokerUnavailable("given up"))
        with suppress(Exception):
            connection.process_data_events(0)


def _end(connection: BlockingConnection, error: Exception) -> None:
    if not connection.is_closed:
        connection._impl._terminate_stream(error)  # noqa: SLF001 - see the module's docstring
