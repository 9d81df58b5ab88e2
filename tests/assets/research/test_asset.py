"""The asset of account research: a claimed batch and a person's backfill through one body."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from sqlalchemy import text

from cronless_dagster.assets.fetching.resource import FetcherResource
from cronless_dagster.assets.partitions import TENANTS
from cronless_dagster.assets.research import account_research
from cronless_dagster.engine.job_types import JobTypes
from cronless_dagster.store import jobs
from tests.assets.research.support import Feed, add_account, items, rows
from tests.assets.web import Reply
from tests.dagster.support import Location, job_rows
from tests.engine.support import far_away

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from tests.assets.web import WebServer

KEY = dg.AssetKey("account_research")
REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """A Dagster instance on disk, which keeps dynamic partitions for the runs."""
    with dg.DagsterInstance.local_temp(str(tmp_path)) as made:
        yield made


@pytest.fixture
def location(assets_engine: Engine, pg_url: str, instance: dg.DagsterInstance) -> Location:
    """A code location with research alone."""
    return Location(
        JobTypes((account_research(concurrency=4),)),
        pg_url,
        instance,
        health=None,
        resources={"fetcher": FetcherResource(networks=["127.0.0.0/8"])},
    )


def schedule(engine: Engine, tenant: str, name: str = "globex", **payload: Any) -> None:
    """Add a research job that is due."""
    now = datetime.now(UTC)
    with engine.begin() as connection:
        jobs.add(
            connection,
            tenant_id=tenant,
            job_type="account_research",
            name=name,
            schedule=far_away(now),
            payload=payload or {"account": name},
            next_run_at=now - timedelta(seconds=30),
        )


def watched(engine: Engine, web: WebServer, *tenants: str) -> None:
    """Give each tenant an account with a feed of two items, and a job that is due."""
    for tenant in tenants:
        web.routes[f"/{tenant}"] = Feed(f"{tenant} one", f"{tenant} two")
        add_account(engine, web.url(f"/{tenant}"), tenant=tenant)
        schedule(engine, tenant)


def materialized(instance: dg.DagsterInstance) -> dict[str | None, dict[str, Any]]:
    """Return the plain metadata of the latest materialization of each partition."""
    records = instance.fetch_materializations(KEY, limit=1_000, ascending=True).records
    return {
        record.partition_key: {
            name: value.value
            for name, value in record.asset_materialization.metadata.items()  # type: ignore[union-attr]
        }
        for record in records
    }


def backfill(location: Location, first: str, last: str, *, fails: bool = False) -> dg.ExecuteInProcessResult:
    """Run a range of partitions as the UI's backfill in a single run does."""
    result = location.definitions.resolve_job_def("cronless_account_research").execute_in_process(
        instance=location.instance,
        tags={"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last},
        raise_on_error=False,
    )
    assert result.success is not fails
    return result


class TestClaims:
    """Runs of the tick's batches."""

    def test_each_tenant_of_a_batch_is_materialized_once(
        self, assets_engine: Engine, location: Location, web: WebServer
    ) -> None:
        """With its counts, its rows, its table and how late it was; new tenants become partitions."""
        watched(assets_engine, web, "acme", "hooli", "stark")
        add_account(assets_engine, web.url("/acme"), tenant="acme", name="initech")
        schedule(assets_engine, "acme", "initech")
        [request] = location.tick().run_requests
        result = location.execute(request)
        assert set(location.instance.get_dynamic_partitions(TENANTS)) == {"acme", "hooli", "stark"}
        told = materialized(location.instance)
        assert set(told) == {"acme", "hooli", "stark"}
        assert told["acme"]["accounts_refreshed"] == 2
        assert (told["acme"]["new_items"], told["hooli"]["new_items"]) == (4, 2)
        assert told["acme"]["dagster/row_count"] == 4
        assert told["acme"]["dagster/table_name"] == "cronless_assets.item"
        assert 25 < told["acme"]["lateness_p50_seconds"] <= told["acme"]["lateness_max_seconds"] < 600
        assert "failures" not in told["acme"]
        [check] = result.get_asset_check_evaluations()
        assert check.passed
        [observation] = result.get_asset_observation_events()
        seen = observation.asset_observation_data.asset_observation.metadata
        assert (seen["claimed"].value, seen["succeeded"].value) == (4, 4)
        assert all(row.status == "PENDING" for row in job_rows(assets_engine))

    def test_bad_rows_fail_alone(self, assets_engine: Engine, location: Location, web: WebServer) -> None:
        """A tenant that is a path, one with a bar, no source, no account, HTML for a feed, a payload of nonsense."""
        watched(assets_engine, web, "acme")
        for tenant in ("../x", "a|b"):
            with assets_engine.begin() as connection:
                connection.execute(
                    text("INSERT INTO cronless_assets.account (tenant_id, name) VALUES (:tenant, 'globex')"),
                    {"tenant": tenant},
                )
            schedule(assets_engine, tenant)
        add_account(assets_engine, tenant="empty")
        schedule(assets_engine, "empty")
        schedule(assets_engine, "nobody")
        schedule(assets_engine, "odd", account=["globex"])
        web.routes["/html"] = lambda _request: Reply(200, b"<html></html>", {"Content-Type": "text/html"})
        add_account(assets_engine, web.url("/html"), tenant="html")
        schedule(assets_engine, "html")
        [request] = location.tick().run_requests
        result = location.execute(request)
        errors = {
            row.tenant_id: (row.outcome, row.error)
            for row in rows(assets_engine, "SELECT * FROM cronless.job_execution")
        }
        assert errors.pop("acme")[0] == "success"
        # None of them is tried again: nothing would be better.
        assert {outcome for outcome, _ in errors.values()} == {"exhausted"}
        for tenant, said in {
            "../x": "tenant '../x' can't be a partition",
            "a|b": "since it contains '|'",
            "empty": "has no source",
            "nobody": "has no account 'globex'",
            "odd": "the payload names the account \"['globex']\"",
            "html": "an HTML page, not a feed",
        }.items():
            assert said in errors[tenant][1]
        told = materialized(location.instance)
        assert {"../x", "a|b"}.isdisjoint(told)
        assert {"../x", "a|b"}.isdisjoint(location.instance.get_dynamic_partitions(TENANTS))
        assert (told["html"]["accounts_failed"], told["html"]["failed_sources"]) == (1, 1)
        [record] = told["html"]["failures"].records
        assert record.data["source"] == web.url("/html")
        [check] = result.get_asset_check_evaluations()
        assert not check.passed
        assert check.description == "6 of 7 jobs failed"

    def test_a_run_that_is_repeated_materializes_nothing(
        self, assets_engine: Engine, location: Location, web: WebServer
    ) -> None:
        """Its claim is closed."""
        watched(assets_engine, web, "acme")
        [request] = location.tick().run_requests
        location.execute(request)
        result = location.execute(request)
        assert len(location.instance.fetch_materializations(KEY, limit=10).records) == 1
        [observation] = result.get_asset_observation_events()
        assert observation.asset_observation_data.asset_observation.metadata["status"].value == "closed"

    def test_without_claim_and_partition_a_run_says_what_to_do(
        self, assets_engine: Engine, location: Location
    ) -> None:
        """It neither fails nor materializes."""
        result = location.execute(dg.RunRequest(job_name="cronless_account_research"))
        said = " ".join(entry.user_message for entry in location.instance.all_logs(result.run_id))
        assert "choose the tenants whose accounts are to be refreshed now" in said
        assert materialized(location.instance) == {}

    def test_a_database_without_the_tables_says_which_command_is_missing(
        self, pg_url: str, engine: Engine, instance: dg.DagsterInstance
    ) -> None:
        """They are an option of the migration."""
        location = Location(JobTypes((account_research(),)), pg_url, instance, health=None)
        result = location.definitions.resolve_job_def("cronless_account_research").execute_in_process(
            instance=instance, partition_key=None, raise_on_error=False
        )
        assert result.success
        instance.add_dynamic_partitions(TENANTS, ["acme"])
        result = backfill(location, "acme", "acme", fails=True)
        [event] = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
        assert "--assets" in event.step_failure_data.user_failure_data.description


class TestBackfills:
    """Runs that a person starts by choosing partitions."""

    def test_the_accounts_of_the_chosen_tenants_are_refreshed(
        self, assets_engine: Engine, location: Location, web: WebServer
    ) -> None:
        """One run, one materialization each; no scheduled job is touched in any column."""
        watched(assets_engine, web, "acme", "hooli", "stark", "umbrella")
        location.instance.add_dynamic_partitions(TENANTS, ["acme", "hooli", "stark"])
        before = rows(assets_engine, "SELECT * FROM cronless.scheduled_job ORDER BY id")
        result = backfill(location, "acme", "stark")
        assert rows(assets_engine, "SELECT * FROM cronless.scheduled_job ORDER BY id") == before
        assert rows(assets_engine, "SELECT * FROM cronless.job_execution") == []
        told = materialized(location.instance)
        assert set(told) == {"acme", "hooli", "stark"}
        assert {one["new_items"] for one in told.values()} == {2}
        assert all("lateness_max_seconds" not in one for one in told.values())
        assert len(items(assets_engine)) == 6
        assert result.get_asset_check_evaluations() == []
        # What has accounts is a partition from now on, and can be chosen.
        assert "umbrella" in location.instance.get_dynamic_partitions(TENANTS)

    def test_a_backfill_repeated_changes_nothing(
        self, assets_engine: Engine, location: Location, web: WebServer
    ) -> None:
        """But is seen in the history."""
        watched(assets_engine, web, "acme")
        location.instance.add_dynamic_partitions(TENANTS, ["acme"])
        backfill(location, "acme", "acme")
        before = items(assets_engine)
        backfill(location, "acme", "acme")
        assert items(assets_engine) == before
        assert len(location.instance.fetch_materializations(KEY, limit=10).records) == 2
        assert materialized(location.instance)["acme"]["unchanged_sources"] == 1

    def test_a_tenant_of_which_nothing_could_be_refreshed_is_not_materialized(
        self, assets_engine: Engine, location: Location, web: WebServer
    ) -> None:
        """The others are, and the run says what failed."""
        watched(assets_engine, web, "acme", "hooli")
        del web.routes["/hooli"]
        location.instance.add_dynamic_partitions(TENANTS, ["acme", "hooli", "nobody"])
        result = backfill(location, "acme", "nobody", fails=True)
        told = materialized(location.instance)
        assert set(told) == {"acme", "nobody"}
        assert told["nobody"]["dagster/row_count"] == 0
        [event] = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
        said = event.step_failure_data.user_failure_data.description
        assert said.startswith(
            "no account of 1 of 3 tenants could be refreshed: of 'hooli' for example 'globex'"
        )
        log = " ".join(entry.user_message for entry in location.instance.all_logs(result.run_id))
        assert "Tenant 'nobody' has no accounts" in log

    @pytest.mark.slow
    def test_the_command_line_backfills_a_tenant(
        self, assets_engine: Engine, pg_url: str, web: WebServer, tmp_path: Path
    ) -> None:
        """`dagster asset materialize --partition`, as an analyst types it."""
        watched(assets_engine, web, "acme")
        before = rows(assets_engine, "SELECT * FROM cronless.scheduled_job")
        (tmp_path / "research_types.py").write_text(
            "from cronless_dagster import JobTypes\n"
            "from cronless_dagster.assets.research import account_research\n"
            "job_types = JobTypes((account_research(),))\n"
        )
        home = tmp_path / "home"
        home.mkdir()
        (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
        environment = {
            **os.environ,
            "DAGSTER_HOME": str(home),
            "CRONLESS_DATABASE_URL": pg_url,
            "CRONLESS_JOB_TYPES": "research_types",
            "CRONLESS_FETCH_NETWORKS": "127.0.0.0/8",
            "PYTHONPATH": f"{tmp_path}:{REPOSITORY}",
        }
        with dg.DagsterInstance.from_config(str(home)) as instance:
            instance.add_dynamic_partitions(TENANTS, ["acme"])
        done = subprocess.run(
            [
                *(sys.executable, "-m", "dagster", "asset", "materialize"),
                *(
                    "-m",
                    "cronless_dagster.definitions",
                    "--select",
                    "account_research",
                    "--partition",
                    "acme",
                ),
            ],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3_000:]
        with dg.DagsterInstance.from_config(str(home)) as instance:
            assert materialized(instance)["acme"]["new_items"] == 2
        assert rows(assets_engine, "SELECT * FROM cronless.scheduled_job") == before


class TestDeclaration:
    """What Dagster is told of the assets."""

    def test_what_people_see(self, location: Location) -> None:
        """Partitions, backfill policy, freshness, kinds, group, table."""
        node = location.definitions.resolve_asset_graph().get(KEY)
        assert node.partitions_def == dg.DynamicPartitionsDefinition(name=TENANTS)
        assert node.backfill_policy == dg.BackfillPolicy.single_run()
        spec = (
            location.definitions.resolve_all_asset_specs_by_key()[KEY]
            if hasattr(location.definitions, "resolve_all_asset_specs_by_key")
            else next(one for one in location.definitions.resolve_all_asset_specs() if one.key == KEY)
        )
        assert spec.freshness_policy is not None
        assert spec.kinds == {"python", "pandas", "postgres"}
        assert (spec.group_name, spec.metadata["dagster/table_name"]) == ("cronless", "cronless_assets.item")

    def test_the_sensors_runs_select_research_alone(self, location: Location) -> None:
        """The overview follows by its own condition."""
        job = location.definitions.resolve_job_def("cronless_account_research")
        assert job.asset_layer.selected_asset_keys == {KEY}
