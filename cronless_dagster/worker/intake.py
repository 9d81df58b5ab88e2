"""Messages at hand that are not started: how many to ask for, which come next, and giving them back in time.

A message held here is one that an idle worker doesn't get, and one that makes an empty queue say less than it seems
to. So as many are asked for as will soon run, and what has waited for seconds goes back.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from cronless_dagster.store.database import RETRY_SECONDS
from cronless_dagster.worker.starting import Unstarted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from cronless_dagster.rabbitmq.consumer import Consumer
    from cronless_dagster.worker.counts import Tally

MOST_STARTED_AT_ONCE = 500
LARGEST_PREFETCH = 1_000
HELD_SECONDS = 3.0
# To begin anew with it elsewhere takes at least as long as most handlers need to make room here.
ALONE_SECONDS = 30.0
_REMEMBERED = 10_000


class Intake:
    """The unstarted messages of a worker; used by its loop alone."""

    def __init__(self, consumer: Consumer, tally: Tally) -> None:
        """Begin with none, receiving as many as the consumer was told to."""
        self._consumer, self._tally = consumer, tally
        self._waiting: list[Unstarted] = []
        self._asked: dict[tuple[UUID, UUID], UUID] = {}
        self._prefetch = 0
        self._until_idle = False
        self.paused = False

    def __len__(self) -> int:
        """Count them."""
        return len(self._waiting)

    def receive(self, seconds: float) -> None:
        """Take what has come, waiting at most so long for the first; raises what ended the consumer for good."""
        for received in self._consumer.take(LARGEST_PREFETCH, seconds):
            one = Unstarted(received)
            # After a start whose answer was lost the row may be ours, under the execution that we asked with.
            before = self._asked.pop((received.message.job_id, received.message.token), None)
            if before is not None:
                one.execution_id = before
            self._waiting.append(one)

    def ready(self) -> list[Unstarted]:
        """Return those whose start may be tried now; one that must run alone comes by itself."""
        now = time.monotonic()
        ready = [one for one in self._waiting if one.not_before <= now]
        alone = next((one for one in ready if one.received.message.alone), None)
        return ready if alone is None else [alone]

    def settle(self, done: Iterable[Unstarted], locked: Iterable[Unstarted]) -> None:
        """Acknowledge what the start fence has decided; try the others again in a moment."""
        done = set(done)
        self._consumer.acknowledge(one.received for one in done)
        self._waiting = [one for one in self._waiting if one not in done]
        for one in locked:
            one.locked, one.asked = True, False
            one.not_before = time.monotonic() + RETRY_SECONDS

    def unanswered(self, tried: Iterable[Unstarted]) -> None:
        """Note that a start was tried and its end isn't known."""
        for one in tried:
            one.locked, one.asked = False, True

    def steer(self, room: int, recent: float, *, idle: bool, able: bool) -> None:
        """Pause, resume, and give back what has waited for too long.

        Args:
            room: How many more could be started now.
            recent: How many the handlers did in about the last half second.
            idle: Nothing that was started is unfinished.
            able: The database answers.
        """
        self._give_back_overdue()
        if self.paused:
            waiting = any(not one.locked for one in self._waiting)
            if able and room > 0 and not waiting and (idle or not self._until_idle):
                self.resume(room, recent)
        elif recent < 1 and room == 0:
            # Slow handlers: what came now would only wait. Fast ones make room before it has come.
            self.pause()
        elif self._prefetch * 2 <= (wanted := _prefetch(room, recent)):
            self.resume(wanted, recent)

    def pause(self) -> None:
        """Receive nothing further."""
        if not self.paused:
            self.paused = True
            self._consumer.pause()

    def resume(self, room: int, recent: float) -> None:
        """Receive as many as will soon run."""
        self.paused = self._until_idle = False
        self._prefetch = _prefetch(room, recent)
        self._consumer.resume(self._prefetch)

    def _give_back_overdue(self) -> None:
        overdue = {one for one in self._waiting if not one.locked and one.age > _patience(one)}
        if not overdue:
            return
        # Without the pause they would come back at once.
        self.pause()
        self._until_idle = self._until_idle or any(one.received.message.alone for one in overdue)
        for one in overdue:
            if one.asked:
                self._asked[one.received.message.job_id, one.received.message.token] = one.execution_id
        while len(self._asked) > _REMEMBERED:
            del self._asked[next(iter(self._asked))]
        self._waiting = [one for one in self._waiting if one not in overdue]
        self._consumer.give_back(one.received for one in overdue)
        self._tally.add("returned", len(overdue))


def _patience(one: Unstarted) -> float:
    return ALONE_SECONDS if one.received.message.alone else HELD_SECONDS


def _prefetch(room: int, recent: float) -> int:
    # Twice the half second's work: one part is being started while the next one is on its way.
    return min(max(room, 1) + math.floor(recent) * 2, LARGEST_PREFETCH)
