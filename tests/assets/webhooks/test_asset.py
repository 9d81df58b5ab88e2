"""The asset: a tick's run request, its run in Dagster, and what people see of it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from sqlalchemy import text

from cronless_dagster.assets.fetching.resource import FetcherResource
from cronless_dagster.assets.job_types import assets_of, build_job
from cronless_dagster.assets.webhooks import subscribe, webhook_renewal
from cronless_dagster.assets.webhooks.asset import count_subscriptions
from cronless_dagster.engine.job_types import JobTypes
from cronless_dagster.engine.run_requests import run_config
from cronless_dagster.engine.tick import tick
from cronless_dagster.resources.database import CronlessResource
from tests.assets.webhooks.hub import TOPIC, Hub

if TYPE_CHECKING:
    from sqlalchemy import Engine


def run_due(engine: Engine, url: str, **options: Any) -> dg.ExecuteInProcessResult:
    """Tick once and run the claim as Dagster does."""
    job_type = webhook_renewal(public_url="http://127.0.0.1:9", **options)
    [claim] = tick(engine, JobTypes((job_type,)), route="local").hand_over
    definitions = dg.Definitions(
        assets=assets_of(job_type),
        jobs=[build_job(job_type)],
        resources={
            "cronless": CronlessResource(database_url=url),
            "fetcher": FetcherResource(networks=["127.0.0.0/8"]),
        },
    )
    job = definitions.resolve_job_def("cronless_webhook_renewal")
    return job.execute_in_process(run_config=run_config(job_type.name, claim.claim_id), raise_on_error=False)


@pytest.mark.parametrize("route", ["run", "queue"])
def test_a_run_says_how_the_subscriptions_stand(assets_engine: Engine, pg_url: str, route: Any) -> None:
    """Whichever route is declared: without a broker all take runs. The hub is reached through the resource."""
    with Hub() as hub:
        with assets_engine.begin() as connection:
            subscribe(connection, tenant_id="acme", topic=TOPIC, hub=hub.url)
            subscribe(connection, tenant_id="globex", topic=TOPIC, hub=hub.server.url("/nothing"))
        result = run_due(assets_engine, pg_url, route=route)
        assert len(hub.requests) == 1
    assert result.success
    [event] = result.get_asset_materialization_events()
    assert event.asset_key == dg.AssetKey("webhook_renewal")
    seen = {name: value.value for name, value in event.materialization.metadata.items()}
    assert (seen["claimed"], seen["succeeded"], seen["failed"]) == (2, 1, 1)
    assert (seen["active"], seen["unverified"], seen["denied"], seen["expired"]) == (0, 2, 0, 0)
    [check] = result.get_asset_check_evaluations()
    assert not check.passed


def test_the_counts_are_of_wanted_leases(virtual_assets_engine: Engine) -> None:
    """A subscription that ended or is being left is none that has expired."""
    with virtual_assets_engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO cronless_assets.subscription (tenant_id, topic, hub, secret, status, expires_at, ignored)"
                " SELECT 'acme', 'https://made-up.example/' || row_number() OVER (), 'https://hub.example/', 'x',"
                " status, cronless.clock_now() + hours * interval '1 hour', 2"
                " FROM (VALUES ('active', 300), ('requested', 23), ('active', 1), ('active', -1), ('requested', -1),"
                " ('requested', NULL), ('new', NULL), ('denied', NULL), ('leaving', 5), ('ended', NULL))"
                " AS one (status, hours)"
            )
        )
        assert count_subscriptions(connection) == {
            "active": 3,
            "expiring_within_a_day": 2,
            "expired": 2,
            "unverified": 2,
            "denied": 1,
            "ignored_deliveries": 20,
        }


def test_the_asset_is_overdue_after_a_whole_lease() -> None:
    """Unless told otherwise."""
    for options, days in (
        ({}, 10),
        ({"lease_wish": timedelta(days=5)}, 5),
        ({"fresh_within": timedelta(days=1)}, 1),
    ):
        [asset] = assets_of(webhook_renewal(**options))
        [spec] = asset.specs
        assert spec.freshness_policy == dg.FreshnessPolicy.time_window(fail_window=timedelta(days=days))


def test_declaring_the_job_type_needs_no_dagster() -> None:
    """Workers of the queue route import it, and the settings are read only when a hub is asked."""
    import subprocess
    import sys

    code = (
        "import sys; from cronless_dagster.assets.webhooks import webhook_renewal; webhook_renewal(route='queue');"
        " sys.exit(bool({'dagster', 'starlette', 'pandas'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
