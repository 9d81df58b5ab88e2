"""Writing finished batches beside the work: while one is being written, the next is run and planned.

Work that is done is not given up lightly: what somebody's locks or a database that is away keep from being written
stays here and is tried again.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from cronless_dagster.store.database import RETRY_SECONDS, is_in_the_way, may_pass
from cronless_dagster.store.errors import ClaimLost
from cronless_dagster.telemetry.events import event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from cronless_dagster.store.results import Result

logger = logging.getLogger(__name__)

# A canceled run has little time before it is killed.
LEAVE_SECONDS = 10.0
# Another dispatcher's claim locks rows in passing; only what lasts is worth a word.
_TOLD_AFTER_SECONDS = 5.0
_TOLD_EVERY_SECONDS = 60.0


class Written(NamedTuple):
    """What became of a batch: the ids that were accepted, and the results whose row somebody else has locked."""

    accepted: set[UUID]
    held: Sequence[Result]


class Finisher:
    """Has at most one batch on its way to the database, in a thread of its own; the next one waits for it."""

    def __init__(
        self,
        write: Callable[[Sequence[Result]], Written],
        accepted: Callable[[Sequence[Result], set[UUID]], None],
        discarded: Callable[[Sequence[Result]], ClaimLost],
        *,
        lost: Callable[[], bool],
        batch_size: int,
        patience: float,
    ) -> None:
        """Prepare.

        Args:
            write: Writes a batch in a transaction; in the thread.
            accepted: Told of each batch that was written; in the caller's thread.
            discarded: Told of the results that met a lost claim; returns what to raise.
            lost: Whether the claim is known to be lost: the end of waiting for locks, however long they are held.
            batch_size: The most results of a transaction.
            patience: Seconds for which a database may be away: the claim's lease, which runs out then.
        """
        self._write, self._accepted, self._discarded = write, accepted, discarded
        self._lost, self._batch_size, self._patience = lost, batch_size, patience
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="finish")
        self._on_its_way: tuple[Sequence[Result], Future[Written]] | None = None
        self._waiting: list[Result] = []
        self._held: list[Result] = []
        self._broken: list[Sequence[Result]] = []
        self._failing_since: float | None = None
        self._waiting_since: float | None = None
        self._not_before = self._held_until = self._told_at = 0.0

    def add(self, results: Sequence[Result]) -> None:
        """Take results over, to be written."""
        self._waiting.extend(results)

    def catch_up(self) -> None:
        """Begin to write, once what is on its way is written, until less than a batch waits. Raises as `poll` does."""
        self.poll()
        while len(self._waiting) >= self._batch_size and time.monotonic() >= self._not_before:
            self.poll()

    def poll(self) -> None:
        """Wait for the batch on its way, and begin the next one if there is any and it is time.

        Raises:
            ClaimLost: The batch was refused.
            Exception: It could not be written, and waiting will not help; `leave` tries once more.
        """
        self._wait()
        self._begin()

    def settle(self) -> None:
        """Wait until all is written, for as long as the claim is held. Raises as `poll` does."""
        while self._on_its_way or self._waiting or self._held:
            self.poll()
            if self._on_its_way is None and (self._waiting or self._held):
                if self._lost():
                    raise self._all_discarded(())
                time.sleep(RETRY_SECONDS / 5)

    def leave(self, results: Sequence[Result] = ()) -> None:
        """Write what can be written within `LEAVE_SECONDS`, on the way out after an error.

        A batch that can't be written is tried in halves, and keeps no other from being tried. Raises only what
        interrupts the waiting.
        """
        self._waiting.extend(results)
        deadline = time.monotonic() + LEAVE_SECONDS
        again, self._broken = self._broken, []
        while time.monotonic() < deadline:
            try:
                self.poll()
            except ClaimLost as error:
                event(logger, "claim.lost", logging.WARNING, error=error)
            except Exception:  # noqa: BLE001 - told with its traceback
                event(logger, "results.tried_apart", logging.ERROR, exc_info=True)
            again += self._halves_of_broken()
            if self._on_its_way is None:
                if again:
                    self._submit(again.pop())
                elif self._waiting or self._held:
                    time.sleep(RETRY_SECONDS / 5)
                else:
                    return
        unwritten = len(self._waiting) + len(self._held) + sum(map(len, again))
        if unwritten or self._on_its_way:
            event(logger, "results.not_recorded", logging.ERROR, jobs=unwritten)

    def apart(self) -> list[Result]:
        """Try what `poll` has raised about again, in ever smaller parts; return the results that failed alone.

        What else waits is left for `poll`. Raises only what interrupts the waiting.
        """
        again, self._broken = self._broken, []
        hopeless: list[Result] = []
        while again:
            self._submit(again.pop())
            with suppress(Exception):
                self._wait()
            hopeless += [batch[0] for batch in self._broken if len(batch) == 1]
            again += self._halves_of_broken()
        return hopeless

    @property
    def unwritten(self) -> int:
        """How many results are here and not known to be written."""
        on_its_way = len(self._on_its_way[0]) if self._on_its_way else 0
        return on_its_way + len(self._waiting) + len(self._held)

    def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown(wait=False)

    def _begin(self) -> None:
        now = time.monotonic()
        if self._on_its_way is not None or now < self._not_before:
            return
        batch = self._waiting[: self._batch_size]
        del self._waiting[: len(batch)]
        if now >= self._held_until:
            room = self._batch_size - len(batch)
            batch += self._held[:room]
            del self._held[:room]
        if batch:
            self._submit(batch)

    def _halves_of_broken(self) -> list[Sequence[Result]]:
        broken, self._broken = self._broken, []
        halves: list[Sequence[Result]] = []
        for batch in broken:
            half = len(batch) // 2
            if half:
                halves += batch[half:], batch[:half]
            else:
                event(logger, "results.not_recorded", logging.ERROR, jobs=1, job=batch[0].job.id)
        return halves

    def _submit(self, batch: Sequence[Result]) -> None:
        self._on_its_way = batch, self._thread.submit(self._write, batch)

    def _wait(self) -> None:
        if self._on_its_way is None:
            return
        results, future = self._on_its_way
        try:
            written = future.result()
        except BaseException as error:
            # An interruption of the waiting leaves the batch on its way.
            if not future.done() or future.exception() is not error:
                raise
            self._on_its_way = None
            self._after(results, error)
            return
        self._on_its_way = None
        self._failing_since = None
        if not written.held:
            self._waiting_since = None
        else:
            self._held.extend(written.held)
            self._held_until = time.monotonic() + RETRY_SECONDS
            self._tell(len(self._held))
            held = {result.job.id for result in written.held}
            results = [result for result in results if result.job.id not in held]
        if results:
            self._accepted(results, written.accepted)

    def _after(self, results: Sequence[Result], error: BaseException) -> None:
        """Keep what may be written later; raise what waiting doesn't mend."""
        if isinstance(error, ClaimLost):
            raise self._all_discarded(results) from None
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        if may_pass(error) and (is_in_the_way(error) or now - self._failing_since < self._patience):
            self._waiting[:0] = results
            self._not_before = now + RETRY_SECONDS
            self._tell(len(self._waiting), error)
            return
        self._broken.append(results)
        raise error

    def _all_discarded(self, results: Sequence[Result]) -> ClaimLost:
        gone = [*results, *self._waiting, *self._held, *(one for batch in self._broken for one in batch)]
        self._waiting, self._held, self._broken = [], [], []
        return self._discarded(gone)

    def _tell(self, count: int, error: BaseException | None = None) -> None:
        now = time.monotonic()
        self._waiting_since = self._waiting_since or now
        if now - self._waiting_since < _TOLD_AFTER_SECONDS:
            return
        if self._told_at and now - self._told_at < _TOLD_EVERY_SECONDS:
            return
        self._told_at = now
        why = error or "their rows are locked by another transaction"
        event(logger, "results.waiting", logging.WARNING, jobs=count, why=why)
