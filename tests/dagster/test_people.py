"""What people do with runs in Dagster's UI: cancel, delete, re-execute. The jobs' table stays right throughout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.dagster.site import eventually
from tests.dagster.support import assert_all_done_once, job_rows, outcomes

if TYPE_CHECKING:
    from uuid import UUID

    from tests.dagster.site import Site

pytestmark = [pytest.mark.dagster, pytest.mark.crash, pytest.mark.slow]

CANCEL = """
mutation ($id: String!) { terminateRun(runId: $id) { __typename ... on PythonError { message } } }
"""
DELETE = """
mutation ($id: String!) { deletePipelineRun(runId: $id) { __typename ... on PythonError { message } } }
"""
REEXECUTE = """
mutation ($parent: String!) {
  launchRunReexecution(reexecutionParams: {parentRunId: $parent, strategy: ALL_STEPS}) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}
"""


def cancel(site: Site, run_id: str) -> None:
    """Press "Terminate"."""
    assert site.graphql(CANCEL, id=run_id)["terminateRun"]["__typename"] == "TerminateRunSuccess"


def delete(site: Site, run_id: str) -> None:
    """Press "Delete"."""
    assert site.graphql(DELETE, id=run_id)["deletePipelineRun"]["__typename"] == "DeletePipelineRunSuccess"


def reexecute(site: Site, run_id: str) -> str:
    """Press "Re-execute all"; returns the new run's id."""
    answer = site.graphql(REEXECUTE, parent=run_id)["launchRunReexecution"]
    assert answer["__typename"] == "LaunchRunSuccess", answer
    return str(answer["run"]["runId"])


def queued(site: Site) -> str:
    """Tick and return the id of the one run that is queued now."""
    site.tick()
    [run] = site.runs("QUEUED")
    return run.run_id


def started(site: Site, switch: str) -> str:
    """Tick and start the run; returns its id once its first job waits for the switch."""
    run_id = queued(site)
    [run] = site.runs("QUEUED")
    site.launch(run)
    site.waits(run_id, switch)
    return run_id


def assert_canceled(site: Site, ids: list[UUID], done: int) -> None:
    """Check that the finished jobs are recorded as done and the others as canceled, each once, all going on."""
    recorded = outcomes(site.engine)
    assert recorded == {
        name: number for name, number in (("success", done), ("canceled", len(ids) - done)) if number
    }
    for row in job_rows(site.engine):
        assert (row.status, row.attempt, row.consecutive_failures) == ("PENDING", 0, 0)
        assert row.next_run_at > site.started_at
    assert site.open_claims() == []


class TestCancel:
    """A person's "no" counts: the occurrence is over, the job goes on with its next one."""

    def test_a_queued_run(self, site: Site) -> None:
        """Nothing has begun: all of the batch's occurrences are canceled."""
        ids = site.add(4)
        cancel(site, queued(site))
        site.tick()
        assert_canceled(site, ids, done=0)
        assert site.calls() == {}
        site.tick()
        assert site.runs("QUEUED") == []

    def test_a_started_run(self, site: Site) -> None:
        """What is done is done; the job at work and those after it are canceled."""
        ids = site.add(1) + site.add(3, payload={"wait_for": "never"})
        ids.sort()
        run_id = started(site, "never")
        done = len(site.calls()) - 1
        cancel(site, run_id)
        assert site.ended(run_id) == "CANCELED"
        site.tick()
        assert_canceled(site, ids, done)

    def test_before_a_tick_has_seen_the_run(self, site: Site) -> None:
        """A run canceled within the same minute is found by its tag."""
        ids = site.add(2)
        run_id = queued(site)
        assert [claim.state for claim in site.open_claims()] == ["CLAIMED"]
        cancel(site, run_id)
        site.tick()
        assert_canceled(site, ids, done=0)


class TestDelete:
    """Deleting a run takes its record away, not the work."""

    @pytest.mark.parametrize("seen", [True, False], ids=["seen", "unseen"])
    def test_a_queued_run(self, site: Site, *, seen: bool) -> None:
        """The claim gets another run, whether or not a tick had seen the first one."""
        ids = site.add(3)
        run_id = queued(site)
        if seen:
            site.tick()
        assert [claim.state for claim in site.open_claims()] == ["SUBMITTED" if seen else "CLAIMED"]
        delete(site, run_id)
        site.work_off()
        assert_all_done_once(site.engine, ids)

    def test_a_started_run(self, site: Site) -> None:
        """Its process may still be at work, so the claim is left to it while it renews its lease."""
        ids = site.add(3, payload={"wait_for": "later"})
        run_id = started(site, "later")
        delete(site, run_id)
        site.tick()
        assert [claim.state for claim in site.open_claims()] == ["RUNNING"]
        assert site.runs("QUEUED") == []
        site.switch("later")
        eventually(lambda: len(site.calls()) == 3, "the other jobs")
        eventually(lambda: outcomes(site.engine).get("success") == 3, "the finish")
        site.work_off()
        assert_all_done_once(site.engine, ids)
        assert set(site.calls().values()) == {1}


class TestReexecute:
    """A re-executed run has the same claim: it does what is left to do, which mostly is nothing."""

    def test_a_run_that_succeeded(self, site: Site) -> None:
        """Its claim is closed: the new run says so and succeeds."""
        ids = site.add(3)
        run_id = queued(site)
        assert site.launch_all() == ["SUCCESS"]
        new = reexecute(site, run_id)
        assert site.launch_all() == ["SUCCESS"]
        said = [entry.user_message for entry in site.instance.all_logs(new)]
        assert any("is closed (done)" in message for message in said)
        site.tick()
        assert_all_done_once(site.engine, ids)
        assert set(site.calls().values()) == {1}

    def test_a_run_that_failed_before_its_claim(self, site: Site) -> None:
        """The person was quicker than the tick: the new run does the work, and no third one is made."""
        ids = site.add(3)
        run_id = queued(site)
        site.instance.report_run_failed(site.runs("QUEUED")[0], "the machine had no memory left")
        reexecute(site, run_id)
        site.tick()
        assert site.launch_all() == ["SUCCESS"]
        site.forward(minutes=5)
        site.tick()
        assert site.runs("QUEUED") == []
        assert_all_done_once(site.engine, ids)
        assert set(site.calls().values()) == {1}

    def test_a_run_that_died_in_its_batch(self, site: Site) -> None:
        """The claim is still the dead run's: the new run leaves it alone, and the tick cuts it in parts."""
        ids = site.add(3, payload={"die_if": "die_in_batch"})
        run_id = queued(site)
        site.switch("die_in_batch")
        assert site.launch_all() == ["FAILURE"]
        new = reexecute(site, run_id)
        assert site.launch_all() == ["SUCCESS"]
        said = [entry.user_message for entry in site.instance.all_logs(new)]
        assert any(f"is held by run {run_id}" in message for message in said)
        site.work_off()
        assert_all_done_once(site.engine, ids)
