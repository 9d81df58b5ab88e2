"""The instants of one job: its schedule between its start and its end, with its jitter."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import Self

from cronless_dagster.scheduling.hashing import stable_hash
from cronless_dagster.scheduling.models import MissedReason, MissedStretch, PlannedJob
from cronless_dagster.scheduling.schedules import Schedule, parse_schedule

_MICROSECOND = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)


class Occurrences:
    """A job's schedule, cut at ``starts_at`` and ``ends_at`` (both inclusive).

    Instants are nominal unless a name says otherwise. Every method may raise ``ScheduleError`` for a
    schedule that can't be used with this job.
    """

    __slots__ = ("_anchor", "job", "schedule")

    def __init__(self, job: PlannedJob, schedule: Schedule) -> None:
        self.job = job
        self.schedule = schedule
        self._anchor = job.starts_at or job.created_at

    @classmethod
    def of(cls, job: PlannedJob) -> Self:
        """Read the job's schedule.

        Raises:
            ScheduleError: The schedule or the DST policy is refused.
            TimezoneError: The zone is unknown.
        """
        return cls(job, parse_schedule(job.schedule, job.timezone, job.dst_policy))

    def ended(self, instant: datetime) -> bool:
        """Tell whether the instant lies behind the job's end."""
        return self.job.ends_at is not None and instant > self.job.ends_at

    def after(self, base: datetime) -> datetime | None:
        """Return the first instant strictly after ``base``; None when there is none before the end."""
        job = self.job
        if job.starts_at is not None and base < job.starts_at:
            base = job.starts_at - _MICROSECOND
        instant = self.schedule.next_after(base, job_id=job.id, anchor=self._anchor)
        return None if instant is None or self.ended(instant) else instant

    def last(self, limit: datetime, *, after: datetime) -> tuple[datetime | None, int, bool]:
        """Return the last instant in (after, limit], how many there are, and whether counting was cut."""
        job = self.job
        if job.starts_at is not None and after < job.starts_at:
            after = job.starts_at - _MICROSECOND
        if job.ends_at is not None:
            limit = min(limit, job.ends_at)
        if limit <= after:
            return None, 0, False
        return self.schedule.last_at_or_before(limit, after=after, job_id=job.id, anchor=self._anchor)

    def newest(self, limit: datetime, *, after: datetime, at_most: int) -> list[datetime]:
        """Return the newest ``at_most`` instants in (after, limit], in order.

        The stretch may hold years of minutes, so a window at its end is widened until it holds enough.
        """
        span = timedelta(minutes=at_most)
        while True:
            whole = limit - after <= span
            found: deque[datetime] = deque(maxlen=at_most)
            instant = self.after(after if whole else limit - span)
            while instant is not None and instant <= limit:
                found.append(instant)
                instant = self.after(instant)
            if whole or len(found) == at_most:
                return list(found)
            span *= 2

    def stretch(self, first: datetime, through: datetime, reason: MissedReason) -> MissedStretch:
        """Describe ``first`` and all instants up to and including ``through`` as missed."""
        last, count, cut = self.last(through, after=first)
        return MissedStretch(first, last or first, count + 1, cut, reason)

    def due_at(self, instant: datetime) -> datetime:
        """Return when the job becomes due for an instant: its jitter later, and never before it.

        The jitter is a hash of the id, in whole seconds below ``job.jitter``. It stays below the distance to
        the following instant, so that occurrences keep their order, and never goes behind the end.
        """
        seconds = self.job.jitter // _SECOND
        if seconds <= 0:
            return instant
        delay = _SECOND * (stable_hash("jitter", self.job.id) % seconds)
        following = self.after(instant)
        if following is not None and delay >= following - instant:
            delay %= following - instant
        due = instant + delay
        return due if self.job.ends_at is None else max(instant, min(due, self.job.ends_at))
