"""Dagster's runs as the tick sees them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)

from cronless_dagster.sensors import dagster_runs
from cronless_dagster.sensors.dagster_runs import DagsterRuns

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A Dagster instance in memory."""
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def add_run(
    instance: dg.DagsterInstance, claim: uuid.UUID, status: dg.DagsterRunStatus, dispatch: str = "0"
) -> str:
    """Store a run of a claim, as a sensor's run request would have made it."""
    location = RegisteredCodeLocationOrigin("location")
    run = dg.DagsterRun(
        job_name="cronless_digest",
        run_id=str(uuid.uuid4()),
        status=status,
        remote_job_origin=RemoteJobOrigin(RemoteRepositoryOrigin(location, "repository"), "cronless_digest"),
        tags={"cronless/claim": str(claim), "cronless/dispatch": dispatch},
    )
    instance.add_run(run)
    return run.run_id


EXPECTED = {
    "QUEUED": "waiting",
    "STARTING": "waiting",
    "MANAGED": "waiting",
    "STARTED": "started",
    "SUSPENDED": "started",
    "CANCELING": "started",
    "SUCCESS": "success",
    "FAILURE": "failure",
    "CANCELED": "canceled",
}


@pytest.mark.parametrize(
    "status", [status for status in dg.DagsterRunStatus if status.value != "NOT_STARTED"]
)
def test_each_status_has_a_meaning(instance: dg.DagsterInstance, status: dg.DagsterRunStatus) -> None:
    """A status that Dagster adds one day fails here first."""
    claim = uuid.uuid4()
    run_id = add_run(instance, claim, status, "3")
    [view] = DagsterRuns(instance).of_claims([claim])
    assert (view.run_id, view.claim_id, view.dispatch) == (run_id, claim, 3)
    assert view.state == EXPECTED[status.value]


def test_a_run_that_was_never_queued_is_none(instance: dg.DagsterInstance) -> None:
    """Its daemon died; Dagster finds it again under the same run key when the claim is handed over once more."""
    claim = uuid.uuid4()
    add_run(instance, claim, dg.DagsterRunStatus.NOT_STARTED)
    assert DagsterRuns(instance).of_claims([claim]) == []


def test_only_the_asked_claims_runs_are_returned(instance: dg.DagsterInstance) -> None:
    """One query for many claims, and several runs of one."""
    claims = [uuid.uuid4() for _ in range(4)]
    for claim in claims:
        add_run(instance, claim, dg.DagsterRunStatus.FAILURE)
    add_run(instance, claims[0], dg.DagsterRunStatus.QUEUED, "1")
    views = DagsterRuns(instance).of_claims(claims[:2])
    assert sorted((view.claim_id, view.dispatch) for view in views) == sorted(
        [(claims[0], 0), (claims[0], 1), (claims[1], 0)]
    )


def test_very_many_claims_are_asked_in_parts(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No statement grows without bound, and no claim is left out."""
    monkeypatch.setattr(dagster_runs, "CLAIMS_A_QUERY", 2)
    claims = [uuid.uuid4() for _ in range(5)]
    for claim in claims:
        add_run(instance, claim, dg.DagsterRunStatus.QUEUED)
    assert {view.claim_id for view in DagsterRuns(instance).of_claims(claims)} == set(claims)


def test_no_claims_ask_nothing(instance: dg.DagsterInstance) -> None:
    """An empty filter would return every run there is."""
    add_run(instance, uuid.uuid4(), dg.DagsterRunStatus.QUEUED)
    assert DagsterRuns(instance).of_claims([]) == []


def test_a_tag_that_a_person_changed_is_no_reason_to_fail(instance: dg.DagsterInstance) -> None:
    """Tags can be edited when a run is launched by hand."""
    claim = uuid.uuid4()
    add_run(instance, claim, dg.DagsterRunStatus.QUEUED, "first")
    [view] = DagsterRuns(instance).of_claims([claim])
    assert view.dispatch == 0


@pytest.mark.parametrize(("seconds", "state"), [(59, "canceled"), (61, "failure")])
def test_a_run_ended_by_its_time_limit_was_not_canceled_by_a_person(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, seconds: int, state: str
) -> None:
    """Dagster's monitoring cancels it; its jobs are to be done all the same, in smaller parts."""
    claim = uuid.uuid4()
    run_id = add_run(instance, claim, dg.DagsterRunStatus.CANCELED)
    instance.add_run_tags(run_id, {"dagster/max_runtime": "60"})
    [record] = instance.get_run_records()
    timed = record._replace(start_time=1_000.0, end_time=1_000.0 + seconds)
    monkeypatch.setattr(instance, "get_run_records", lambda **_: [timed])
    [view] = DagsterRuns(instance).of_claims([claim])
    assert view.state == state


def test_why_a_run_failed_is_one_line_with_its_run(instance: dg.DagsterInstance) -> None:
    """The first line of what was raised, and where to read the rest."""

    @dg.op
    def broken() -> None:
        raise ValueError("no such account\nand more")

    @dg.job
    def breaking() -> None:
        broken()

    result = breaking.execute_in_process(instance=instance, raise_on_error=False)
    assert DagsterRuns(instance).why(result.run_id) == (
        f"ValueError: no such account (its Dagster run {result.run_id})"
    )


def test_a_run_without_a_readable_log_failed_all_the_same(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is empty, or that Dagster can't read, is said so."""
    assert "without an error in its log" in DagsterRuns(instance).why("none")

    def unreadable(*_: object, **__: object) -> None:
        raise KeyError("an event of another release")

    monkeypatch.setattr(instance, "all_logs", unreadable)
    assert "its log can't be read, KeyError" in DagsterRuns(instance).why("some")
