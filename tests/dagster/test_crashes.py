"""Processes of Dagster killed at named points: no job is lost, and no occurrence accepted twice."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import dagster._grpc.client
import pytest
from sqlalchemy import text

from tests.dagster.site import eventually
from tests.dagster.support import assert_all_done_once, job_rows, outcomes

if TYPE_CHECKING:
    from tests.dagster.site import Site

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.crash,
    pytest.mark.slow,
    # Dagster's own, on its way through an interrupted tick.
    pytest.mark.filterwarnings("ignore:The 'warn' method is deprecated:DeprecationWarning"),
]


class TestDaemon:
    """Dagster's daemon is killed while it evaluates the sensor."""

    @pytest.mark.parametrize("point", ["TICK_HELD", "RUN_IDS_RESERVED", "RUN_CREATED", "RUN_LAUNCHED"])
    def test_killed(self, site: Site, point: str) -> None:
        """Before the evaluation, after the reservation, after a run was made, in mid-launch."""
        ids = site.add(6, "digest") + site.add(4, "renewal")
        site.tick_and_die(point)
        site.tick()
        site.work_off()
        assert_all_done_once(site.engine, ids)
        assert set(site.calls().values()) == {1}


class TestCodeServer:
    """The code server is killed, or Dagster no longer listens to it."""

    def test_killed_with_the_answer_in_hand(self, site: Site) -> None:
        """The claims are committed and their hand-over is lost: the next tick hands them over again."""
        ids = site.add(6, "digest") + site.add(4, "renewal")
        site.switch("die_after_commit")
        assert site.tick().status.value == "FAILURE"
        assert [claim.state for claim in site.open_claims()] == ["CLAIMED", "CLAIMED"]
        assert site.runs() == []
        site.restart_code_server()
        site.tick()
        assert site.launch_all() == ["SUCCESS", "SUCCESS"]
        assert_all_done_once(site.engine, ids)
        assert set(site.calls().values()) == {1}

    def test_cut_off_by_the_time_limit(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        """Dagster gives up, the function goes on and commits: the next tick hands over what it claimed."""
        ids = site.add(5)
        site.switch("slow_tick", "4")
        with monkeypatch.context() as patch:
            patch.setattr(dagster._grpc.client, "DEFAULT_SENSOR_GRPC_TIMEOUT", 1)
            tick = site.tick()
        assert tick.status.value == "FAILURE"
        assert "timed out" in str(tick.error)
        assert site.open_claims() == []
        eventually(site.open_claims, "the commit after the time limit")
        site.tick()
        site.work_off()
        assert_all_done_once(site.engine, ids)
        assert set(site.calls().values()) == {1}


class TestRun:
    """The process of a run is killed."""

    def test_before_it_starts_its_claim(self, site: Site) -> None:
        """The claim gets a new run under a new run key, and nobody's retries are used up."""
        ids = site.add(5)
        site.tick()
        site.switch("die_before_fence")
        assert site.launch_all() == ["FAILURE"]
        site.tick()
        assert [claim.dispatches for claim in site.open_claims()] == [1]
        site.forward(minutes=1)
        site.tick()
        assert site.launch_all() == ["SUCCESS"]
        assert len({run.tags["dagster/run_key"] for run in site.runs()}) == 2
        assert_all_done_once(site.engine, ids)
        assert set(site.calls().values()) == {1}
        assert outcomes(site.engine) == {"success": 5}

    def test_in_the_middle_of_its_batch(self, site: Site) -> None:
        """What was accepted stays so; the rest runs in claims of a tenth each."""
        ids = site.add(40, payload={"die_if": "die_in_batch"})
        site.tick()
        [run] = site.runs("QUEUED")
        # Turned on while the run is in the middle: it dies some jobs after its second batch was accepted.
        with site.engine.begin() as connection:
            connection.execute(
                text(
                    'UPDATE cronless.scheduled_job SET payload = \'{"wait_for": "half", "die_if": "die_in_batch"}\''
                    " WHERE id = (SELECT id FROM cronless.scheduled_job ORDER BY id OFFSET 24 LIMIT 1)"
                )
            )
        run_id = site.launch(run)
        site.waits(run_id, "half")
        eventually(lambda: outcomes(site.engine).get("success", 0) >= 10, "the first accepted batch")
        site.switch("die_in_batch")
        site.switch("half")
        assert site.ended(run_id) == "FAILURE"
        accepted = {job.id for job in job_rows(site.engine) if job.status == "PENDING"}
        assert 10 <= len(accepted) < 25
        site.work_off()
        assert_all_done_once(site.engine, ids)
        calls = site.calls()
        assert {calls[job_id] for job_id in accepted} == {1}
        assert set(calls.values()) == {1, 2}
        assert outcomes(site.engine) == {"success": 40}

    def test_together_with_its_code_server(self, site: Site) -> None:
        """Dagster shows the run as STARTED for ever; its claim's lease runs out."""
        ids = site.add(3, payload={"wait_for": "never", "die_if": "die_in_batch"})
        site.tick()
        [run] = site.runs("QUEUED")
        run_id = site.launch(run)
        site.waits(run_id, "never")
        site.kill_code_server()
        site.switch("die_in_batch")
        site.switch("never")
        with site.engine.connect() as connection:
            pid = connection.execute(text("SELECT pid FROM public.calls")).scalar()
        eventually(lambda: not _alive(pid), "the run's death")
        site.restart_code_server()
        time.sleep(0.5)
        site.tick()
        assert [run.run_id for run in site.runs("STARTED")] == [run_id]
        assert [claim.state for claim in site.open_claims()] == ["RUNNING"]
        site.forward(minutes=11)
        site.work_off()
        assert_all_done_once(site.engine, ids)

    def test_by_one_of_its_own_jobs(self, site: Site) -> None:
        """Its neighbour succeeds; the culprit is found alone, and after three deaths it is INVALID."""
        [innocent] = site.add(1)
        [culprit] = site.add(1, payload={"kills": True})
        ended = []
        for _ in range(6):
            site.tick()
            ended += site.launch_all()
            site.forward(minutes=1)
        site.tick()
        assert site.open_claims() == []
        assert sorted(ended) == ["FAILURE"] * 4 + ["SUCCESS"]
        rows = {row.id: row for row in job_rows(site.engine)}
        assert rows[innocent].status == "PENDING"
        assert rows[culprit].status == "INVALID"
        assert rows[culprit].invalid_reason.startswith("kills its worker")
        assert rows[culprit].consecutive_failures == 0
        assert outcomes(site.engine) == {"success": 1, "crashed": 3}


def _alive(pid: int) -> bool:
    import psutil

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
