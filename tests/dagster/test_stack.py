"""The whole of Dagster: web server, daemon, code server and runs as processes, on PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from cronless_dagster.store import jobs
from tests.dagster import switches
from tests.dagster.job_types import CREATE_CALLS
from tests.dagster.site import eventually
from tests.dagster.stack import Stack
from tests.dagster.support import add_due, assert_all_done_once, outcomes
from tests.engine.support import far_away

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from tests.dagster.conftest import Ground

pytestmark = [pytest.mark.dagster, pytest.mark.crash, pytest.mark.slow]

SENSOR = """
query ($selector: SensorSelector!) {
  sensorOrError(sensorSelector: $selector) {
    ... on Sensor { sensorState { status ticks(limit: 20) { status skipReason error { message } } } }
  }
}
"""
ASSET = """
{ assetOrError(assetKey: {path: ["cronless", "digest"]}) {
    ... on Asset {
      assetMaterializations(limit: 50) { metadataEntries { label ... on IntMetadataEntry { intValue } } }
    } } }
"""


def wait_until_done(stack: Stack, ids: list[UUID]) -> None:
    """Wait until each job has succeeded, and its run too."""

    def done() -> bool:
        with stack.engine.connect() as connection:
            succeeded = connection.scalar(
                text(
                    "SELECT count(DISTINCT job_id) FROM cronless.job_execution"
                    " WHERE outcome = 'success' AND job_id = ANY (:ids)"
                ),
                {"ids": ids},
            )
        ended = all(run["status"] in ("SUCCESS", "FAILURE", "CANCELED") for run in stack.runs())
        return succeeded == len(ids) and ended

    eventually(done, f"the success of {len(ids)} jobs", seconds=300)


@pytest.fixture(scope="module")
def stack(ground: Ground) -> Iterator[Stack]:
    """Start all of Dagster once."""
    with ground() as (url, directory, spawn):
        turned_on = directory / "switches"
        turned_on.mkdir()
        made = Stack(
            url,
            directory,
            spawn,
            module="tests.dagster.location",
            environment={switches.VARIABLE: str(turned_on)},
        )
        with made.engine.begin() as connection:
            connection.execute(CREATE_CALLS)
        made.start_all()
        yield made
        made.engine.dispose()


def test_due_jobs_become_runs_and_get_their_next_occurrence(stack: Stack) -> None:
    """Four hundred due jobs of two types are two runs that succeed, and nobody had to turn anything on."""
    before = datetime.now(UTC)
    ids = add_due(stack.engine, "digest", 300) + add_due(stack.engine, "renewal", 100)
    wait_until_done(stack, ids)
    assert_all_done_once(stack.engine, ids, after=before)
    assert sorted((run["jobName"], run["status"]) for run in stack.runs()) == [
        ("cronless_digest", "SUCCESS"),
        ("cronless_renewal", "SUCCESS"),
    ]
    selector = {
        "repositoryLocationName": "stack",
        "repositoryName": "__repository__",
        "sensorName": "cronless_tick",
    }
    state = stack.graphql(SENSOR, selector=selector)["sensorOrError"]["sensorState"]
    assert state["status"] == "RUNNING"
    assert "SUCCESS" in {tick["status"] for tick in state["ticks"]}
    assert not [tick["error"] for tick in state["ticks"] if tick["error"]]
    [materialization] = stack.graphql(ASSET)["assetOrError"]["assetMaterializations"]
    numbers = {entry["label"]: entry.get("intValue") for entry in materialization["metadataEntries"]}
    assert (numbers["claimed"], numbers["succeeded"], numbers["failed"]) == (300, 300, 0)


def test_all_of_dagster_is_killed_one_after_the_other(stack: Stack) -> None:
    """The code server with its answer in hand, then the daemon, while jobs are due: all are done once."""
    with stack.engine.connect() as connection:
        earlier = list(connection.scalars(text("SELECT id FROM cronless.scheduled_job")).all())
    before = datetime.now(UTC)
    (stack.home / "switches" / "die_after_commit").touch()
    ids = add_due(stack.engine, "digest", 50) + add_due(stack.engine, "renewal", 50)
    stack.processes["code"].wait(timeout=180)
    stack.start("code")
    stack.kill("daemon")
    ids += add_due(stack.engine, "digest", 50)
    stack.start("daemon")
    wait_until_done(stack, ids)
    assert_all_done_once(stack.engine, [*earlier, *ids], after=before)
    assert outcomes(stack.engine) == {"success": len(earlier) + len(ids)}
    assert {run["status"] for run in stack.runs()} == {"SUCCESS"}


def test_a_users_own_asset_job_runs_for_each_tenant(stack: Stack) -> None:
    """Real runs of a user's asset: each tenant's partition, a failure that its row learns of, a tenant refused."""
    with stack.engine.begin() as connection:
        for tenant in ("acme", "broken-inc", "../x"):
            jobs.add(
                connection,
                tenant_id=tenant,
                job_type="own_report",
                schedule=far_away(datetime.now(UTC)),
                next_run_at=datetime.now(UTC) - timedelta(seconds=30),
                max_attempts=1,
            )

    def rows() -> dict[str, Any]:
        with stack.engine.connect() as connection:
            found = connection.execute(
                text("SELECT * FROM cronless.scheduled_job WHERE job_type = 'own_report'")
            ).all()
        ended = all(row.last_outcome is not None and row.status == "PENDING" for row in found)
        return {row.tenant_id: row for row in found} if ended else {}

    ended = eventually(rows, "the end of the users' own runs", seconds=300)
    assert {tenant: row.last_outcome for tenant, row in ended.items()} == {
        "acme": "success",
        "broken-inc": "exhausted",
        "../x": "exhausted",
    }
    assert "ValueError: no report for this tenant" in ended["broken-inc"].last_error
    assert "contains '/'" in ended["../x"].last_error
    own = [run for run in stack.runs() if run["jobName"] == "own_report_job"]
    assert {(tag["value"]) for run in own for tag in run["tags"] if tag["key"] == "dagster/partition"} == {
        "acme",
        "broken-inc",
    }
