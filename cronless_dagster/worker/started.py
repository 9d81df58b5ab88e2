"""The jobs that this process holds: started, and their result not yet written."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from cronless_dagster.store.rows import ClaimedJob


class StartedJobs:
    """By job id; used by all of a worker's threads.

    A job that was lost and is started here once more replaces its older self, which is no longer current.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._jobs: dict[UUID, tuple[ClaimedJob, float]] = {}

    def __len__(self) -> int:
        """Count them."""
        return len(self._jobs)

    def add(self, jobs: Iterable[ClaimedJob], renew_in: float) -> None:
        """Hold jobs whose lease is to be renewed in so many seconds, or hold them that much longer."""
        renew_at = time.monotonic() + renew_in
        with self._lock:
            for job in jobs:
                self._jobs[job.id] = job, renew_at

    def renewed(self, jobs: Iterable[ClaimedJob], renew_in: float) -> None:
        """Note the next renewal of those jobs that are still held."""
        renew_at = time.monotonic() + renew_in
        with self._lock:
            for job in jobs:
                if self.is_current(job):
                    self._jobs[job.id] = job, renew_at

    def forget(self, jobs: Iterable[ClaimedJob]) -> None:
        """Hold jobs no longer: they are written, given back or lost."""
        with self._lock:
            for job in jobs:
                if self.is_current(job):
                    del self._jobs[job.id]

    def is_current(self, job: ClaimedJob) -> bool:
        """Tell whether a job is held under the execution that it was started with."""
        found = self._jobs.get(job.id)
        return found is not None and found[0].execution_id == job.execution_id

    def due(self) -> list[ClaimedJob]:
        """Return the jobs whose lease is to be renewed now."""
        now = time.monotonic()
        with self._lock:
            return [job for job, renew_at in self._jobs.values() if renew_at <= now]

    def by_type(self) -> Counter[str]:
        """Count them by job type."""
        with self._lock:
            return Counter(job.job_type for job, _ in self._jobs.values())
