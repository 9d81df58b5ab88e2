"""What a worker shows while it runs: a table on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cronless_dagster.cli.output import cell, iso, print_json, say, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from cronless_dagster.worker.counts import Counts
    from cronless_dagster.worker.loop import Worker

LINE_SECONDS = 10.0
RATE_SECONDS = 5.0
_LOOK_SECONDS = 0.5
_ODDITIES = {
    "stale": "stale",
    "doubled": "doubled",
    "poisoned": "poisoned",
    "discarded": "discarded",
    "lost": "lost",
    "returned": "returned to the queue",
    "given_back": "given back",
    "unwritten": "not recorded",
}
"""What is worth a word only once it has happened."""


class Picture:
    """A worker's counts, rates and state, as often as they are asked for."""

    def __init__(self, worker: Worker, states: Sequence[str], stopping: threading.Event) -> None:
        """Begin; `states` grows with each change of the connection."""
        self._worker, self._states, self._stopping = worker, states, stopping
        self._seen: deque[tuple[float, dict[str, int]]] = deque()
        self.counts = worker.counts
        self.look()

    def look(self) -> Counts:
        """Take the counts anew."""
        self.counts = self._worker.counts
        now = time.monotonic()
        self._seen.append((now, {name: one.done + one.failed for name, one in self.counts.types.items()}))
        while len(self._seen) > 2 and now - self._seen[0][0] > RATE_SECONDS:
            self._seen.popleft()
        return self.counts

    @property
    def state(self) -> str:
        """What the worker is doing, in a few words."""
        parts = [self._states[-1].removesuffix(".")]
        if not self.counts.database:
            parts.append("the database doesn't answer")
        if self._stopping.is_set() and self.counts.in_flight:
            parts.append("ending, a second signal ends it at once")
        return "; ".join(parts)

    def rate(self, job_type: str) -> float:
        """Return how many jobs of a type ended in a second, of late."""
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        return (last[job_type] - first[job_type]) / max(ended - began, 0.001)

    def oddities(self) -> str:
        """Return what else happened: `2 stale, 1 doubled`."""
        found = {words: getattr(self.counts, name) for name, words in _ODDITIES.items()}
        return ", ".join(f"{number:,} {words}" for words, number in found.items() if number)

    def as_text(self) -> str:
        """Return all of it in one line."""
        rate = sum(self.rate(name) for name in self.counts.types)
        counts = self.counts
        sums = (
            f"{counts.done:,} done, {counts.failed:,} failed, {counts.in_flight:,} in flight, {rate:,.0f}/s"
        )
        parts = [sums]
        if len(counts.types) > 1:
            parts += [f"{name} {one.done:,}/{one.failed:,}" for name, one in counts.types.items()]
        return "; ".join(filter(None, [*parts, self.oddities(), self.state]))

    def as_json(self) -> dict[str, Any]:
        """Return all of it, JSON-ready."""
        per_second = {name: round(self.rate(name), 1) for name in self.counts.types}
        counts = self.counts.as_dict()
        for name, one in counts["types"].items():
            one["per_second"] = per_second[name]
        return {"at": iso(datetime.now(UTC).replace(microsecond=0)), "state": self.state, **counts}

    def as_table(self) -> RenderableType:
        """Return a table by type, and a line below it."""
        from rich.console import Group

        self.look()
        made = table(
            ["type", ("done", "right"), ("failed", "right"), ("in flight", "right"), ("per s", "right")]
        )
        for name, one in self.counts.types.items():
            failed = cell(f"{one.failed:,}", "yellow" if one.failed else "")
            made.add_row(name, f"{one.done:,}", failed, f"{one.in_flight:,}", f"{self.rate(name):,.0f}")
        line = "; ".join(filter(None, [self.oddities(), self.state]))
        return Group(made, cell(line, "dim" if self.counts.connected else "yellow"))


@contextmanager
def progress(
    worker: Worker, states: Sequence[str], stopping: threading.Event, *, as_json: bool
) -> Iterator[None]:
    """Show the worker's progress for the block's length, and the sums at its end."""
    picture = Picture(worker, states, stopping)
    if sys.stdout.isatty() and not as_json:
        from rich.console import Console
        from rich.live import Live

        with Live(get_renderable=picture.as_table, console=Console(highlight=False), refresh_per_second=2):
            yield
        return
    lines = _Lines(picture, as_json=as_json)
    lines.start()
    try:
        yield
    finally:
        lines.end()
    with suppress(BrokenPipeError):
        picture.look()
        lines.write()


class _Lines(threading.Thread):
    """Writes a line when something has changed, at most one each ten seconds but for changes of the state."""

    def __init__(self, picture: Picture, *, as_json: bool) -> None:
        super().__init__(name="progress", daemon=True)
        self._picture, self._as_json = picture, as_json
        self._ended = threading.Event()
        self._written_at = 0.0
        self._last: object = None
        self._state = ""

    def run(self) -> None:
        # A worker whose reader has left works on.
        with suppress(BrokenPipeError):
            while not self._ended.wait(_LOOK_SECONDS):
                counts, state = self._picture.look(), self._picture.state
                due = counts != self._last and time.monotonic() - self._written_at >= LINE_SECONDS
                if due or state != self._state:
                    self.write()

    def end(self) -> None:
        """Write no more by itself."""
        self._ended.set()
        self.join()

    def write(self) -> None:
        """Write a line."""
        self._written_at, self._last = time.monotonic(), self._picture.counts
        self._state = self._picture.state
        if self._as_json:
            print_json(self._picture.as_json())
        else:
            say(f"{datetime.now(UTC):%H:%M:%SZ}  {self._picture.as_text()}")
