"""What a worker has done so far, counted from several threads and read as one picture."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class TypeCounts:
    """Jobs of one type: accepted successes, accepted other outcomes, started and not yet written."""

    done: int
    failed: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class Counts:
    """A worker's counts at one moment.

    Attributes:
        types: By job type.
        stale: Messages whose token was no longer the row's.
        doubled: Second copies of messages whose job somebody had started.
        discarded: Results of jobs that were no longer ours when they ended.
        lost: Jobs that were no longer ours before their handler was called.
        poisoned: Messages that were no job's, moved to the dead letters.
        returned: Messages given back to their queue unstarted.
        given_back: Started jobs put back in the table, their handler never called.
        unwritten: Results that could not be recorded; their jobs run again.
        held: Messages here that are not started.
        reconnects: How often the connection to the broker was made anew.
        connected: Whether there is a connection to the broker.
        database: Whether the last question to the database was answered.
        paused: Whether no further messages are being taken.
    """

    types: Mapping[str, TypeCounts]
    stale: int
    doubled: int
    discarded: int
    lost: int
    poisoned: int
    returned: int
    given_back: int
    unwritten: int
    held: int
    reconnects: int
    connected: bool
    database: bool
    paused: bool

    @property
    def done(self) -> int:
        """Accepted successes of all types."""
        return sum(one.done for one in self.types.values())

    @property
    def failed(self) -> int:
        """Accepted results of all types that are no success."""
        return sum(one.failed for one in self.types.values())

    @property
    def in_flight(self) -> int:
        """Jobs started here whose result isn't written yet."""
        return sum(one.in_flight for one in self.types.values())

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            **asdict(self),
            "types": {name: asdict(one) for name, one in self.types.items()},
            "done": self.done,
            "failed": self.failed,
            "in_flight": self.in_flight,
        }


class Tally:
    """Numbers that several threads add to."""

    def __init__(self) -> None:
        """Begin at zero."""
        self._lock = threading.Lock()
        self._numbers: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()

    def add(self, what: str, number: int = 1) -> None:
        """Add to one of the numbers of `Counts`."""
        with self._lock:
            self._numbers[what] += number

    def ended(self, job_types: Iterable[tuple[str, bool]]) -> None:
        """Count accepted results, each by its job type and whether it is a success."""
        with self._lock:
            for name, well in job_types:
                (self._done if well else self._failed)[name] += 1

    def read(self) -> tuple[Counter[str], Counter[str], Counter[str]]:
        """Return the numbers, the successes by type and the other results by type."""
        with self._lock:
            return self._numbers.copy(), self._done.copy(), self._failed.copy()
