"""Writing finished batches beside the work: while one is being written, the next is run and planned."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from cronless_dagster.store.errors import ClaimLost

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from cronless_dagster.store.results import Result


class Finisher:
    """Has at most one batch on its way to the database, in a thread of its own; the next one waits for it."""

    def __init__(
        self,
        write: Callable[[Sequence[Result]], set[UUID]],
        accepted: Callable[[Sequence[Result], set[UUID]], None],
        discarded: Callable[[Sequence[Result]], ClaimLost],
    ) -> None:
        """Prepare.

        Args:
            write: Writes a batch in a transaction and returns the ids that were accepted; in the thread.
            accepted: Told of each batch that was written; in the caller's thread.
            discarded: Told of the batch that met a lost claim; returns what to raise.
        """
        self._write, self._accepted, self._discarded = write, accepted, discarded
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="finish")
        self._on_its_way: tuple[Sequence[Result], Future[set[UUID]]] | None = None
        self._failed: list[Sequence[Result]] = []

    def write(self, results: Sequence[Result]) -> None:
        """Begin to write a batch, once the one before is written. Raises as `settle` does, and has not begun then."""
        self.settle()
        self._begin(results)

    def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown(wait=False)

    def settle(self) -> None:
        """Wait until nothing is on its way.

        Raises:
            ClaimLost: The batch was refused.
            Exception: The batch could not be written; the next call tries once more.
        """
        while self._on_its_way is None and self._failed:
            self._begin(self._failed.pop(0))
            self._wait()
        self._wait()

    def _begin(self, results: Sequence[Result]) -> None:
        self._on_its_way = results, self._thread.submit(self._write, results)

    def _wait(self) -> None:
        if self._on_its_way is None:
            return
        results, future = self._on_its_way
        try:
            accepted = future.result()
        except ClaimLost:
            self._on_its_way = None
            raise self._discarded(results) from None
        except BaseException:
            # An interruption of the waiting leaves the batch on its way; a failed write is kept for another try.
            if future.done() and future.exception() is not None:
                self._on_its_way = None
                self._failed.append(results)
            raise
        self._on_its_way = None
        self._accepted(results, accepted)
