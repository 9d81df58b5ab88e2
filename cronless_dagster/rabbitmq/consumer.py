"""Receiving messages: a thread that does nothing but talk to the broker, and connects again when it must."""

from __future__ import annotations

import logging
import random
import time
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING

from cronless_dagster.rabbitmq import topology
from cronless_dagster.rabbitmq.consuming import Session
from cronless_dagster.rabbitmq.dead_letters import DeadLetters
from cronless_dagster.rabbitmq.deliveries import Deliveries, Received
from cronless_dagster.rabbitmq.errors import BrokerError, BrokerUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cronless_dagster.rabbitmq.address import Broker

__all__ = ["Consumer", "Counts", "Received"]

logger = logging.getLogger(__name__)

SHORTEST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
CLOSE_SECONDS = 2.0
"""How long the goodbye to a connection may take that can't be used any more."""
STEADY_SECONDS = 30.0
"""A connection that lasted so long was a good one: after its loss the next is tried at once."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What a consumer has met since its start.

    Attributes:
        received: Messages that could be read, redelivered ones included.
        poisoned: Messages that couldn't, now among the dead letters.
        reconnects: Connections after the first.
        late: Settlements dropped, since their channel was gone: the broker hands those messages out again.
    """

    received: int
    poisoned: int
    reconnects: int
    late: int


