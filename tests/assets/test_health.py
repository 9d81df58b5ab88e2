"""schedule_health: its numbers, its checks, its size, and what it says when the database can't be asked."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from sqlalchemy import text

from cronless_dagster.assets.health import CHECKS, HEALTH_KEY, build_health_asset
from cronless_dagster.resources.database import CronlessResource
from tests.conftest import VIRTUAL_NOW as NOW
from tests.store.rows import add_row, due_row, sql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A Dagster instance in memory."""
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def materialize(
    url: str, instance: dg.DagsterInstance | None = None, **options: Any
) -> dg.ExecuteInProcessResult:
    """Make the asset once."""
    return dg.materialize(
        [build_health_asset(**options)],
        resources={"cronless": CronlessResource(database_url=url)},
        instance=instance,
        raise_on_error=False,
    )


def metadata_of(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """Return the plain values of the one materialization's metadata."""
    assert result.success
    [event] = result.get_asset_materialization_events()
    assert event.asset_key == HEALTH_KEY
    return {name: value.value for name, value in event.materialization.metadata.items()}


def records(table: Any) -> list[dict[str, Any]]:
    """Return the rows of a table."""
    return [dict(record.data) for record in table.records]


def failed_checks(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    """Return the checks that did not pass, after looking that all were made."""
    made = {one.check_name: one for one in result.get_asset_check_evaluations()}
    assert set(made) == set(CHECKS)
    return {name: one for name, one in made.items() if not one.passed}


def executed(engine: Engine, outcome: str, number: int = 1, **columns: Any) -> None:
    """Write history of the last minute: due, started 20 s later, ended."""
    values = {
        "job_type": "digest",
        "due_at": NOW - MINUTE,
        "started_at": NOW - timedelta(seconds=40),
        **columns,
    }
    names, places = ", ".join(values), ", ".join(f":{name}" for name in values)
    sql(
        engine,
        f"INSERT INTO cronless.job_execution (recorded_at, job_id, tenant_id, outcome, {names})"
        f" SELECT :at, gen_random_uuid(), 'acme', :outcome, {places} FROM generate_series(1, :number)",
        at=NOW - timedelta(seconds=1),
        outcome=outcome,
        number=number,
        **values,
    )


@pytest.fixture
def ticked(virtual_engine: Engine) -> Engine:
    """A database with the history's partitions of the virtual day, and a tick half a minute ago."""
    with virtual_engine.begin() as connection:
        connection.execute(text("SELECT cronless.ensure_history_partition(:day)"), {"day": NOW.date()})
        connection.execute(
            text(
                "INSERT INTO cronless.progress (key, value, updated_at) VALUES ('tick:1', CAST(:value AS jsonb), :now)"
            ),
            {
                "value": json.dumps({"at": (NOW - timedelta(seconds=30)).isoformat(), "claimed": 1}),
                "now": NOW,
            },
        )
    return virtual_engine


def test_all_is_well(ticked: Engine, virtual_url: str) -> None:
    """Every check passes, every number is there and plain, so that the UI plots it."""
    due_row(ticked, NOW - MINUTE)
    executed(ticked, "success", 10)
    result = materialize(virtual_url)
    seen = metadata_of(result)
    assert failed_checks(result) == {}
    assert (seen["due"], seen["pending"], seen["last_tick_age_seconds"]) == (1, 1, 30)
    assert (seen["due_lateness_p50_seconds"], seen["oldest_due_age_seconds"]) == (60, 60)
    assert (seen["started_last_quarter_hour"], seen["started_lateness_p95_seconds"]) == (10, 20)
    tables = {"by_type", "waiting_by_tenant", "failing_by_tenant", "stuck_and_failing", "minute_waves"}
    assert all(isinstance(value, int | float) for name, value in seen.items() if name not in tables)
    assert "at_least" not in seen


def test_an_empty_database(virtual_engine: Engine, virtual_url: str) -> None:
    """Nothing is wrong where nothing is; without a tick there is no age of it."""
    result = materialize(virtual_url)
    assert failed_checks(result) == {}
    seen = metadata_of(result)
    assert "last_tick_age_seconds" not in seen
    assert "Nothing becomes due in the next 24 hours." in seen["minute_waves"]


def test_each_state_is_counted(ticked: Engine, virtual_url: str) -> None:
    """Rows in every state, by type too."""
    due_row(ticked, NOW - HOUR)
    add_row(ticked)
    add_row(ticked, next_run_at=NOW + HOUR)
    add_row(ticked, next_run_at=NOW + 48 * HOUR)
    add_row(ticked, next_run_at=NOW, paused_at=NOW)
    for status in ("DONE", "DONE", "FAILED", "INVALID"):
        add_row(ticked, status=status, job_type="renewal")
    for state, jobs in (("SUBMITTED", 5), ("RUNNING", 7)):
        sql(
            ticked,
            "INSERT INTO cronless.job_claim (id, job_type, route, id_low, job_count, state, lease_seconds,"
            " lease_expires_at, created_at, started_at) VALUES (gen_random_uuid(), 'digest', 'run', gen_random_uuid(),"
            " :jobs, :state, 600, :lease, :now, :now)",
            jobs=jobs,
            state=state,
            lease=NOW + HOUR,
            now=NOW,
        )
    seen = metadata_of(materialize(virtual_url))
    expected = {
        "pending": 4, "due": 1, "late": 1, "unclaimable": 1, "unplanned": 1, "queued": 5, "running": 7, "paused": 1,
        "done": 2, "failed": 1, "invalid": 1, "stuck": 0,
    }  # fmt: skip
    assert {name: seen[name] for name in expected} == expected
    by_type = {row["type"]: row for row in records(seen["by_type"])}
    assert (by_type["digest"]["due"], by_type["digest"]["ahead"], by_type["digest"]["running"]) == (1, 2, 7)
    assert (by_type["renewal"]["done"], by_type["renewal"]["failed"], by_type["renewal"]["invalid"]) == (
        2,
        1,
        1,
    )


class TestChecks:
    def test_stuck(self, ticked: Engine, virtual_url: str) -> None:
        """An error that says of what and since when, and the claim in the table."""
        sql(
            ticked,
            "INSERT INTO cronless.job_claim (id, job_type, route, id_low, job_count, state, lease_seconds,"
            " lease_expires_at, created_at, started_at, run_id) VALUES (gen_random_uuid(), 'digest', 'run',"
            " gen_random_uuid(), 12, 'RUNNING', 600, :lease, :lease, :lease, 'some-run')",
            lease=NOW - 30 * MINUTE,
        )
        result = materialize(virtual_url)
        [(name, check)] = failed_checks(result).items()
        assert (name, check.severity) == ("nothing_stuck", dg.AssetCheckSeverity.ERROR)
        assert (check.description or "").startswith("12 jobs of digest 12 lost their holder 30 min ago")
        [row] = records(metadata_of(result)["stuck_and_failing"])
        assert (row["what"], row["error"]) == ("stuck claim of 12 jobs", "run some-run")

    def test_waiting_too_long(self, ticked: Engine, virtual_url: str) -> None:
        """An error that says how long, when the last tick was, and that nobody declares the type."""
        due_row(ticked, NOW - 11 * MINUTE)
        result = materialize(virtual_url)
        [(name, check)] = failed_checks(result).items()
        assert (name, check.severity) == ("lateness_within_limit", dg.AssetCheckSeverity.ERROR)
        assert "A job has waited for 11 min, more than 10 min, and the last tick was 30 s ago" in (
            check.description or ""
        )
        assert "No running code declares digest 1" in (check.description or "")
        assert failed_checks(materialize(virtual_url, lateness_limit=12 * MINUTE)) == {}

    def test_started_too_late(self, ticked: Engine, virtual_url: str) -> None:
        """What is over is a warning."""
        executed(ticked, "success", 20, due_at=NOW - HOUR)
        [(name, check)] = failed_checks(materialize(virtual_url)).items()
        assert (name, check.severity) == ("lateness_within_limit", dg.AssetCheckSeverity.WARN)

    def test_a_failing_type(self, ticked: Engine, virtual_url: str) -> None:
        """A warning with the type's figures; a few tries say nothing, nor does half where half may fail."""
        executed(ticked, "failure", 6)
        executed(ticked, "success", 4)
        executed(ticked, "failure", 4, job_type="few")
        executed(ticked, "failure", 5, job_type="half")
        executed(ticked, "success", 5, job_type="half")
        [(name, check)] = failed_checks(materialize(virtual_url)).items()
        assert (name, check.severity) == ("no_type_failing", dg.AssetCheckSeverity.WARN)
        assert "failed of digest (6 of 10):" in (check.description or "")
        assert failed_checks(materialize(virtual_url, failing_share=0.6)) == {}

    def test_an_invalid_row(self, ticked: Engine, virtual_url: str) -> None:
        """A warning with the row and its reason."""
        add_row(ticked, name="odd", status="INVALID", invalid_reason="no such zone")
        [(name, check)] = failed_checks(materialize(virtual_url)).items()
        assert (name, check.severity) == ("no_row_invalid", dg.AssetCheckSeverity.WARN)
        [row] = records(check.metadata["invalid_jobs"].value)
        assert (row["name"], row["reason"]) == ("odd", "no such zone")


def test_a_failing_job_is_listed(ticked: Engine, virtual_url: str) -> None:
    """With what it said last, cut to a length that can be kept."""
    add_row(ticked, name="weekly", consecutive_failures=4, last_error="x" * 5_000)
    seen = metadata_of(materialize(virtual_url))
    [row] = records(seen["stuck_and_failing"])
    assert (seen["failing_jobs"], row["what"], row["name"]) == (1, "failed 4 times in a row", "weekly")
    assert len(row["error"]) == 200


def test_ten_thousand_tenants(ticked: Engine, virtual_url: str) -> None:
    """What is kept doesn't grow with them."""
    sql(
        ticked,
        "INSERT INTO cronless.scheduled_job (tenant_id, job_type, name, schedule, next_run_at, consecutive_failures)"
        " SELECT 'tenant ' || n, 'type ' || n % 300, 'job', '@hourly', :now, 3 FROM generate_series(1, 10000) AS n",
        now=NOW - HOUR,
    )
    sql(
        ticked,
        "INSERT INTO cronless.job_execution (recorded_at, job_id, tenant_id, job_type, outcome)"
        " SELECT :now, gen_random_uuid(), 'tenant ' || n, 'type ' || n % 300, 'failure'"
        " FROM generate_series(1, 10000) AS n",
        now=NOW,
    )
    result = materialize(virtual_url)
    seen = metadata_of(result)
    assert (seen["due"], seen["failing_jobs"]) == (10_000, 10_000)
    lengths = {
        name: len(records(seen[name]))
        for name in ("waiting_by_tenant", "failing_by_tenant", "stuck_and_failing")
    }
    assert set(lengths.values()) == {50}
    assert len(records(seen["by_type"])) == 100
    for check in failed_checks(result).values():
        assert len(check.description or "") < 600


def test_names_are_no_markup(ticked: Engine, virtual_url: str) -> None:
    """A job type may be called anything: the list shows it as it is, the statement quotes it, no block ends early."""
    evil = "<img src=x>`[a](b)'"
    sql(
        ticked,
        "INSERT INTO cronless.scheduled_job (tenant_id, job_type, name, schedule, next_run_at)"
        " SELECT 'acme', :evil, n, '@hourly', :at FROM generate_series(1, 300) AS n",
        evil=evil,
        at=NOW + HOUR,
    )
    shown = metadata_of(materialize(virtual_url))["minute_waves"]
    told, _, rest = shown.partition("```sql\n")
    statement, _, after = rest.partition("\n```")
    assert r"- 13:00: 300 jobs (&lt;img src=x&gt;\`\[a\]\(b\)' 300)" in told
    assert "WHERE job_type = '<img src=x>`[a](b)'''" in statement
    assert "<img" not in told + after
    with ticked.begin() as connection:
        assert connection.exec_driver_sql(statement.replace("%", "%%")).rowcount == 300


def test_the_database_is_away(empty_pg_url: str, virtual_url: str) -> None:
    """One sentence, whatever is wrong: no server, no schema."""
    for url, words in (
        (virtual_url.replace("host=", "host=/nowhere"), "can't be reached"),
        (empty_pg_url, "run `cronless db upgrade`"),
    ):
        result = materialize(url)
        [event] = [one for one in result.all_events if one.event_type_value == "STEP_FAILURE"]
        description = event.step_failure_data.user_failure_data.description
        assert words in description
        assert "\n" not in description


def test_a_statement_that_takes_too_long(
    ticked: Engine, virtual_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database's refusal is said in one sentence too."""
    monkeypatch.setattr("cronless_dagster.store.health._UNSTARTED", text("SELECT 1 / 0"))
    [event] = [one for one in materialize(virtual_url).all_events if one.event_type_value == "STEP_FAILURE"]
    assert event.step_failure_data.user_failure_data.description == (
        "the database refused to say how the schedule does (division by zero)"
    )


class TestDefinition:
    def test_made_each_quarter_of_an_hour(self, instance: dg.DagsterInstance) -> None:
        """Requested once when a quarter begins, not before, and not by any tick."""
        definitions = dg.Definitions(
            assets=[build_health_asset()], resources={"cronless": CronlessResource()}
        )
        before = datetime(2026, 3, 2, 12, 14, tzinfo=UTC)

        def asked(at: datetime, cursor: Any) -> Any:
            return dg.evaluate_automation_conditions(
                defs=definitions, instance=instance, evaluation_time=at, cursor=cursor
            )

        first = asked(before, None)
        assert first.total_requested == 0
        second = asked(before + 2 * MINUTE, first.cursor)
        assert second.total_requested >= 1
        assert second.get_num_requested(HEALTH_KEY) == 1
        assert asked(before + 3 * MINUTE, second.cursor).get_num_requested(HEALTH_KEY) == 0

    def test_a_stopped_daemon_shows(self) -> None:
        """The asset goes stale by itself."""
        [spec] = build_health_asset(fresh_within=HOUR).specs
        policy = spec.freshness_policy
        assert isinstance(policy, dg.FreshnessPolicy)
        assert policy == dg.FreshnessPolicy.time_window(fail_window=HOUR, warn_window=40 * MINUTE)

    @pytest.mark.parametrize(
        "options",
        [{"failing_share": 1.5}, {"lateness_limit": -MINUTE}, {"stuck_after": -MINUTE}],
    )
    def test_limits_that_make_no_sense(self, options: dict[str, Any]) -> None:
        """Refused where they are written."""
        with pytest.raises(ValueError, match="give a"):
            build_health_asset(**options)
