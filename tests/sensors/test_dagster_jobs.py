"""Users' own Dagster jobs as job types: one run for each scheduled job, recorded by the tick that sees its end."""

# No `from __future__ import annotations`: Dagster reads the annotations of a body as classes, not as texts.

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import dagster as dg
import pytest
from sqlalchemy import Engine, text

from cronless_dagster.engine.errors import JobTypeError
from cronless_dagster.engine.job_types import JobTypes
from cronless_dagster.engine.local import tick_and_run
from cronless_dagster.scheduling.models import RetryPolicy
from cronless_dagster.store import jobs
from tests.dagster.support import Location, claims, job_rows, outcomes
from tests.engine.support import far_away

TENANTS = dg.DynamicPartitionsDefinition(name="report_tenant")


class ReportConfig(dg.Config):
    """How the made-up report is written."""

    pages: int = 1


@dg.asset(partitions_def=TENANTS)
def tenant_report(context: dg.AssetExecutionContext, config: ReportConfig) -> dg.MaterializeResult[Any]:
    """Write a report, or fail for one tenant."""
    if context.partition_key == "broken":
        raise ValueError("no report for this one\nsecond line")
    return dg.MaterializeResult(metadata={"pages": config.pages})


@dg.op
def sweep() -> None:
    """Do something that has no partitions."""


@dg.job
def sweeping() -> None:
    """Sweep."""
    sweep()


tenant_report_job = dg.define_asset_job("tenant_report_job", selection=[tenant_report])
OWN = dg.Definitions(assets=[tenant_report], jobs=[tenant_report_job, sweeping])


