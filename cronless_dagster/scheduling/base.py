"""What every kind of schedule answers: the next instant, and what lies in a stretch of time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from uuid import UUID

DstPolicy = Literal["vixie", "wall", "wall-first"]
DST_POLICIES: tuple[DstPolicy, ...] = get_args(DstPolicy)
Kind = Literal["cron", "every", "once", "rrule", "window", "handler"]

COUNT_BOUND = 10_000
"""The instants of a stretch are counted up to this many; a longer one is said to be cut."""

WALK_BOUND = 1_000
"""The same, where only walking from instant to instant can count them: a batch of jobs that were left alone
for long has to be decided in a tick's time."""


@dataclass(frozen=True, slots=True)
class Schedule(ABC):
    """One schedule in one zone: a value, so equal texts, zones and policies are equal schedules.

    `text` is the schedule as written, `timezone` the IANA name that local times in it refer to,
    `dst_policy` what happens to local times that the zone skips or repeats (see `cron`).
    """

    kind: ClassVar[Kind]

    text: str
    timezone: str
    dst_policy: DstPolicy

    @abstractmethod
    def next_after(
        self, base: datetime, *, job_id: UUID | None = None, anchor: datetime | None = None
    ) -> datetime | None:
        """Return the first instant (UTC) strictly after `base`, or None if there is no further one.

        `base` and `anchor` are aware. `job_id` chooses the minute of `@window`, which raises
        ScheduleError without it. `anchor` is where `@every` and an RRULE without DTSTART begin
        (a job's start, else its creation); without it they begin at 1970-01-01T00:00.
        Raises TimezoneError for a naive `base`.
        """

    def instants_after(
        self, base: datetime, *, job_id: UUID | None = None, anchor: datetime | None = None
    ) -> Iterator[datetime]:
        """Yield the instants (UTC) strictly after `base`, ascending, as far as there are any."""
        at = self.next_after(base, job_id=job_id, anchor=anchor)
        while at is not None:
            yield at
            at = self.next_after(at, job_id=job_id, anchor=anchor)

    def last_at_or_before(
        self,
        limit: datetime,
        *,
        after: datetime,
        job_id: UUID | None = None,
        anchor: datetime | None = None,
    ) -> tuple[datetime | None, int, bool]:
        """Return the last instant in `(after, limit]`, how many there are in it, and if the count is cut.

        The last instant is exact however long the stretch; the count stops at COUNT_BOUND, or at
        WALK_BOUND where the instants have to be walked. No instant: `(None, 0, False)`.
        """
        first = self.next_after(after, job_id=job_id, anchor=anchor)
        if first is None or first > limit:
            return None, 0, False
        count, cut = self.count(after, limit, job_id=job_id, anchor=anchor)
        return self._last(first, limit, job_id, anchor), count, cut

    def local_between(
        self, low: datetime, high: datetime, *, anchor: datetime | None = None
    ) -> datetime | None:
        """Return the first local time this schedule names in `[low, high)`, all naive, gaps included.

        It is how a warning finds firings in skipped and repeated hours. Kinds that count elapsed
        time name no local times and answer None.
        """
        return None

    def count(
        self,
        after: datetime,
        limit: datetime,
        *,
        job_id: UUID | None = None,
        anchor: datetime | None = None,
    ) -> tuple[int, bool]:
        """Return how many instants lie in `(after, limit]`, at most WALK_BOUND, and if there are more.

        A kind that can count without walking does, up to COUNT_BOUND.
        """
        return count_walked(self, after, limit, job_id=job_id, anchor=anchor)

    def _last(
        self, first: datetime, limit: datetime, job_id: UUID | None, anchor: datetime | None
    ) -> datetime:
        """Bisect for the last instant in `[first, limit]`; `first` is one.

        Invariant: `low` is an instant, and none lies in `(high, limit]`.
        """

        def following(at: datetime) -> datetime | None:
            found = self.next_after(at, job_id=job_id, anchor=anchor)
            return found if found is not None and found <= limit else None

        low, high = first, limit
        while following(low) is not None:
            while (found := following(middle := low + (high - low) / 2)) is None:
                high = middle
            low = found
        return low


def count_walked(
    schedule: Schedule,
    after: datetime,
    limit: datetime,
    *,
    job_id: UUID | None = None,
    anchor: datetime | None = None,
    at_most: int = WALK_BOUND,
) -> tuple[int, bool]:
    """Count the instants in `(after, limit]` one by one, as `Schedule.count` does unless it knows better."""
    count = 0
    for at in islice(schedule.instants_after(after, job_id=job_id, anchor=anchor), at_most + 1):
        if at > limit:
            return count, False
        count += 1
    return min(count, at_most), count > at_most
