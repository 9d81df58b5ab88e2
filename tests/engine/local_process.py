"""A process that ticks and runs claims by itself, and stops for ever at a named point, to be killed there.

Run as `python -m tests.engine.local_process DATABASE_URL POINT FILE`; FILE appears once the point is reached.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

from cronless_dagster.engine import local, running
from cronless_dagster.engine.local import tick_and_run
from cronless_dagster.store.database import create_store_engine
from tests.engine.support import types_of

FINISHED_BEFORE_THE_MIDDLE = 60


def main(url: str, point: str, file: str) -> None:
    """Tick once; the claim never ends."""

    def reached() -> None:
        Path(file).touch()
        threading.Event().wait()

    served: list[Any] = []

    def handler(job: Any) -> None:
        served.append(job)
        if point == "started" or (point == "middle" and len(served) > FINISHED_BEFORE_THE_MIDDLE):
            reached()

    running.FINISH_BATCH = 20
    finish_jobs, run_claim = running.finish_jobs, local.run_claim
    finishes: list[int] = []

    def finish_and_stop(*rest: Any, **options: Any) -> set[Any]:
        accepted = finish_jobs(*rest, **options)
        finishes.append(1)
        if point == "finishing" and len(finishes) == 3:
            reached()
        return accepted

    def stop_before_the_run(*rest: Any, **options: Any) -> Any:
        if point == "claimed":
            reached()
        return run_claim(*rest, **options)

    running.finish_jobs = finish_and_stop
    local.run_claim = stop_before_the_run
    tick_and_run(create_store_engine(url), types_of(handler, concurrency=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
