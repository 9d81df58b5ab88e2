"""Threads that call a handler for one job after the other, and can be left at any moment."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

IDLE_SECONDS = 1.0
JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class _Broken:
    error: BaseException


class Pool(Generic[JobT, ResultT]):
    """Calls `call` for each job in `size` threads; iterating yields results as they come.

    The threads are daemons: a run that is canceled must not wait for handlers whose result nobody records.
    """

    def __init__(
        self,
        jobs: Sequence[JobT],
        call: Callable[[JobT], ResultT],
        stopped: Callable[[], bool],
        size: int,
        name: str,
    ) -> None:
        """Prepare; the threads start with the iteration.

        Args:
            jobs: Taken in their order.
            call: What it raises ends the iteration.
            stopped: Asked before each job; true leaves the rest alone.
            size: The most threads; no more than there are jobs.
            name: Of the threads.
        """
        self._jobs, self._call, self._stopped, self._name = iter(jobs), call, stopped, name
        self._size = min(size, len(jobs))
        self._next = threading.Lock()
        self._halted = threading.Event()
        # None is a thread's last word, an error the last but one.
        self._finished: SimpleQueue[ResultT | _Broken | None] = SimpleQueue()

    def __iter__(self) -> Iterator[ResultT | None]:
        """Yield results until all threads have ended, and None whenever none came for a while.

        A thread never ends unnoticed: what it died of is raised here.
        """
        for number in range(self._size):
            threading.Thread(target=self._work, name=f"{self._name}-{number}", daemon=True).start()
        working = self._size
        while working:
            try:
                result = self._finished.get(timeout=IDLE_SECONDS)
            except Empty:
                yield None
                continue
            if result is None:
                working -= 1
            elif isinstance(result, _Broken):
                raise result.error
            else:
                yield result

    def leave(self) -> list[ResultT]:
        """Begin no further job; return what is finished and was not yielded."""
        self._halted.set()
        unread: list[ResultT] = []
        while True:
            try:
                result = self._finished.get_nowait()
            except Empty:
                return unread
            if result is not None and not isinstance(result, _Broken):
                unread.append(result)

    def _work(self) -> None:
        try:
            while not (self._halted.is_set() or self._stopped()):
                with self._next:
                    job = next(self._jobs, None)
                if job is None:
                    return
                self._finished.put(self._call(job))
        except BaseException as error:  # noqa: BLE001 - the iteration raises it
            self._finished.put(_Broken(error))
        finally:
            self._finished.put(None)
