"""The threads that call handlers, how much they have to do, and how fast they do it."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LOOK_AHEAD_SECONDS = 0.5
"""So much work may wait for a free thread; what waits is started and would not be run by another worker."""

WorkT = TypeVar("WorkT")


class HandlerThreads(Generic[WorkT]):
    """Calls `call` for each piece of work in `size` threads, in the order in which it came.

    The threads are daemons: a worker that was told to end doesn't wait for a handler beyond its limit.
    """

    def __init__(self, size: int, call: Callable[[WorkT], None]) -> None:
        """Prepare.

        Args:
            size: How many threads.
            call: Must not raise; if it does, the error is in `broken`.
        """
        self.size = size
        self.broken: BaseException | None = None
        self._call = call
        self._lock = threading.Lock()
        self._given = threading.Condition(self._lock)
        self._ended = threading.Condition(self._lock)
        self._waiting: deque[WorkT] = deque()
        self._running: dict[int, WorkT] = {}
        self._stopped = False
        self._awaited = -1
        self._recent, self._counted_at = 0.0, time.monotonic()

    def start(self) -> None:
        """Start the threads."""
        for number in range(self.size):
            threading.Thread(target=self._work, name=f"handler-{number}", daemon=True).start()

    def add(self, works: Iterable[WorkT]) -> None:
        """Take work over."""
        with self._lock:
            before = len(self._waiting)
            self._waiting.extend(works)
            self._given.notify(len(self._waiting) - before)

    @property
    def load(self) -> int:
        """How much work is here, waiting or being done."""
        with self._lock:
            return len(self._waiting) + len(self._running)

    def recent(self) -> float:
        """Return how much work ended in about the last half second; older work counts ever less."""
        with self._lock:
            return self._recent * self._faded(time.monotonic())

    def wait_for_load(self, most: int, seconds: float) -> bool:
        """Wait until no more than so much work is here; tell whether that came within so many seconds."""
        with self._lock:
            self._awaited = most
            there = self._ended.wait_for(
                lambda: len(self._waiting) + len(self._running) <= most, timeout=max(seconds, 0.0)
            )
            self._awaited = -1
            return there

    def first_waiting(self) -> WorkT | None:
        """Return what begins next, and has waited the longest; None where nothing waits."""
        with self._lock:
            return self._waiting[0] if self._waiting else None

    def withdraw(self) -> list[WorkT]:
        """Take back what has not begun."""
        with self._lock:
            left = list(self._waiting)
            self._waiting.clear()
            return left

    def running(self) -> list[WorkT]:
        """Return what is being done."""
        with self._lock:
            return list(self._running.values())

    def stop(self) -> None:
        """Let threads end that have nothing to do."""
        with self._lock:
            self._stopped = True
            self._given.notify_all()

    def _work(self) -> None:
        while (work := self._next()) is not None:
            try:
                self._call(work)
            except BaseException as error:  # noqa: BLE001 - the loop raises it
                self.broken = error

    def _next(self) -> WorkT | None:
        """Count what this thread has done, and return what it does next; None: nothing any more."""
        thread = threading.get_ident()
        with self._lock:
            if self._running.pop(thread, None) is not None:
                now = time.monotonic()
                self._recent = self._recent * self._faded(now) + 1.0
                self._counted_at = now
                if len(self._waiting) + len(self._running) <= self._awaited:
                    self._ended.notify_all()
            while not self._waiting:
                if self._stopped:
                    return None
                self._given.wait()
            self._running[thread] = work = self._waiting.popleft()
            return work

    def _faded(self, now: float) -> float:
        return math.exp((self._counted_at - now) / LOOK_AHEAD_SECONDS)
