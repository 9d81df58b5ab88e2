"""What a consumer has received and not yet settled: the part that its threads share.

A delivery tag means something only on the channel that delivered it, so everything here belongs to a
*generation*: one channel's life. When it ends, the broker hands out anew whatever was unsettled; what is left of
it here is forgotten, and settlements that come too late are counted and dropped.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from threading import Condition
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cronless_dagster.rabbitmq.messages import JobMessage


@dataclass(frozen=True, slots=True)
class Received:
    """A message as it was delivered.

    Attributes:
        message: What it says.
        generation: The life of the channel that delivered it, from 1.
        tag: The delivery tag on that channel.
        received_at: When, in seconds of `time.monotonic`.
    """

    message: JobMessage
    generation: int
    tag: int
    received_at: float


class Settlement(NamedTuple):
    """What the broker is still to be told about one delivery: done with it, or to be given to somebody else."""

    tag: int
    acknowledged: bool


class Deliveries:
    """The inbox and the open settlements of one consumer; every method may be called by any thread."""

    def __init__(self, prefetch: int = 1) -> None:
        self._changed = Condition()
        self._generation = 0
        self._inbox: deque[Received] = deque()
        self._unsettled: dict[int, str] = {}  # tag to job type
        self._outgoing: list[Settlement] = []
        self._closed = False
        self._error: BaseException | None = None
        self.paused = False
        """Whether nothing further is wanted for now."""
        self.prefetch = prefetch
        """The most unsettled messages that are wanted of each queue."""
        self.received = 0
        """Messages that could be read, redelivered ones included."""
        self.late = 0
        """Settlements dropped because their channel was gone, or since the message was settled before."""

    @property
    def held(self) -> int:
        """How many messages are received and unsettled, taken or not."""
        return len(self._unsettled)

    def held_of(self, job_type: str) -> int:
        """How many of them came from the queue of a job type."""
        with self._changed:
            return sum(1 for held in self._unsettled.values() if held == job_type)

    @property
    def error(self) -> BaseException | None:
        """What the consumer died of."""
        return self._error

    def begin(self) -> int:
        """Start a new generation and return its number; nothing of the last one is left."""
        with self._changed:
            self._forget()
            self._generation += 1
            return self._generation

    def end(self) -> None:
        """Forget what the channel delivered: it is gone, and the broker redelivers."""
        with self._changed:
            self._forget()

    def close(self, error: BaseException | None = None) -> None:
        """Let nobody wait any longer; with an error, `take` raises it from now on."""
        with self._changed:
            self._closed, self._error = True, error or self._error
            self._changed.notify_all()

    def deliver(self, generation: int, tag: int, message: JobMessage) -> None:
        """Put a message into the inbox."""
        with self._changed:
            self._unsettled[tag] = message.job_type
            self._inbox.append(Received(message, generation, tag, time.monotonic()))
            self.received += 1
            self._changed.notify()

    def hold(self, tag: int, job_type: str) -> None:
        """Note a delivery that nobody is to take, since it can't be read."""
        with self._changed:
            self._unsettled[tag] = job_type

    def take(self, most: int, seconds: float) -> list[Received]:
        """Return at most so many messages, oldest first, waiting at most so long for the first.

        Raises:
            BaseException: What the consumer died of.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._inbox or self._closed, timeout=seconds)
            if self._error is not None:
                raise self._error
            return [self._inbox.popleft() for _ in range(min(most, len(self._inbox)))]

    def settle(self, items: Iterable[Received], *, acknowledged: bool) -> bool:
        """Note what the broker is to be told, and return whether it has to be told of the need.

        It has not while earlier settlements still wait to be sent: they all go together.
        """
        with self._changed:
            idle = not self._outgoing
            for item in items:
                if item.generation == self._generation and item.tag in self._unsettled:
                    del self._unsettled[item.tag]
                    self._outgoing.append(Settlement(item.tag, acknowledged))
                else:
                    self.late += 1
            return idle and bool(self._outgoing)

    def settled(self, tag: int) -> None:
        """Note that a delivery which nobody took is settled."""
        with self._changed:
            self._unsettled.pop(tag, None)

    def outgoing(self) -> list[Settlement]:
        """Hand over the settlements that wait to be sent, in the order in which they were asked for."""
        with self._changed:
            waiting, self._outgoing = self._outgoing, []
            return waiting

    def _forget(self) -> None:
        self.late += len(self._outgoing)
        self._inbox.clear()
        self._unsettled.clear()
        self._outgoing.clear()