class Consumer:
    """Receives the messages of some job types; knows nothing of what they mean.

    Each message is delivered at least once: until it is acknowledged, a lost connection makes the broker deliver
    it again, to whoever consumes then. All methods may be called by any thread.
    """

    def __init__(
        self,
        broker: Broker,
        job_types: Sequence[str],
        *,
        prefetch: int,
        on_state: Callable[[str], None] | None = None,
    ) -> None:
        """Prepare; the thread and its connection begin with `start`.

        Args:
            broker: Where.
            job_types: Whose queues; they are declared at every connect.
            prefetch: The most unsettled messages of each job type. (A limit over all of them is something quorum
                queues don't have.)
            on_state: Called with one line whenever the connection's state changes, by the consumer's thread: it
                should be quick and not call the consumer.

        Raises:
            BrokerError: A job type whose queue would clash with another of ours, none at all, or no prefetch.
        """
        if not job_types or prefetch < 1:
            raise BrokerError(
                f"A consumer of {len(job_types)} job types with a prefetch of {prefetch} would receive nothing: give"
                " at least one of each."
            )
        for job_type in job_types:
            topology.queue_name(broker.prefix, job_type)
        self._broker, self._job_types = broker, tuple(dict.fromkeys(job_types))
        self._on_state = on_state or (lambda _state: None)
        self._deliveries = Deliveries(prefetch)
        self._dead_letters = DeadLetters(topology.dead_letter_exchange(broker.prefix), broker.publish_seconds)
        self._session: Session | None = None
        self._sessions = 0
        self._ready, self._stopping = Event(), Event()
        self._close_seconds = CLOSE_SECONDS
        self._thread = Thread(target=self._work, name="cronless consumer", daemon=True)

    @property
    def connected(self) -> bool:
        """Whether there is a connection on which everything is declared, and consumed but in a pause."""
        return self._ready.is_set()

    @property
    def fatal(self) -> BaseException | None:
        """Why the consumer has given up for good: an error that waiting doesn't mend."""
        return self._deliveries.error

    @property
    def held(self) -> int:
        """How many messages are received and unsettled, taken or not."""
        return self._deliveries.held

    @property
    def counts(self) -> Counts:
        """What happened so far."""
        return Counts(
            received=self._deliveries.received,
            poisoned=self._dead_letters.stored,
            reconnects=max(self._sessions - 1, 0),
            late=self._deliveries.late,
        )

    def start(self) -> None:
        """Begin to connect and to receive; returns at once."""
        self._thread.start()

    def stop(self, seconds: float = 10.0) -> None:
        """Send the settlements asked for, give everything else back, close the connection.

        Returns when that is done or the seconds have passed; a broker that doesn't answer notices by itself.
        Whoever waits in `take` gets an empty list, also from now on.
        """
        self._close_seconds = seconds
        self._stopping.set()
        self._deliveries.close()
        self._wake()
        if not self._thread.is_alive():
            return
        self._thread.join(seconds)
        session = self._session
        if self._thread.is_alive() and session is not None:
            session.abandon("the consumer stops")
            self._thread.join(1.0)

    def take(self, most: int, seconds: float) -> list[Received]:
        """Return at most so many messages, oldest first, waiting at most so long for the first.

        None of them is of a connection that is known to be lost. Each must be settled: `acknowledge` or
        `give_back`.

        Raises:
            BrokerRefused: The user, the password, the virtual host or a permission is wrong.
            TopologyMismatch: A queue or an exchange of our name is another one.
        """
        return self._deliveries.take(most, seconds)

    def acknowledge(self, items: Iterable[Received]) -> None:
        """Tell the broker that these are done with; dropped where their connection is gone."""
        if self._deliveries.settle(items, acknowledged=True):
            self._wake()

    def give_back(self, items: Iterable[Received]) -> None:
        """Let the broker hand these out again; without a `pause` before, they may well come back here."""
        if self._deliveries.settle(items, acknowledged=False):
            self._wake()

    def pause(self) -> None:
        """Receive nothing further; what is on its way may still arrive, and what has arrived can be taken."""
        self._deliveries.paused = True
        self._wake()

    def resume(self, prefetch: int | None = None) -> None:
        """Receive again, and from now on at most so many unsettled messages of each job type."""
        if prefetch is not None:
            self._deliveries.prefetch = max(prefetch, 1)
        self._deliveries.paused = False
        self._wake()

    def _wake(self) -> None:
        session = self._session
        if session is not None:
            session.wake()

    def _work(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._receive()
            except Exception as error:
                if isinstance(error, BrokerError) and not isinstance(error, BrokerUnavailable):
                    self._give_up(error)
                    return
                failures = 1 if time.monotonic() - began > STEADY_SECONDS else failures + 1
                pause = pause_before(failures)
                # What isn't an error of ours is pika's or ours to mend, and not to be met by ending all workers.
                unknown = error if not isinstance(error, BrokerError) else None
                logger.warning("%s; connecting again in %.1f s", error, pause, exc_info=unknown)
                self._tell(f"disconnected: {error}")
                self._stopping.wait(pause)
        self._tell("stopped")

    def _receive(self) -> None:
        """Connect and receive until told to stop, or until the connection is lost."""
        self._tell("connecting")
        session = self._session = Session(self._broker, self._deliveries, self._dead_letters)
        try:
            session.run(self._job_types, self._on_ready, self._stopping)
        finally:
            self._ready.clear()
            self._deliveries.end()
            session.close(self._close_seconds)
            self._session = None

    def _on_ready(self) -> None:
        self._sessions += 1
        self._ready.set()
        logger.info("receiving %s from %s", ", ".join(self._job_types), self._broker.shown)
        self._tell("connected")

    def _give_up(self, error: BrokerError) -> None:
        logger.error("the consumer gives up: %s", error)
        self._deliveries.close(error)
        self._tell(f"given up: {error}")

    def _tell(self, state: str) -> None:
        try:
            self._on_state(state)
        except Exception:
            logger.exception("showing the connection's state failed")


def pause_before(failures: int) -> float:
    """Return how many seconds to wait before connecting again, after so many failures in a row.

    Nothing after the first; then anything up to a limit that doubles each time, so that workers which lost the
    same broker don't come back together.

    Source: https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/
    """
    if failures <= 1:
        return 0.0
    limit = min(LONGEST_PAUSE, SHORTEST_PAUSE * 2.0 ** min(failures - 2, 10))
    return random.uniform(0.0, limit)  # noqa: S311 - to spread them, not to keep a secret
