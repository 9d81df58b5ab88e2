"""The minute waves: in which minutes of the next day most jobs become due, and how to spread them.

Plain functions of counts, without Dagster and without a database.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    Minutes = Mapping[datetime, Mapping[str, int]]
    """Jobs by the minute (UTC, whole) in which they become due, and by job type."""

JITTERS = (5, 15, 30, 60)
"""Minutes of jitter to choose from."""
DAY_MINUTES = 24 * 60
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Wave:
    """A busy minute: how many jobs become due in it, and how many of each type, most first."""

    minute: datetime
    jobs: int
    by_type: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Give the jobs of one type that become due in one minute a jitter.

    Attributes:
        minute: The minute (UTC) whose jobs are to be spread.
        job_type: The type of most of its jobs.
        jobs: How many of that type.
        jitter: How far to spread them.
        highest: Jobs in the busiest minute of that stretch once all proposals are carried out.
    """

    minute: datetime
    job_type: str
    jobs: int
    jitter: timedelta
    highest: int

    @property
    def text(self) -> str:
        """Say it in one sentence."""
        minutes = self.jitter // _MINUTE
        return (
            f"{self.jobs:,} jobs of {self.job_type} at {self.minute:%H:%M} UTC: a jitter of {minutes} min would bring"
            f" the highest minute to {self.highest:,}"
        )

    @property
    def sql(self) -> str:
        """Return the statement that does it; the next tick plans the rows anew."""
        seconds = self.jitter // timedelta(seconds=1)
        following = self.minute + _MINUTE
        return (
            f"UPDATE cronless.scheduled_job SET jitter_seconds = {seconds}\n"  # noqa: S608 - a text for a person
            f"WHERE job_type = {_literal(self.job_type)} AND status = 'PENDING' AND paused_at IS NULL\n"
            f"  AND next_run_at >= '{self.minute:%Y-%m-%dT%H:%MZ}' AND next_run_at < '{following:%Y-%m-%dT%H:%MZ}'\n"
            f"  AND jitter_seconds < {seconds};"
        )


def busiest(minutes: Minutes, most: int = 5) -> list[Wave]:
    """Return the minutes with most jobs, most first; of equal ones the earlier first."""
    waves = [
        Wave(minute, sum(by_type.values()), dict(sorted(by_type.items(), key=lambda one: (-one[1], one[0]))))
        for minute, by_type in minutes.items()
    ]
    return sorted(waves, key=lambda wave: (-wave.jobs, wave.minute))[:most]


def propose_spread(counts: Minutes, *, most: int = 5, least_jobs: int = 100) -> list[Proposal]:
    """Propose which jobs to spread, those of the highest minute first.

    A minute stands out with at least `least_jobs` jobs and four times as many as the average minute of the day. Of its
    jobs those of the type with most get the shortest jitter that ends that, or the longest where none does; nothing
    where the minute would not fall by half at least.
    """
    level = {minute: sum(by_type.values()) for minute, by_type in counts.items()}
    limit = max(least_jobs, 4 * sum(level.values()) // DAY_MINUTES)
    chosen: list[tuple[Wave, str, int]] = []
    for wave in busiest(counts, len(counts)):
        if len(chosen) == most or wave.jobs < limit:
            break
        job_type, jobs = next(iter(wave.by_type.items()))
        left = {jitter: wave.jobs - jobs + math.ceil(jobs / jitter) for jitter in JITTERS}
        jitter = next((jitter for jitter in JITTERS if left[jitter] < limit), JITTERS[-1])
        if left[jitter] * 2 <= wave.jobs:
            chosen.append((wave, job_type, jitter))
            _spread(level, wave.minute, wave.by_type[job_type], jitter)
    return [
        Proposal(
            wave.minute,
            job_type,
            wave.by_type[job_type],
            jitter * _MINUTE,
            max(level.get(wave.minute + n * _MINUTE, 0) for n in range(jitter)),
        )
        for wave, job_type, jitter in chosen
    ]


def _spread(level: dict[datetime, int], minute: datetime, jobs: int, jitter: int) -> None:
    """Move jobs of a minute evenly over the `jitter` minutes that begin with it."""
    level[minute] -= jobs
    share, odd = divmod(jobs, jitter)
    for n in range(jitter):
        at = minute + n * _MINUTE
        level[at] = level.get(at, 0) + share + (1 if n < odd else 0)


def _literal(words: str) -> str:
    return "'" + words.replace("'", "''") + "'"
