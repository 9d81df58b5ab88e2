"""Keeping what was started: leases renewed at a third of them, many jobs at a time."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction
from cronless_dagster.store.executions import renew_jobs
from cronless_dagster.telemetry.events import event

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sqlalchemy import Engine

    from cronless_dagster.engine.job_types import JobType
    from cronless_dagster.store.rows import ClaimedJob
    from cronless_dagster.worker.started import StartedJobs

logger = logging.getLogger(__name__)

_BATCH = 1_000


class Leases:
    """A thread that renews the leases of the jobs held, and forgets those that are no longer ours.

    A database that is away for a while is no reason to forget any: the finish fence decides in the end.
    """

    def __init__(
        self, engine: Engine, types: Mapping[str, JobType], started: StartedJobs, now: datetime | None
    ) -> None:
        """Prepare."""
        self._engine, self._types, self._started, self._now = engine, types, started, now
        self._every = min(1.0, min(one.lease_seconds for one in types.values()) / 20)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def stop(self) -> None:
        """Renew no more."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            due: dict[str, list[ClaimedJob]] = {}
            for job in self._started.due():
                due.setdefault(job.job_type, []).append(job)
            try:
                for name, jobs in due.items():
                    for first in range(0, len(jobs), _BATCH):
                        self._renew(self._types[name], jobs[first : first + _BATCH])
            except (CronlessError, SQLAlchemyError) as error:
                event(logger, "lease.not_renewed", logging.WARNING, error=error)
            except Exception:  # noqa: BLE001 - told with its traceback
                # Without renewals all that runs here would sooner or later run elsewhere too.
                event(logger, "lease.not_renewed", logging.ERROR, exc_info=True)

    def _renew(self, job_type: JobType, jobs: list[ClaimedJob]) -> None:
        with transaction(self._engine) as connection:
            at = current_time(connection, self._now)
            ours = renew_jobs(connection, jobs, job_type.lease_seconds, at)
        self._started.renewed([job for job in jobs if job.id in ours], job_type.lease_seconds / 3)
        # Also those that were written meanwhile, which nobody asks about any more.
        self._started.forget([job for job in jobs if job.id not in ours])
