"""Users' own Dagster jobs do no harm: not to each other, not to other code, not to what their type was before."""

# No `from __future__ import annotations`: Dagster reads the annotations of a body as classes, not as texts.

import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import Engine, text

from cronless_dagster.engine.job_types import JobTypes
from cronless_dagster.scheduling.models import RetryPolicy
from cronless_dagster.sensors import dagster_jobs
from tests.dagster.support import Location, claims, job_rows, outcomes
from tests.sensors.test_dagster_jobs import Site, _lapse, add, reports, set_state

ONCE = RetryPolicy(max_attempts=1)


@dg.op(config_schema=dict)
def anything(context: dg.OpExecutionContext) -> None:
    """Take any config."""


@dg.job
def taking_anything() -> None:
    """Take any config."""
    anything()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A Dagster instance in memory."""
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def handled(name: str = "report") -> JobTypes:
    """Declare a handler."""
    job_types = JobTypes()
    job_types.job(name)(lambda _: None)
    return job_types


def test_a_refused_request_takes_no_partition_from_its_neighbour(
    engine: Engine, pg_url: str, instance: dg.DagsterInstance
) -> None:
    """Two rows of one new tenant, the first with a wrong config: the second adds the partition and runs."""

    def config(job: Any) -> dict[str, Any]:
        return {"ops": {"tenant_report": {"config": {"pages": "many" if job.name == "wrong" else 2}}}}

    site = Site(reports(run_config=config, retry=ONCE), pg_url, instance)
    add(engine, "acme", name="wrong")
    refused = site.evaluate()
    assert not refused.run_requests
    add(engine, "globex", name="wrong")
    with engine.begin() as connection:
        connection.execute(
            text(
                "UPDATE cronless.scheduled_job SET next_run_at = now() - interval '2 minutes' WHERE name = 'wrong'"
            )
        )
    add(engine, "globex", name="right")
    (request,) = site.evaluate().run_requests
    assert request.tags["cronless/name"] == "right"


def test_a_config_that_can_not_be_written_fails_its_job_alone(
    engine: Engine, pg_url: str, instance: dg.DagsterInstance
) -> None:
    """A schema that takes anything takes a datetime, and Dagster can't send one: all requests would be lost."""
    job_types = JobTypes()
    job_types.dagster_job(
        "any",
        taking_anything,
        run_config=lambda job: {
            "ops": {"anything": {"config": {"at": job.due_at if job.name == "bad" else "now"}}}
        },
        retry=ONCE,
    )
    site = Site(job_types, pg_url, instance)
    add(engine, "acme", "any", name="bad")
    add(engine, "acme", "any", name="good")
    (request,) = site.evaluate().run_requests
    assert request.tags["cronless/name"] == "good"
    dg.serialize_value(request)
    errors = {row.name: row.last_error for row in job_rows(engine)}
    assert "can't be written" in errors["bad"]


