"""A run over many no-op jobs beside the bare claim-and-put-back of the same rows: `python -m benchmarks.run`.

Ours passes the claim's fence, loads the jobs, calls the handler for each, plans each next occurrence in its zone,
and finishes with history. The other side takes the same rows by the bare claim, ids returned, and puts
them back with a next instant that nobody had to compute, in batches of 2,000: the least that any dispatcher has to do.
"""

from __future__ import annotations

from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING
from uuid import uuid4

from sqlalchemy import text

from benchmarks.claim import BARE, NAME
from benchmarks.support import Ratio, database, fill, job_types, print_table, seconds, server, tidy
from cronless_dagster.engine.running import run_claim
from cronless_dagster.scheduling.shards import FULL
from cronless_dagster.store.claims import claim_due
from cronless_dagster.store.database import transaction

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy import Engine

    from cronless_dagster.store.embedded import EmbeddedPostgres

BATCH = 2_000
_CLAIM = text(f"{BARE.text} RETURNING id, next_run_at")
_PUT_BACK = text(
    "UPDATE cronless.scheduled_job AS job SET status = 'PENDING', claim_id = NULL, next_run_at = back.next_run_at,"
    " plan_count = job.plan_count + 1"
    " FROM unnest(CAST(:ids AS uuid[]), CAST(:instants AS timestamptz[])) AS back (id, next_run_at)"
    " WHERE job.id = back.id"
)
_DUE_AGAIN = text(
    "UPDATE cronless.scheduled_job SET scheduled_for = date_trunc('minute', now() - interval '2 minutes'),"
    " next_run_at = date_trunc('minute', now() - interval '2 minutes'), plan_count = plan_count + 1"
)


def measure(running: EmbeddedPostgres, *, quick: bool = False) -> list[Ratio]:
    """Return the ratio of the two rates."""
    rows, rounds = (4_000, 1) if quick else (50_000, 3)
    times: dict[str, list[float]] = {"ours": [], "bare": []}
    with database(running, "run") as engine:
        fill(engine, rows, due=True, types=(NAME,))
        for number in range(rounds):
            for side in ("ours", "bare") if number % 2 else ("bare", "ours"):
                with engine.begin() as connection:
                    connection.execute(_DUE_AGAIN)
                tidy(engine)
                times[side].append(
                    _run(engine, rows) if side == "ours" else _claim_and_put_back(engine, rows)
                )
    rates = {side: rows / median(spent) for side, spent in times.items()}
    what = f"run over {rows:,} no-op jobs beside claim and put back"
    return [Ratio(what, rates["ours"], rates["bare"], "jobs/s", 0.4, "at least")]


def claimed(engine: Engine, rows: int) -> UUID:
    """Claim all due rows at once, as the tick would; returns the claim."""
    with transaction(engine, statement_timeout_ms=600_000) as connection:
        now = connection.execute(text("SELECT now()")).scalar_one()
        taken = claim_due(
            connection, job_type=NAME, route="run", batch_size=rows, lease_seconds=600, now=now, ids=FULL
        )
    assert taken is not None
    assert taken.count == rows
    return taken.claim_id


def _run(engine: Engine, rows: int) -> float:
    claim_id = claimed(engine, rows)
    tidy(engine)

    def run() -> None:
        report = run_claim(engine, job_types(batch_size=rows), claim_id, execution_id=uuid4())
        assert report.succeeded == rows, report

    return seconds(run)


def _claim_and_put_back(engine: Engine, rows: int) -> float:
    def move() -> None:
        moved = 0
        while True:
            claim = uuid4()
            with engine.begin() as connection:
                taken = connection.execute(
                    _CLAIM, {"claim": claim, "job_type": NAME, "batch_size": BATCH}
                ).all()
            if not taken:
                break
            later = [row.next_run_at + timedelta(hours=2) for row in taken]
            with engine.begin() as connection:
                connection.execute(_PUT_BACK, {"ids": [row.id for row in taken], "instants": later})
            moved += len(taken)
        assert moved == rows

    return seconds(move)


if __name__ == "__main__":
    with server() as made:
        print_table(measure(made), "a run")
