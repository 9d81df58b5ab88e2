"""The job type of these tests, for workers and ticks alike; each call of its handler is a line in a file."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cronless_dagster.engine.job_types import JobTypes

if TYPE_CHECKING:
    from cronless_dagster.store.rows import ClaimedJob

CALLS_VARIABLE = "CRONLESS_TEST_CALLS"
LEASE_SECONDS = 60

job_types = JobTypes()


@job_types.job("work", route="queue", lease=timedelta(seconds=LEASE_SECONDS))
def work(job: ClaimedJob) -> None:
    """Count the call, then do what the payload says: take time, wait for a file, end the process."""
    _append(Path(os.environ[CALLS_VARIABLE]), f"{job.id}\n")
    time.sleep(job.payload.get("seconds", 0))
    wait_for = job.payload.get("wait_for")
    while wait_for is not None and not Path(wait_for).exists():
        time.sleep(0.02)
    if job.payload.get("kills"):
        os._exit(9)


def _append(path: Path, line: str) -> None:
    # One write at the file's end: whole lines, also with several processes at it and one of them killed.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
