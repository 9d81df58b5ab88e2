"""Loading the real schedules of `examples/schedules.csv` as jobs of made-up tenants."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from sqlalchemy import Engine, text

from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.scheduling.hashing import stable_hash
from cronless_dagster.store import jobs
from cronless_dagster.store.database import transaction

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Every so many renewals fail their first try: a demo without a failure would show nothing of retries.
_FAILING = 10
_COLUMNS = {"tenant", "job_type", "name", "expr", "timezone", "source_repo", "source_path"}


class DemoError(CronlessError):
    """The demo can't be shown; the message says what to do."""


def load_schedules(engine: Engine, path: Path) -> tuple[int, int]:
    """Add a job for each row, unless the table already has jobs. Returns (jobs added, jobs there).

    All rows or none: one transaction.

    Raises:
        DemoError: The file is missing or has no such columns.
    """
    with transaction(engine) as connection:
        there = connection.execute(text("SELECT count(*) FROM cronless.scheduled_job")).scalar_one()
        if there:
            return 0, there
        added = 0
        for row in _rows(path):
            jobs.add(
                connection,
                tenant_id=row["tenant"],
                job_type=row["job_type"],
                name=row["name"],
                schedule=row["expr"],
                timezone=row["timezone"] or "UTC",
                payload=_payload(row),
            )
            added += 1
    return added, added


def _payload(row: dict[str, str]) -> dict[str, object]:
    payload: dict[str, object] = {
        "source": f"{row['source_repo']}/{row['source_path']}",
        "made_up": "tenant, job type",
    }
    if row["job_type"] == "webhook_renewal" and stable_hash(row["tenant"], row["name"]) % _FAILING == 0:
        payload["fails_first"] = True
    return payload


def _rows(path: Path) -> Iterator[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = _COLUMNS - set(reader.fieldnames or ())
            if missing:
                raise DemoError(f"{path} has no column {', '.join(sorted(missing))}: see examples/README.md")
            yield from reader
    except FileNotFoundError as error:
        raise DemoError(
            f"the schedules {path} are missing: run the demo from a clone, or name them with --schedules"
        ) from error
