"""A connection to the broker that the calling thread drives, so that no step takes longer than it may.

pika's own blocking connection waits without a limit for a broker that is frozen or blocked by an alarm, in its
closing too.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pika import SelectConnection
from pika.adapters.select_connection import IOLoop
from pika.adapters.utils.selector_ioloop_adapter import SelectorIOServicesAdapter
from pika.exceptions import AMQPError, ChannelClosed

from cronless_dagster.rabbitmq.errors import BrokerUnavailable
from cronless_dagster.rabbitmq.faults import explain, reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from cronless_dagster.rabbitmq.address import Broker

CLOSE_SECONDS = 2.0
"""How long a polite goodbye may take; then the socket is closed without one."""
_ABORT_SECONDS = 1.0


class DrivenConnection:
    """An open connection; nothing happens on it, heartbeats included, but while a method is being called."""

    def __init__(self, broker: Broker) -> None:
        """Connect within `broker.connect_seconds`, or twice that if the host's first address is silent.

        Raises:
            BrokerUnavailable: The broker is down, unreachable or too slow.
            BrokerRefused: It doesn't let this user in.
            BrokerError: A certificate or key can't be read.
        """
        self._broker = broker
        self._lost: BaseException | None = None
        self._blocked = False
        self._loop = IOLoop()
        self._services = _Services(self._loop)
        self._connection: Any = None
        try:
            self._open()
        except BaseException:
            self.close(seconds=0)
            raise

    @property
    def lost(self) -> str | None:
        """Why there is no connection any more, or None."""
        return None if self._lost is None else reason(self._lost)

    @property
    def blocked(self) -> bool:
        """Whether the broker has said that it takes no messages for now, because of an alarm."""
        return self._blocked

    def limit(self, seconds: float) -> None:
        """Give all that follows so many seconds together."""
        self._seconds, self._deadline = seconds, time.monotonic() + seconds

    def channel(self) -> DrivenChannel:
        """Open a channel.

        Raises:
            BrokerUnavailable: The connection is lost, or the broker doesn't answer in time.
        """
        self.check()
        opened: list[Any] = []
        channel = DrivenChannel(self, self._connection.channel(on_open_callback=opened.append))
        channel.wait(lambda: bool(opened))
        return channel

    def check(self) -> None:
        """Take notice of what came in meanwhile.

        Raises:
            BrokerUnavailable: The connection is lost.
        """
        if self._lost is None:
            self._loop.call_later(0, _nothing)
            self._turn()
        if self._lost is not None:
            raise explain(self._lost, self._broker)

    def wait(self, done: Callable[[], bool]) -> bool:
        """Drive the connection until something is done, the connection is lost, or time is up.

        Args:
            done: Asked after each turn, in which pika's callbacks have their effect.

        Returns:
            Whether it is done.
        """
        alarm = self._loop.call_later(max(0.0, self._deadline - time.monotonic()), _nothing)
        try:
            while not done():
                if self._lost is not None or time.monotonic() >= self._deadline:
                    return False
                self._turn()
        finally:
            self._loop.remove_timeout(alarm)
        return True

    def slow(self) -> BrokerUnavailable:
        """Return the error of a broker that didn't answer in time."""
        if self._blocked:
            return BrokerUnavailable(
                f"RabbitMQ at {self._broker.shown} takes no messages at the moment: check its memory and disk alarms."
            )
        return BrokerUnavailable(
            f"RabbitMQ at {self._broker.shown} gave no answer within {self._seconds:g} s: check that it runs, and"
            " its alarms."
        )

    def close(self, *, seconds: float = CLOSE_SECONDS) -> None:
        """Say goodbye if the broker listens, and close the socket in any case; closing twice is fine.

        Takes at most `seconds`, and a moment.
        """
        if self._loop is None:
            return
        try:
            self._end(seconds)
        finally:
            self._loop.close()
            self._loop = None

    def _open(self) -> None:
        opened: list[Any] = []
        self._loop.activate_poller()
        self._connection = SelectConnection(
            self._broker.parameters(),
            on_open_callback=opened.append,
            on_open_error_callback=self._on_end,
            on_close_callback=self._on_end,
            custom_ioloop=self._services,
        )
        self._connection.add_on_connection_blocked_callback(lambda *_: self._set_blocked(now=True))
        self._connection.add_on_connection_unblocked_callback(lambda *_: self._set_blocked(now=False))
        # pika itself gives each address of the host its time; this is for a look-up of the host that hangs, and for
        # a second address.
        self.limit(2 * self._broker.connect_seconds)
        if not self.wait(lambda: bool(opened)):
            raise self.slow() if self._lost is None else explain(self._lost, self._broker)

    def _end(self, seconds: float) -> None:
        connection = self._connection
        if connection is None or connection.is_closed:
            return
        # Closing already; or opening, whose end pika takes for a success and is then surprised.
        with suppress(AMQPError, AssertionError):
            connection.close()
            self.limit(seconds)
            if not self.wait(lambda: connection.is_closed):
                self._services.abort()
                self.limit(_ABORT_SECONDS)
                self.wait(lambda: connection.is_closed)

    def _turn(self) -> None:
        self._loop.poll()
        self._loop.process_timeouts()

    def _on_end(self, _connection: Any, error: BaseException) -> None:
        self._lost = error

    def _set_blocked(self, *, now: bool) -> None:
        self._blocked = now


