"""The example of Dagster Pipes: each job is a process, and a process that dies takes no other job along."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from sqlalchemy import text

from cronless_dagster import HandlerContext, PermanentFailure
from examples.pipes.forecast import defs, forecast, job_types, outcome_of
from tests.dagster.support import Location, add_due, outcomes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine


@pytest.fixture
def location(pg_url: str) -> Iterator[Location]:
    """The example's code location on a database of the test's own."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield Location(job_types, pg_url, instance)


def errors(engine: Engine) -> dict[str, str]:
    """Return what each failed job says, by its name."""
    statement = "SELECT name, last_error FROM cronless.scheduled_job WHERE last_error IS NOT NULL"
    with engine.connect() as connection:
        return {row.name: row.last_error for row in connection.execute(text(statement))}


class TestRun:
    """A claim's run."""

    def test_the_program_does_the_work_and_reports_it(self, engine: Engine, location: Location) -> None:
        """What it logs is in the run, each time with its own job's tenant."""
        add_due(engine, "forecast", 6, payload={"demand": [3, 4, 8]})
        [request] = location.tick().run_requests
        result = location.execute(request)
        assert outcomes(engine) == {"success": 6}
        said = {entry.user_message for entry in location.instance.all_logs(result.run_id)}
        assert {f"the forecast of tenant-{number:05d} is 5.0" for number in range(6)} <= said

    def test_each_job_fares_by_itself(self, engine: Engine, location: Location) -> None:
        """A program that dies and one that reports a failure fail their own jobs, side by side with others."""
        add_due(engine, "forecast", 3, payload={"demand": [1]})
        add_due(engine, "forecast", 1, payload={"crash": True}, name="dies")
        add_due(engine, "forecast", 1, payload={}, name="refuses")
        [request] = location.tick().run_requests
        result = location.execute(request)
        assert result.success
        assert outcomes(engine) == {"success": 3, "failure": 1, "exhausted": 1}
        failed = errors(engine)
        assert failed["dies"].endswith("External execution process failed with code 3")
        assert failed["refuses"] == "its payload has no demand to forecast from"
        [event] = result.get_asset_materialization_events()
        metadata = {name: value.value for name, value in event.materialization.metadata.items()}
        assert (metadata["succeeded"], metadata["retried"]) == (3, 1)


class TestElsewhere:
    """Without a Dagster run."""

    def test_it_says_what_it_needs(self, engine: Engine) -> None:
        """On the queue route and on the command line; another try wouldn't help."""
        context = HandlerContext(engine, logging.getLogger("test"), datetime.now(UTC))
        job: Any = None
        with pytest.raises(PermanentFailure, match="give the job type the route run"):
            forecast(job, context)


class TestOutcome:
    """What the program reports."""

    def test_the_last_report_counts(self) -> None:
        """Others may be about something else."""
        told = outcome_of([{"progress": 1}, {"outcome": "failure", "error": "full"}, {"outcome": "success"}])
        assert told.kind == "success"

    def test_no_report_is_a_failure(self) -> None:
        """A program that says nothing may have done nothing."""
        with pytest.raises(PermanentFailure, match="reported no outcome"):
            outcome_of(["hello"])


def test_the_code_location_loads() -> None:
    """As `dagster dev -m examples.pipes.forecast` would load it."""
    dg.Definitions.validate_loadable(defs)
