"""A job type's asset: what a run does with its claim, and what people see of it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import dagster as dg
import pytest
from sqlalchemy import text

from cronless_dagster.assets.job_types import build_asset, build_job
from cronless_dagster.engine.job_types import JobType, JobTypes
from tests.dagster.support import (
    Location,
    add_due,
    assert_all_done_once,
    claim_of,
    claims,
    hold_and_run,
    job_rows,
    outcomes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    from cronless_dagster.engine.handlers import HandlerContext
    from cronless_dagster.store.rows import ClaimedJob


def digest_types(handler: Callable[..., Any], **options: Any) -> JobTypes:
    """Declare one job type named "digest"."""
    return JobTypes((JobType(name="digest", handler=handler, **options),))


def fail_if_told(job: ClaimedJob) -> None:
    """Fail where the payload says so."""
    if "error" in job.payload:
        raise ValueError(job.payload["error"])


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A Dagster instance in memory."""
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def location(pg_url: str, instance: dg.DagsterInstance) -> Location:
    """A code location whose digests fail where their payload says so."""
    return Location(digest_types(fail_if_told), pg_url, instance)


def metadata_of(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """Return the plain values of the one materialization's metadata."""
    [event] = result.get_asset_materialization_events()
    return {name: value.value for name, value in event.materialization.metadata.items()}


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    """Return what a person reads first of a failed step."""
    [event] = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
    return event.step_failure_data.user_failure_data.description


class TestWork:
    """A run with a claim."""

    def test_all_jobs_run_and_get_their_next_occurrence(self, engine: Engine, location: Location) -> None:
        """One run, one materialization, all jobs back in PENDING."""
        ids = add_due(engine, "digest", 30)
        [request] = location.tick().run_requests
        result = location.execute(request)
        assert_all_done_once(engine, ids)
        seen = metadata_of(result)
        assert (seen["claimed"], seen["succeeded"], seen["failed"], seen["discarded"]) == (30, 30, 0, 0)
        assert seen["dagster/row_count"] == 30
        assert seen["claim"] == str(claim_of(request))
        assert (
            25 < seen["lateness_p50_seconds"] <= seen["lateness_p95_seconds"] <= seen["lateness_max_seconds"]
        )
        assert "failed_jobs" not in seen
        [check] = result.get_asset_check_evaluations()
        assert check.passed

    def test_failed_jobs_are_shown_and_fail_no_run(self, engine: Engine, location: Location) -> None:
        """The run succeeds, its check warns, and a table says who failed, why, and what follows."""
        add_due(engine, "digest", 8)
        add_due(engine, "digest", 2, payload={"error": "mailbox full"})
        [request] = location.tick().run_requests
        result = location.execute(request)
        seen = metadata_of(result)
        assert (seen["succeeded"], seen["failed"], seen["retried"], seen["exhausted"]) == (8, 2, 2, 0)
        records = [record.data for record in seen["failed_jobs"].records]
        assert [record["error"] for record in records] == ["ValueError: mailbox full"] * 2
        assert {record["tries"] for record in records} == {1}
        assert all(str(record["follows"]).startswith("retry at 20") for record in records)
        [check] = result.get_asset_check_evaluations()
        assert not check.passed
        assert check.severity == dg.AssetCheckSeverity.WARN
        assert check.description == "2 of 10 jobs failed"
        assert outcomes(engine) == {"success": 8, "failure": 2}

    def test_the_history_names_the_run(self, engine: Engine, location: Location) -> None:
        """From a job's history a person finds its run, and from the run's tag its claim."""
        add_due(engine, "digest", 1)
        [request] = location.tick().run_requests
        result = location.execute(request)
        with engine.connect() as connection:
            row = connection.execute(
                text("SELECT run_id, claim_id, execution_id FROM cronless.job_execution")
            ).one()
        assert row.run_id == result.run_id
        assert str(row.claim_id) == request.tags["cronless/claim"]
        assert str(row.execution_id) == result.run_id

    def test_what_a_handler_logs_is_in_the_run(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance
    ) -> None:
        """Also from the pool's threads."""
        threads = set()

        def say(job: ClaimedJob, context: HandlerContext) -> None:
            threads.add(threading.current_thread().name)
            context.log.info("digest for %s", job.tenant_id)

        location = Location(digest_types(say), pg_url, instance)
        add_due(engine, "digest", 3)
        [request] = location.tick().run_requests
        result = location.execute(request)
        said = [entry.user_message for entry in instance.all_logs(result.run_id)]
        assert sum(message.startswith("digest for tenant-") for message in said) == 3
        assert threading.main_thread().name not in threads

    def test_a_long_run_says_how_far_it_is(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Seldom, since each line costs a connection."""
        monkeypatch.setattr("cronless_dagster.assets.job_types.PROGRESS_EVERY_SECONDS", 0.0)
        location = Location(digest_types(fail_if_told), pg_url, instance)
        add_due(engine, "digest", 4)
        add_due(engine, "digest", 1, payload={"error": "no"})
        result = location.execute(location.tick().run_requests[0])
        said = [entry.user_message for entry in instance.all_logs(result.run_id)]
        assert "5 of 5 jobs finished, 1 of them failed" in said


class TestNothingToDo:
    """Runs that have no claim to work on say so; they neither fail nor materialize."""

    def assert_nothing_done(self, result: dg.ExecuteInProcessResult, engine: Engine) -> None:
        """Check that the run left no trace but its log."""
        assert result.get_asset_materialization_events() == []
        assert result.get_asset_check_evaluations() == []
        assert sum(outcomes(engine).values()) in (0, 3)

    def test_a_run_repeated_after_its_claim_was_done_says_so(
        self, engine: Engine, location: Location
    ) -> None:
        """Re-executing a run in the UI does no job twice."""
        ids = add_due(engine, "digest", 3)
        [request] = location.tick().run_requests
        location.execute(request)
        again = location.execute(request)
        self.assert_nothing_done(again, engine)
        assert_all_done_once(engine, ids)
        [observation] = again.get_asset_observation_events()
        seen = observation.asset_observation_data.asset_observation.metadata
        assert seen["status"].value == "closed"
        assert "is closed (done)" in str(seen["message"].value)

    def test_a_run_whose_claim_another_run_holds_leaves_it_alone(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance
    ) -> None:
        """Two runs of one claim at once: the second one names the first."""
        inner: list[dg.ExecuteInProcessResult] = []

        def run_again(_job: object) -> None:
            if not inner:
                inner.append(location.execute(request))

        location = Location(digest_types(run_again, concurrency=1), pg_url, instance)
        ids = add_due(engine, "digest", 3)
        [request] = location.tick().run_requests
        outer = location.execute(request)
        assert_all_done_once(engine, ids)
        [observation] = inner[0].get_asset_observation_events()
        seen = observation.asset_observation_data.asset_observation.metadata
        assert seen["status"].value == "held"
        assert outer.run_id in str(seen["message"].value)

    def test_the_materialize_button_does_no_harm(self, engine: Engine, location: Location) -> None:
        """A run without a claim says how runs are made."""
        add_due(engine, "digest", 1)
        result = location.execute(dg.RunRequest(job_name="cronless_digest"))
        self.assert_nothing_done(result, engine)
        said = " ".join(entry.user_message for entry in location.instance.all_logs(result.run_id))
        assert "runs of this asset are made by the tick sensor" in said
        assert claims(engine) == []


class TestMachinery:
    """What makes a run fail: never a job, only the machinery."""

    def request(self, claim_id: object) -> dg.RunRequest:
        """Ask for a run of any claim at all."""
        config = {"ops": {"cronless__digest": {"config": {"claim_id": str(claim_id)}}}}
        return dg.RunRequest(job_name="cronless_digest", run_config=config)

    def test_an_unknown_claim_fails_the_run(self, location: Location) -> None:
        """Green would hide a run that looks into another database than its sensor."""
        result = location.execute(self.request(uuid4()), fails=True)
        assert "there is no claim" in failure_of(result)
        assert "the same database" in failure_of(result)

    def test_a_claim_id_that_is_none_fails_the_run(self, location: Location) -> None:
        """Somebody typed it into the launchpad."""
        result = location.execute(self.request("digest"), fails=True)
        assert failure_of(result).startswith("claim_id 'digest' is no claim")

    def test_the_claim_of_another_type_is_left_alone(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance
    ) -> None:
        """An asset never shows the work of another job type."""
        types = JobTypes(
            (JobType(name="digest", handler=fail_if_told), JobType(name="renewal", handler=fail_if_told))
        )
        location = Location(types, pg_url, instance)
        ids = add_due(engine, "renewal", 2)
        [request] = location.tick().run_requests
        result = location.execute(self.request(claim_of(request)), fails=True)
        assert "'renewal'" in failure_of(result)
        hold_and_run(engine, types, location.add_run(request))
        assert_all_done_once(engine, ids)

    def test_a_database_that_is_down_fails_the_run_in_one_sentence(
        self, tmp_path: object, instance: dg.DagsterInstance
    ) -> None:
        """No traceback has to be read."""
        location = Location(digest_types(fail_if_told), f"postgresql://p@/n?host={tmp_path}", instance)
        result = location.execute(self.request(uuid4()), fails=True)
        assert "can't be reached" in failure_of(result)

    def test_a_claim_that_was_taken_away_fails_the_run(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance
    ) -> None:
        """Its results are discarded, the jobs run elsewhere, once."""
        stolen = []

        def steal(_job: object) -> None:
            # The lease ran out while the job was at work, and a tick took the claim.
            if not stolen:
                stolen.append(True)
                with engine.begin() as connection:
                    connection.execute(
                        text("UPDATE cronless.job_claim SET lease_expires_at = now() - interval '1 minute'")
                    )
                location.tick()

        types = digest_types(steal, concurrency=1)
        location = Location(types, pg_url, instance)
        ids = add_due(engine, "digest", 3)
        [request] = location.tick().run_requests
        result = location.execute(request, fails=True)
        assert "was taken from run" in failure_of(result)
        assert result.get_asset_materialization_events() == []
        assert outcomes(engine) == {}
        for child in location.tick().run_requests:
            hold_and_run(engine, types, location.add_run(child))
        assert_all_done_once(engine, ids)


def test_a_handler_reaches_dagster_and_its_resources(
    engine: Engine, pg_url: str, instance: dg.DagsterInstance
) -> None:
    """What the job type asks for is there under its key, and the run's own context too."""
    seen: list[tuple[str, str]] = []

    def handler(_job: ClaimedJob, context: HandlerContext) -> None:
        seen.append((context.dagster.resources.greeting, context.dagster.run.run_id))

    types = digest_types(handler, resources={"greeting": lambda: "good morning"})
    location = Location(types, pg_url, instance)
    add_due(engine, "digest", 1)
    [request] = location.tick().run_requests
    result = location.execute(request)
    assert seen == [("good morning", result.run_id)]


def test_a_job_type_becomes_an_asset_of_its_own() -> None:
    """Name, group, description, kinds, check and pool are what people see and set."""
    job_type = JobType(name="digest", handler=fail_if_told, description="Mail the digest.", pool="mail")
    asset = build_asset(job_type)
    key = dg.AssetKey(["cronless", "digest"])
    assert asset.keys == {key}
    spec = asset.specs_by_key[key]
    assert (spec.description, spec.group_name) == ("Mail the digest.", "cronless")
    assert spec.kinds == {"python", "postgres"}
    assert [check.name for check in asset.check_specs] == ["no_failed_jobs"]
    assert asset.op.pool == "mail"


def test_a_run_is_one_process() -> None:
    """A process a step would cost four seconds each."""
    job_type = JobType(name="digest", handler=fail_if_told)
    resolved = dg.Definitions(
        assets=[build_asset(job_type)],
        jobs=[build_job(job_type)],
        resources={"cronless": dg.ResourceDefinition.none_resource()},
    ).resolve_job_def("cronless_digest")
    assert resolved.executor_def.name == "in_process"


def test_jobs_are_found_by_name(engine: Engine, location: Location) -> None:
    """A failed job's row is named in the table as its tenant knows it."""
    add_due(engine, "digest", 1, payload={"error": "x" * 5_000}, name="Monday mail")
    result = location.execute(location.tick().run_requests[0])
    [record] = metadata_of(result)["failed_jobs"].records
    assert record.data["name"] == "Monday mail"
    assert len(str(record.data["error"])) == 300
    assert record.data["job_id"] == str(job_rows(engine)[0].id)