class Site(Location):
    """A code location that has definitions of its own beside the job types."""

    def __init__(self, job_types: JobTypes, url: str, instance: dg.DagsterInstance) -> None:
        super().__init__(job_types, url, instance)
        self.definitions = dg.Definitions.merge(self.definitions, OWN)

    def evaluate(self) -> Any:
        """Evaluate the tick sensor and do what the daemon does with its answer, but for launching."""
        with dg.build_sensor_context(
            definitions=self.definitions, instance=self.instance, resources=self.definitions.resources
        ) as context:
            data = self.definitions.resolve_sensor_def("cronless_tick").evaluate_tick(context)
        for request in data.dynamic_partitions_requests or []:
            self.instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
        return data

    def run(self, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
        """Run what was asked for in this process, whatever comes of it."""
        return self.definitions.resolve_job_def(request.job_name or "").execute_in_process(
            instance=self.instance,
            run_config=request.run_config,
            partition_key=request.partition_key,
            tags=dict(request.tags),
            raise_on_error=False,
        )


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A Dagster instance in memory."""
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def reports(**options: Any) -> JobTypes:
    """Declare the report as a job type, in one line."""
    job_types = JobTypes()
    job_types.dagster_job("report", tenant_report_job, partition="tenant_id", **options)
    return job_types


def add(engine: Engine, tenant: str, job_type: str = "report", **options: Any) -> UUID:
    """Add a job that is due."""
    now = datetime.now(UTC)
    with engine.begin() as connection:
        return jobs.add(
            connection,
            tenant_id=tenant,
            job_type=job_type,
            schedule=far_away(now),
            next_run_at=now - timedelta(seconds=30),
            **options,
        )


def set_state(
    instance: dg.DagsterInstance,
    request: dg.RunRequest,
    status: dg.DagsterRunStatus,
    run_id: str | None = None,
) -> dg.DagsterRun:
    """Make a run in a state in which it does nothing."""
    run = dg.DagsterRun(
        job_name=request.job_name or "",
        run_id=run_id or "11111111-1111-4111-8111-111111111111",
        status=status,
        tags=dict(request.tags),
    )
    return instance.add_run(run)


def test_a_users_asset_job_runs_for_each_scheduled_job(
    engine: Engine, pg_url: str, instance: dg.DagsterInstance
) -> None:
    """Each due row becomes one run of its tenant's partition, and the run's success plans the row anew."""
    site = Site(reports(run_config={"ops": {"tenant_report": {"config": {"pages": 3}}}}), pg_url, instance)
    for tenant in ("acme", "globex"):
        add(engine, tenant)
    data = site.evaluate()
    requests = {request.partition_key: request for request in data.run_requests}
    assert set(requests) == {"acme", "globex"} == set(instance.get_dynamic_partitions("report_tenant"))
    assert requests["acme"].tags["cronless/tenant"] == "acme"
    for request in requests.values():
        assert site.run(request).success
    assert site.evaluate().skip_message == "recorded 2 claims"
    assert outcomes(engine) == {"success": 2}
    assert {row.status for row in job_rows(engine)} == {"PENDING"}
    assert all(row.next_run_at > datetime.now(UTC) for row in job_rows(engine))
    assert {claim.close_reason for claim in claims(engine)} == {"done"}
    event = instance.get_latest_materialization_event(dg.AssetKey("tenant_report"))
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.metadata["pages"].value == 3


def test_a_failed_run_fails_its_scheduled_job_with_the_runs_own_error(
    engine: Engine, pg_url: str, instance: dg.DagsterInstance
) -> None:
    """The history holds the first line of what the run raised, when it began, and the row waits for its retry."""
    site = Site(reports(retry=RetryPolicy(max_attempts=2, delay=timedelta(minutes=1))), pg_url, instance)
    add(engine, "broken")
    (request,) = site.evaluate().run_requests
    result = site.run(request)
    assert not result.success
    site.evaluate()
    (row,) = job_rows(engine)
    assert (row.status, row.attempt, row.last_outcome) == ("PENDING", 1, "failure")
    with engine.connect() as connection:
        (entry,) = connection.execute(text("SELECT * FROM cronless.job_execution")).all()
    assert "ValueError: no report for this one" in entry.error
    assert result.run_id in entry.error
    assert entry.run_id == result.run_id
    record = instance.get_run_record_by_id(result.run_id)
    assert record is not None
    assert entry.started_at == datetime.fromtimestamp(record.start_time or 0, UTC)


def test_the_next_try_is_a_run_of_its_own(engine: Engine, pg_url: str, instance: dg.DagsterInstance) -> None:
    """A retry is a new claim with another run key, so that Dagster starts another run."""
    site = Site(reports(retry=RetryPolicy(max_attempts=3, delay=timedelta(0))), pg_url, instance)
    add(engine, "broken")
    (first,) = site.evaluate().run_requests
    site.run(first)
    site.evaluate()
    (second,) = site.evaluate().run_requests
    assert first.run_key != second.run_key
    assert outcomes(engine) == {"failure": 1}


def test_what_is_wrong_with_one_request_fails_that_job_alone(
    engine: Engine, pg_url: str, instance: dg.DagsterInstance
) -> None:
    """A tenant that can't be a partition, a config that Dagster refuses, a function that raises: the others run."""

    def config(job: Any) -> dict[str, Any]:
        if job.name == "raises":
            raise KeyError("no such thing")
        pages = "many" if job.name == "misconfigured" else 2
        return {"ops": {"tenant_report": {"config": {"pages": pages}}}}

    site = Site(reports(run_config=config, retry=RetryPolicy(max_attempts=1)), pg_url, instance)
    for tenant in ("../x", "a|b", "good"):
        add(engine, tenant)
    for name in ("raises", "misconfigured"):
        add(engine, "good", name=name)
    data = site.evaluate()
    assert [request.partition_key for request in data.run_requests] == ["good"]
    assert list(instance.get_dynamic_partitions("report_tenant")) == ["good"]
    errors = {(row.tenant_id, row.name): row.last_error for row in job_rows(engine)}
    assert "contains '/'" in errors["../x", ""]
    assert "contains '|'" in errors["a|b", ""]
    assert errors["good", "raises"] == "KeyError: 'no such thing'"
    assert "its run config is refused" in errors["good", "misconfigured"]
    assert errors["good", ""] is None
    assert {row.status for row in job_rows(engine)} == {"PENDING", "QUEUED"}


def test_a_partition_that_does_not_fit_the_dagster_job_is_said(
    engine: Engine, pg_url: str, instance: dg.DagsterInstance
) -> None:
    """A key for a job without partitions, or none for one with, fails the row and names the job."""
    job_types = JobTypes()
    job_types.dagster_job("keyless", tenant_report_job)
    job_types.dagster_job("needless", sweeping, partition="tenant_id")
    site = Site(job_types, pg_url, instance)
    add(engine, "acme", "keyless")
    add(engine, "acme", "needless")
    assert not site.evaluate().run_requests
    errors = sorted(row.last_error for row in job_rows(engine))
    assert "'sweeping' is not partitioned" in errors[0] or "'sweeping' is not partitioned" in errors[1]
    assert any("'tenant_report_job' is partitioned" in error for error in errors)


def test_a_job_without_partitions_runs_as_it_is(
    engine: Engine, pg_url: str, instance: dg.DagsterInstance
) -> None:
    """An op job of the user's needs no partition and no config."""
    job_types = JobTypes()
    job_types.dagster_job("sweep", sweeping)
    site = Site(job_types, pg_url, instance)
    add(engine, "acme", "sweep")
    (request,) = site.evaluate().run_requests
    assert site.run(request).success
    site.evaluate()
    assert outcomes(engine) == {"success": 1}


def test_a_run_at_work_holds_its_claim_and_a_deleted_one_loses_it(
    engine: Engine, pg_url: str, instance: dg.DagsterInstance
) -> None:
    """The lease is renewed for as long as Dagster calls the run alive; once it is gone the row runs again."""
    site = Site(reports(), pg_url, instance)
    add(engine, "acme")
    (request,) = site.evaluate().run_requests
    run = set_state(instance, request, dg.DagsterRunStatus.STARTED)
    site.evaluate()
    (claim,) = claims(engine)
    assert (claim.state, claim.run_id, str(claim.execution_id)) == ("RUNNING", run.run_id, run.run_id)
    _lapse(engine)
    site.evaluate()
    (claim,) = claims(engine)
    assert claim.state == "RUNNING"
    assert claim.lease_expires_at > datetime.now(UTC)
    instance.delete_run(run.run_id)
    _lapse(engine)
    (again,) = site.evaluate().run_requests
    assert again.run_key != request.run_key


def test_a_run_that_never_began_is_no_try(engine: Engine, pg_url: str, instance: dg.DagsterInstance) -> None:
    """Without a code server Dagster fails the run at once: the row keeps its tries, and gets another run."""
    site = Site(reports(), pg_url, instance)
    add(engine, "acme")
    (request,) = site.evaluate().run_requests
    set_state(instance, request, dg.DagsterRunStatus.FAILURE)
    site.evaluate()
    (claim,) = claims(engine)
    assert (claim.state, claim.dispatches) == ("CLAIMED", 1)
    assert outcomes(engine) == {}
    assert job_rows(engine)[0].attempt == 0


def test_a_canceled_run_is_no_failure(engine: Engine, pg_url: str, instance: dg.DagsterInstance) -> None:
    """Whoever cancels the run cancels the occurrence: no retry, and the next one is planned."""
    site = Site(reports(), pg_url, instance)
    add(engine, "acme")
    (request,) = site.evaluate().run_requests
    set_state(instance, request, dg.DagsterRunStatus.CANCELED)
    site.evaluate()
    assert outcomes(engine) == {"canceled": 1}
    (row,) = job_rows(engine)
    assert (row.status, row.consecutive_failures) == ("PENDING", 0)


def test_a_failed_run_that_a_person_executes_again_is_waited_for(
    engine: Engine, pg_url: str, instance: dg.DagsterInstance
) -> None:
    """A second run of the same hand-over that is still at work speaks for both."""
    site = Site(reports(), pg_url, instance)
    add(engine, "acme")
    (request,) = site.evaluate().run_requests
    set_state(instance, request, dg.DagsterRunStatus.FAILURE)
    second = "22222222-2222-4222-8222-222222222222"
    set_state(instance, request, dg.DagsterRunStatus.STARTED, second)
    site.evaluate()
    assert outcomes(engine) == {}
    (claim,) = claims(engine)
    assert claim.run_id == second


def test_a_lost_request_is_made_again(engine: Engine, pg_url: str, instance: dg.DagsterInstance) -> None:
    """The tick that asked died before Dagster heard of it: the next one asks with the same run key."""
    site = Site(reports(), pg_url, instance)
    add(engine, "acme")
    (request,) = site.evaluate().run_requests
    (again,) = site.evaluate().run_requests
    assert (again.run_key, again.partition_key) == (request.run_key, "acme")


def test_a_removed_job_ends_with_its_run(engine: Engine, pg_url: str, instance: dg.DagsterInstance) -> None:
    """A row removed while its run works is gone once the end is recorded, and the history knows it."""
    site = Site(reports(), pg_url, instance)
    job_id = add(engine, "acme")
    (request,) = site.evaluate().run_requests
    with engine.begin() as connection:
        jobs.remove(connection, job_id)
    site.run(request)
    site.evaluate()
    assert outcomes(engine) == {"success": 1}
    assert job_rows(engine) == []


def test_the_command_line_leaves_dagster_jobs_to_the_sensor(engine: Engine) -> None:
    """Without Dagster such a row is neither claimed nor failed."""
    add(engine, "acme")
    tick_and_run(engine, reports())
    (row,) = job_rows(engine)
    assert (row.status, row.claim_id) == ("PENDING", None)
    assert outcomes(engine) == {}


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda types: types.dagster_job("a", "a_name"), "give what define_asset_job or @job returned"),
        (lambda types: types.dagster_job("a", sweeping, batch_size=5), "can't have batch_size"),
        (lambda types: types.dagster_job("a", sweeping, partition="tenant"), "give 'tenant_id', 'name'"),
    ],
)
def test_a_declaration_that_could_never_run_is_refused(declare: Any, said: str) -> None:
    """What a Dagster job can't have is said where it is declared."""
    with pytest.raises(JobTypeError, match=said):
        declare(JobTypes())


def test_a_partition_may_come_from_the_payload(
    engine: Engine, pg_url: str, instance: dg.DagsterInstance
) -> None:
    """`payload.<key>` names the partition, and a row without it fails with the key's name."""
    job_types = JobTypes()
    job_types.dagster_job("report", tenant_report_job, partition="payload.region")
    site = Site(job_types, pg_url, instance)
    add(engine, "acme", payload={"region": "north"})
    add(engine, "globex")
    (request,) = site.evaluate().run_requests
    assert request.partition_key == "north"
    assert "no text under 'region'" in job_rows(engine)[1].last_error


def _lapse(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE cronless.job_claim SET lease_expires_at = now() - interval '1 hour'"))
