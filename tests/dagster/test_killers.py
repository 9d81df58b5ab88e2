"""Jobs that kill the process that runs them, in a batch of many: the executor is made up, the deaths are real."""

from __future__ import annotations

import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from sqlalchemy import text

from cronless_dagster.engine.tick import tick
from cronless_dagster.store.clock import make_virtual
from tests.dagster import switches
from tests.dagster.job_types import CREATE_CALLS, job_types
from tests.dagster.support import add_due, assert_all_done_once, job_rows, outcomes
from tests.engine.support import FakeRuns

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from tests.processes import Spawner

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.crash


def claimed_jobs(engine: Engine, claim_id: UUID) -> set[UUID]:
    """Return the jobs that a claim holds."""
    with engine.connect() as connection:
        return set(
            connection.scalars(
                text("SELECT id FROM cronless.scheduled_job WHERE claim_id = :id"), {"id": claim_id}
            ).all()
        )


@pytest.mark.parametrize("killers", [1, 3])
def test_neighbours_succeed_and_the_culprit_is_found_alone(
    engine: Engine, pg_url: str, tmp_path: Path, spawn: Spawner, killers: int
) -> None:
    """Thirty jobs in one batch, some of which kill their holder: all others succeed, each exactly once."""
    now = datetime.now(UTC)
    make_virtual(engine, now)
    with engine.begin() as connection:
        connection.execute(CREATE_CALLS)
    harmless = add_due(engine, "digest", 30 - killers, now=now)
    deadly = add_due(engine, "digest", killers, payload={"kills": True}, now=now)
    runs = FakeRuns()
    deaths = 0
    for _ in range(12):
        report = tick(engine, job_types, now=now, runs=runs)
        for one in report.hand_over:
            run_id = runs.launch(one)
            assert run_id is not None
            holder = (
                spawn(
                    *(sys.executable, "-m", "tests.dagster.run_one", str(one.claim_id), run_id),
                    env={"CRONLESS_DATABASE_URL": pg_url, switches.VARIABLE: str(tmp_path)},
                    cwd=str(ROOT),
                    output=tmp_path / "runs.log",
                )
                if claimed_jobs(engine, one.claim_id) & set(deadly)
                else None
            )
            if holder is None:
                _run_here(engine, one.claim_id, run_id)
                runs.set(run_id, "success")
                continue
            assert holder.wait(timeout=120) == -signal.SIGKILL, (tmp_path / "runs.log").read_text()
            deaths += 1
            runs.set(run_id, "failure")
        now += timedelta(minutes=1)
        if not report.hand_over and report.open_claims == 0:
            break
    rows = {row.id: row for row in job_rows(engine)}
    assert {rows[job_id].status for job_id in deadly} == {"INVALID"}
    assert all(rows[job_id].invalid_reason.startswith("kills its worker") for job_id in deadly)
    assert outcomes(engine) == {"success": 30 - killers, "crashed": 3 * killers}
    assert_all_done_once(engine, harmless, after=now)
    # The whole batch, its tenth, and three times alone; never a process for each neighbour.
    assert deaths <= 1 + killers + 3 * killers


def _run_here(engine: Engine, claim_id: UUID, run_id: str) -> None:
    from cronless_dagster.engine.running import run_claim

    run_claim(engine, job_types, claim_id, execution_id=UUID(run_id), run_id=run_id)
