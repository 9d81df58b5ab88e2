"""All tenants side by side, made anew whenever some tenant's research was."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from sqlalchemy import text

from cronless_dagster.assets.partitions import TENANTS
from cronless_dagster.assets.research import account_research
from cronless_dagster.assets.research.overview import write_overview
from cronless_dagster.assets.research.summaries import by_week, first_monday
from cronless_dagster.engine.job_types import JobTypes
from cronless_dagster.store.clock import make_virtual
from tests.assets.research.support import add_account, rows
from tests.conftest import VIRTUAL_NOW
from tests.dagster.support import Location

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from sqlalchemy import Engine

RESEARCH, OVERVIEW = dg.AssetKey("account_research"), dg.AssetKey("account_overview")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A Dagster instance in memory."""
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def summarize(engine: Engine, account_id: UUID, items: int, weekly: dict[str, int], failed: int = 0) -> None:
    """Write the summary that a refresh would have written."""
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO cronless_assets.account_summary (account_id, refreshed_at, items, new_items,"
                " changed_items, sources, failed_sources, weekly) VALUES (:id, now(), :items, 0, 0, 1, :failed,"
                " CAST(:weekly AS jsonb))"
            ),
            {"id": account_id, "items": items, "failed": failed, "weekly": json.dumps(weekly)},
        )


class TestWeeks:
    """ISO weeks in UTC, from Monday to Sunday."""

    def test_instants_are_counted_by_monday(self) -> None:
        """Sunday's last second belongs to the old week, whatever zone it is told in."""
        monday = datetime(2026, 3, 2, tzinfo=UTC)
        instants = [monday, monday - timedelta(seconds=1), monday + timedelta(days=6, hours=23), monday]
        assert by_week(instants) == {"2026-02-23": 1, "2026-03-02": 3}
        assert by_week([]) == {}

    def test_the_first_of_so_many_weeks(self) -> None:
        """The present one counts as one."""
        noon = datetime(2026, 3, 4, 12, tzinfo=UTC)
        assert first_monday(noon, 1) == datetime(2026, 3, 2, tzinfo=UTC)
        assert first_monday(noon, 26) == datetime(2026, 3, 2, tzinfo=UTC) - timedelta(weeks=25)


class TestTable:
    """One row a tenant."""

    def test_accounts_are_summed_by_tenant(self, virtual_assets_engine: Engine) -> None:
        """The last whole week beside the one before; an account that was never refreshed counts as one."""
        engine = virtual_assets_engine
        assert VIRTUAL_NOW.weekday() == 0
        weekly = {"2026-03-02": 100, "2026-02-23": 3, "2026-02-16": 2, "2026-02-09": 50}
        summarize(engine, add_account(engine, name="globex"), 155, weekly, failed=1)
        summarize(engine, add_account(engine, name="initech"), 4, {"2026-02-23": 4})
        add_account(engine, tenant="hooli")
        overview = write_overview(engine)
        assert overview.loc["acme"].to_dict() == {
            "accounts": 2,
            "items": 159,
            "items_last_week": 7,
            "items_week_before": 2,
            "failed_sources": 1,
        }
        assert overview.loc["hooli", "accounts"] == 1
        stored = {row.tenant_id: row for row in rows(engine, "SELECT * FROM cronless_assets.tenant_overview")}
        assert (stored["acme"].items, stored["acme"].items_last_week) == (159, 7)
        assert (stored["hooli"].items, stored["hooli"].refreshed_at) == (0, VIRTUAL_NOW)

    def test_it_is_written_anew(self, virtual_assets_engine: Engine) -> None:
        """Tenants without accounts are gone, a week later the weeks are others."""
        engine = virtual_assets_engine
        summarize(engine, add_account(engine), 3, {"2026-02-23": 3})
        add_account(engine, tenant="hooli")
        write_overview(engine)
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM cronless_assets.account WHERE tenant_id = 'hooli'"))
        make_virtual(engine, VIRTUAL_NOW + timedelta(weeks=1))
        write_overview(engine)
        [row] = rows(engine, "SELECT * FROM cronless_assets.tenant_overview")
        assert (row.tenant_id, row.items_last_week, row.items_week_before) == ("acme", 0, 3)

    def test_without_accounts_it_is_empty(self, assets_engine: Engine) -> None:
        """The first day."""
        assert len(write_overview(assets_engine)) == 0


class TestAutomation:
    """Dagster asks for it when research was done, by real evaluations of its condition."""

    def test_it_follows_research_without_waiting_for_every_tenant(
        self, assets_engine: Engine, pg_url: str, instance: dg.DagsterInstance
    ) -> None:
        """Not before some research, then once, and again after more; a tenant without any doesn't hold it up."""
        location = Location(JobTypes((account_research(),)), pg_url, instance, health=None)
        instance.add_dynamic_partitions(TENANTS, ["acme", "hooli"])
        cursor = None

        def asked_for() -> int:
            nonlocal cursor
            result = dg.evaluate_automation_conditions(
                location.definitions,
                instance=instance,
                asset_selection=dg.AssetSelection.assets(OVERVIEW),
                cursor=cursor,
            )
            cursor = result.cursor
            return result.get_num_requested(OVERVIEW)

        def make(key: dg.AssetKey, partition: str | None = None) -> None:
            instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=partition))

        asked_for()
        make(OVERVIEW)
        assert asked_for() == 0
        make(RESEARCH, "acme")
        assert asked_for() == 1
        make(OVERVIEW)
        assert asked_for() == 0
        make(RESEARCH, "acme")
        assert asked_for() == 1

    def test_a_run_writes_the_table_and_shows_its_sums(
        self, assets_engine: Engine, pg_url: str, instance: dg.DagsterInstance
    ) -> None:
        """With the busiest tenants by name."""
        summarize(assets_engine, add_account(assets_engine), 3, {})
        location = Location(JobTypes((account_research(),)), pg_url, instance, health=None)
        result = location.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=instance, asset_selection=[OVERVIEW]
        )
        [event] = result.get_asset_materialization_events()
        told = {name: value.value for name, value in event.materialization.metadata.items()}
        assert (told["dagster/row_count"], told["accounts"], told["items"]) == (1, 1, 3)
        assert told["busiest_tenants"].records[0].data["tenant"] == "acme"