def test_a_function_that_leaves_or_hangs_fails_its_job_alone(
    engine: Engine, pg_url: str, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function of the user's may call `sys.exit` or never return; the tick goes on without it."""
    monkeypatch.setattr(dagster_jobs, "ANSWER_SECONDS", 0.2)
    never = threading.Event()

    def config(job: Any) -> dict[str, Any]:
        if job.name == "leaves":
            sys.exit(3)
        if job.name == "hangs":
            never.wait(30)
        return {}

    site = Site(reports(run_config=config, retry=ONCE), pg_url, instance)
    for name in ("leaves", "hangs", "good"):
        add(engine, "acme", name=name)
    (request,) = site.evaluate().run_requests
    never.set()
    assert request.tags["cronless/name"] == "good"
    errors = {row.name: row.last_error for row in job_rows(engine)}
    assert errors["leaves"] == "SystemExit: 3"
    assert "no answer within" in errors["hangs"]


def test_slow_functions_leave_requests_to_the_next_tick(
    engine: Engine, pg_url: str, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster gives up on a sensor that takes too long, and on all that it would have asked for."""
    monkeypatch.setattr(dagster_jobs, "REQUESTS_SECONDS", 0.05)

    def config(job: Any) -> dict[str, Any]:
        time.sleep(0.1)
        return {}

    site = Site(reports(run_config=config), pg_url, instance)
    for name in ("a", "b"):
        add(engine, "acme", name=name)
    (first,) = site.evaluate().run_requests
    set_state(instance, first, dg.DagsterRunStatus.STARTING)
    (second,) = site.evaluate().run_requests
    assert {first.tags["cronless/name"], second.tags["cronless/name"]} == {"a", "b"}
    assert outcomes(engine) == {}


def test_other_code_on_the_same_database_leaves_the_claim_alone(
    engine: Engine, pg_url: str, instance: dg.DagsterInstance
) -> None:
    """A code location that doesn't declare the type sees its run end first: it takes that for no death."""
    site = Site(reports(), pg_url, instance)
    other = Location(handled("other"), pg_url, instance)
    for number, seen_at_work in enumerate((True, False), 1):
        add(engine, "acme", name=str(number))
        (request,) = site.evaluate().run_requests
        run_id = f"{number}1111111-1111-4111-8111-111111111111"
        run = set_state(instance, request, dg.DagsterRunStatus.STARTED, run_id)
        if seen_at_work:
            site.evaluate()
        _end(instance, run)
        other.tick()
        (claim,) = [one for one in claims(engine) if one.state != "CLOSED"]
        assert (claim.dispatches, outcomes(engine).keys() - {"success"}) == (0, set())
        site.evaluate()
    assert outcomes(engine) == {"success": 2}


def test_a_batch_claimed_for_a_handler_is_no_batch_of_one_run(
    engine: Engine, pg_url: str, instance: dg.DagsterInstance
) -> None:
    """The type became a Dagster job while a claim of three waited: the rows go back, and each gets its own run."""
    for tenant in ("acme", "globex", "initech"):
        add(engine, tenant)
    assert len(Location(handled(), pg_url, instance).tick().run_requests) == 1
    site = Site(reports(), pg_url, instance)
    assert not site.evaluate().run_requests
    _lapse(engine)
    data = site.evaluate()
    assert sorted(request.partition_key for request in data.run_requests) == ["acme", "globex", "initech"]
    assert outcomes(engine) == {}


def test_a_run_of_the_users_own_is_followed_though_its_type_is_a_handler_now(
    engine: Engine, pg_url: str, instance: dg.DagsterInstance
) -> None:
    """The type became a handler while its run worked: the run's end is recorded, and nothing runs twice."""
    site = Site(reports(), pg_url, instance)
    add(engine, "acme")
    (request,) = site.evaluate().run_requests
    run = set_state(instance, request, dg.DagsterRunStatus.STARTED)
    now_handled = Location(handled(), pg_url, instance)
    now_handled.tick()
    _end(instance, run)
    assert not now_handled.tick().run_requests
    assert outcomes(engine) == {"success": 1}
    (row,) = job_rows(engine)
    assert (row.status, row.attempt) == ("PENDING", 0)
    assert row.next_run_at > datetime.now(UTC) + timedelta(hours=1)


def test_a_partition_that_is_there_may_be_named_as_it_likes(
    engine: Engine, pg_url: str, instance: dg.DagsterInstance
) -> None:
    """Which keys can be added is our rule; one that the user has added already is the user's affair."""
    instance.add_dynamic_partitions("report_tenant", ["org/repository"])
    site = Site(reports(), pg_url, instance)
    add(engine, "org/repository")
    (request,) = site.evaluate().run_requests
    assert request.partition_key == "org/repository"


def _end(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Let a run succeed, as far as the instance shows."""
    instance.delete_run(run.run_id)
    instance.add_run(run.with_status(dg.DagsterRunStatus.SUCCESS))
