"""Claiming beside the bare statement that it grew from: `python -m benchmarks.claim`.

The bare statement is the whole idea of claiming, `UPDATE … SET status = 'QUEUED' … WHERE id IN (SELECT … LIMIT …
FOR UPDATE SKIP LOCKED)`. Ours beside it is a claim as the tick makes it: limits read, misfires looked at, the claim
written to the outbox. Both take batches from the same table in turn. "One batch due" is every tick that keeps
up; "backlog" is the fair claim, which takes equal shares of all tenants.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING
from uuid import uuid4

from sqlalchemy import text

from benchmarks.support import TYPES, Ratio, database, fill, job_types, print_table, seconds, server, tidy
from cronless_dagster.engine.claiming import claim_one
from cronless_dagster.scheduling.limits import Limits
from cronless_dagster.scheduling.shards import FULL
from cronless_dagster.store.fairness import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from cronless_dagster.store.embedded import EmbeddedPostgres

BATCHES = (500, 2_000)
NAME = TYPES[0]
# Raising plan_count keeps our own trigger out of both sides, the token is what a claim can't do without, and with
# paused_at the statement can walk the same index as ours.
BARE = text(
    "UPDATE cronless.scheduled_job SET status = 'QUEUED', claim_id = :claim, plan_count = plan_count + 1"
    " WHERE id IN (SELECT id FROM cronless.scheduled_job"
    " WHERE status = 'PENDING' AND paused_at IS NULL AND job_type = :job_type AND next_run_at <= now()"
    " ORDER BY next_run_at LIMIT :batch_size FOR UPDATE SKIP LOCKED)"
)
_PUT_BACK = text(
    "UPDATE cronless.scheduled_job SET status = 'PENDING', claim_id = NULL,"
    " next_run_at = coalesce(next_run_at, due_at), plan_count = plan_count + 1 WHERE status = 'QUEUED'"
)
_HIDE = text(
    "UPDATE cronless.scheduled_job SET paused_at = now(), plan_count = plan_count + 1 WHERE id NOT IN"
    " (SELECT id FROM cronless.scheduled_job WHERE job_type = :job_type AND status = 'PENDING' AND paused_at IS NULL"
    " AND next_run_at <= now() ORDER BY next_run_at, id LIMIT :kept) AND job_type = :job_type AND paused_at IS NULL"
    " AND next_run_at <= now()"
)


def bare(engine: Engine, batch_size: int) -> int:
    """Claim a batch by the bare statement; returns how many rows it took."""
    with engine.begin() as connection:
        return connection.execute(
            BARE, {"claim": uuid4(), "job_type": NAME, "batch_size": batch_size}
        ).rowcount


def measure(running: EmbeddedPostgres, *, quick: bool = False) -> list[Ratio]:
    """Return the ratios of the rates, for each batch size, for one batch due and for a backlog."""
    rows, due, rounds = (20_000, 8_000, 2) if quick else (300_000, 40_000, 16)
    with database(running, "claim") as engine:
        fill(engine, rows, due=False)
        fill(engine, due, due=True, types=(NAME,), prefix="due-")
        return [
            *(_one_batch(engine, batch_size, rounds) for batch_size in BATCHES),
            *(_backlog(engine, batch_size, rounds) for batch_size in BATCHES),
        ]


def _ours(engine: Engine, batch_size: int, *, backlog: bool) -> Callable[[], int]:
    types = job_types(batch_size=batch_size, limits=Limits(open_claims=1_000_000, in_flight=100_000_000))
    job_type = types[NAME]
    with engine.begin() as connection:
        now = connection.execute(text("SELECT now()")).scalar_one()
    waiting = Waiting(now, None, backlog)
    return lambda: claim_one(engine, job_type, waiting, route="run", ids=FULL, now=None).rows


def _one_batch(engine: Engine, batch_size: int, rounds: int) -> Ratio:
    """Measure with just one batch due, put back after each claim."""
    ours = _ours(engine, batch_size, backlog=False)
    times: dict[str, list[float]] = {"ours": [], "bare": []}
    with engine.begin() as connection:
        connection.execute(_HIDE, {"job_type": NAME, "kept": batch_size})
    for number in range(rounds):
        if number % 4 == 0:
            tidy(engine)
        for side in ("ours", "bare") if number % 2 else ("bare", "ours"):
            took: list[int] = []
            action = ours if side == "ours" else lambda: bare(engine, batch_size)
            times[side].append(seconds(lambda action=action, took=took: took.append(action())))  # type: ignore[misc]
            assert took == [batch_size]
            _put_back(engine)
    with engine.begin() as connection:
        connection.execute(
            text(
                "UPDATE cronless.scheduled_job SET paused_at = NULL, plan_count = plan_count + 1"
                " WHERE paused_at IS NOT NULL"
            )
        )
    tidy(engine)
    return _ratio(f"claim of {batch_size:,}, one batch due", batch_size, times)


def _backlog(engine: Engine, batch_size: int, rounds: int) -> Ratio:
    """Measure batch after batch of a backlog, both sides in turn from the same rows."""
    ours = _ours(engine, batch_size, backlog=True)
    times: dict[str, list[float]] = {"ours": [], "bare": []}
    for number in range(rounds):
        for side in ("ours", "bare") if number % 2 else ("bare", "ours"):
            took: list[int] = []
            action = ours if side == "ours" else lambda: bare(engine, batch_size)
            spent = seconds(lambda action=action, took=took: took.append(action()))  # type: ignore[misc]
            times[side].append(spent * batch_size / took[0])
        if number % 4 == 3:
            _put_back(engine)
            tidy(engine)
    _put_back(engine)
    tidy(engine)
    return _ratio(f"claim of {batch_size:,}, backlog, fair", batch_size, times)


def _put_back(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(_PUT_BACK)
        connection.execute(text("TRUNCATE cronless.job_claim"))


def _ratio(what: str, batch_size: int, times: dict[str, list[float]]) -> Ratio:
    rates = {side: batch_size / median(spent) for side, spent in times.items()}
    return Ratio(what, rates["ours"], rates["bare"], "rows/s", 0.9, "at least")


if __name__ == "__main__":
    with server() as made:
        print_table(measure(made), "claiming")
