"""A process that is killed in the middle of its claim: all of its jobs are done once, later."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.engine.local import tick_and_run
from tests.engine.local_process import FINISHED_BEFORE_THE_MIDDLE
from tests.engine.support import add_many, history, outcomes, sql, types_of

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine

    from tests.processes import Spawner

JOBS = 200


@pytest.mark.crash
@pytest.mark.parametrize(
    ("point", "finished"),
    [("claimed", 0), ("started", 0), ("middle", FINISHED_BEFORE_THE_MIDDLE), ("finishing", 40)],
)
def test_killed_local_process(
    engine: Engine, pg_url: str, spawn: Spawner, tmp_path: Path, point: str, finished: int
) -> None:
    """SIGKILL after the claim, after the start, in mid-claim and in mid-transaction: none lost, none twice."""
    ids = add_many(engine, JOBS, "0 0 1 1 *")
    sql(engine, "UPDATE cronless.scheduled_job SET next_run_at = now(), name = name")
    [due] = sql(engine, "SELECT DISTINCT scheduled_for FROM cronless.scheduled_job")
    reached = tmp_path / "reached"
    process = spawn(
        sys.executable,
        "-m",
        "tests.engine.local_process",
        pg_url,
        point,
        str(reached),
        output=tmp_path / "log",
    )
    while not reached.exists():
        assert process.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.05)
    # What was finished is written beside the work.
    for _ in range(1200):
        if len(outcomes(engine)) >= finished:
            break
        time.sleep(0.05)
    process.kill()
    process.wait()

    assert len(outcomes(engine)) == finished
    types = types_of()
    tick_and_run(engine, types)
    # What it hadn't started is anybody's; what it holds is left to it until its lease is over.
    assert len(outcomes(engine)) == (JOBS if point == "claimed" else finished)

    sql(engine, "UPDATE cronless.job_claim SET lease_expires_at = now() - interval '1 second'")
    for _ in range(3):
        tick_and_run(engine, types)
    lines = history(engine)
    assert [line.outcome for line in lines] == ["success"] * JOBS
    assert {line.job_id for line in lines} == set(ids)
    assert {line.scheduled_for for line in lines} == {due.scheduled_for}
    rows = sql(
        engine,
        "SELECT DISTINCT status, attempt, crashes, consecutive_failures, next_run_at > now() AS planned"
        " FROM cronless.scheduled_job",
    )
    assert [tuple(line) for line in rows] == [("PENDING", 0, 0, 0, True)]
    assert sql(engine, "SELECT 1 FROM cronless.job_claim WHERE state <> 'CLOSED'") == []
