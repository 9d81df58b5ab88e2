"""Make `schedules.csv`, the demo's scheduled jobs, from the real schedules in `raw_schedules.csv`.

Run it from the project's folder: ``python -m examples.make_schedules``. The same input always gives the same
output. See README.md beside this file for what is real in it and what is made up.
"""

from __future__ import annotations

import csv
from pathlib import Path
from uuid import NAMESPACE_URL, UUID, uuid5

from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.scheduling.hashing import stable_hash
from cronless_dagster.scheduling.schedules import parse_schedule

HERE = Path(__file__).parent
RAW = HERE / "raw_schedules.csv"
MADE = HERE / "schedules.csv"

TENANTS = 100
JOB_TYPES = ("account_research", "email_digest", "webhook_renewal")
COLUMNS = ("tenant", "job_type", "name", "expr", "timezone", "system", "source_repo", "source_path")


def read_raw() -> list[dict[str, str]]:
    """Return the real rows, in the file's order."""
    with RAW.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def readable(row: dict[str, str]) -> bool:
    """Tell whether this project reads the expression as it stands."""
    try:
        parse_schedule(row["expr"], row["timezone"] or "UTC")
    except CronlessError:
        return False
    return True


def row_id(row: dict[str, str]) -> UUID:
    """Return an id that depends on the source row alone."""
    return uuid5(NAMESPACE_URL, "\n".join(row[name] for name in sorted(row)))


def make(raw: list[dict[str, str]]) -> list[dict[str, str]]:
    """Give each readable row a job type and a tenant, both made up.

    Rows are dealt to the tenants in the order of their hashes, so every tenant gets four or five. The names are
    the sources' own; a missing one is numbered.
    """
    dealt = sorted((row for row in raw if readable(row)), key=lambda row: stable_hash("tenant", row_id(row)))
    made = []
    for place, row in enumerate(dealt):
        tenant = f"tenant-{place % TENANTS + 1:03}"
        job_type = JOB_TYPES[stable_hash("job type", row_id(row)) % len(JOB_TYPES)]
        name = row["name"] or f"unnamed-{place + 1:03}"
        made.append({**row, "tenant": tenant, "job_type": job_type, "name": name})
    return sorted(made, key=lambda row: (row["tenant"], row["job_type"], row["name"]))


def main() -> None:
    """Write `schedules.csv` and say how many rows it holds."""
    raw = read_raw()
    rows = make(raw)
    with MADE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    tenants = len({row["tenant"] for row in rows})
    print(f"{len(rows)} of {len(raw)} rows over {tenants} tenants written to {MADE.name}")


if __name__ == "__main__":
    main()