class DrivenChannel:
    """A channel whose declarations wait for their answer, as those of pika's `BlockingChannel`, but not for ever.

    All raise:
        pika.exceptions.ChannelClosed: The broker refused it and closed the channel.
        BrokerUnavailable: The connection is lost, or the broker didn't answer in time.
    """

    def __init__(self, connection: DrivenConnection, channel: Any) -> None:
        """Prepare.

        Args:
            connection: Has the time limit.
            channel: pika's own.
        """
        self.connection, self.raw = connection, channel
        self._closed: BaseException | None = None
        channel.add_on_close_callback(self._on_close)

    @property
    def is_open(self) -> bool:
        """Whether the channel can be used."""
        return bool(self.raw.is_open)

    @property
    def closed(self) -> str | None:
        """Why the channel is closed, or None."""
        return None if self._closed is None else reason(self._closed)

    def exchange_declare(self, *args: Any, **named: Any) -> Any:
        """As pika's."""
        return self._ask(self.raw.exchange_declare, *args, **named)

    def queue_declare(self, *args: Any, **named: Any) -> Any:
        """As pika's."""
        return self._ask(self.raw.queue_declare, *args, **named)

    def queue_bind(self, *args: Any, **named: Any) -> Any:
        """As pika's."""
        return self._ask(self.raw.queue_bind, *args, **named)

    def confirm_delivery(self, on_answer: Callable[[Any], None]) -> Any:
        """Have the broker answer each message that is published on this channel."""
        return self._ask(self.raw.confirm_delivery, on_answer)

    def close(self) -> None:
        """Close the channel; one that is closed already is left so."""
        if self.is_open:
            self.raw.close()
            self.connection.wait(lambda: self.raw.is_closed)

    def wait(self, done: Callable[[], bool]) -> None:
        """Drive the connection until something is done; raises what the class says."""
        in_time = self.connection.wait(lambda: done() or self._closed is not None)
        if isinstance(self._closed, ChannelClosed):
            raise self._closed
        if self._closed is not None or not in_time:
            self.connection.check()
            raise self.connection.slow()

    def _ask(self, method: Callable[..., None], *args: Any, **named: Any) -> Any:
        answers: list[Any] = []
        method(*args, callback=answers.append, **named)
        self.wait(lambda: bool(answers))
        return answers[0]

    def _on_close(self, _channel: Any, error: BaseException) -> None:
        self._closed = error


class _Services(SelectorIOServicesAdapter):  # type: ignore[misc]  # pika ships no types
    """Keeps hold of the transport, whose `abort` is pika's only way to close a socket at once."""

    def __init__(self, loop: IOLoop) -> None:
        super().__init__(loop)
        self._transport: Any = None

    def create_streaming_connection(
        self,
        protocol_factory: Any,
        sock: Any,
        on_done: Callable[[Any], None],
        ssl_context: Any = None,
        server_hostname: str | None = None,
    ) -> Any:
        """As pika's."""

        def done(result: Any) -> None:
            if not isinstance(result, BaseException):
                self._transport = result[0]
            on_done(result)

        return super().create_streaming_connection(protocol_factory, sock, done, ssl_context, server_hostname)

    def abort(self) -> None:
        """Close the socket without another word, if there is one."""
        if self._transport is not None:
            self._transport.abort()


def _nothing() -> None:
    """What a timer does that is there to end a waiting."""
