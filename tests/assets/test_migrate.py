"""The schema of the ready-made assets: beside the scheduler's, once, for the roles that need it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from cronless_dagster.assets.migrate import upgrade_assets
from cronless_dagster.store import jobs
from cronless_dagster.store.database import transaction
from cronless_dagster.store.errors import DatabaseNotMigrated

if TYPE_CHECKING:
    from sqlalchemy import Engine

TABLES = text("SELECT table_name FROM information_schema.tables WHERE table_schema = 'cronless_assets'")


def test_four_processes_at_once_make_it_once(engine: Engine, pg_url: str) -> None:
    """Deployments start together: one makes the tables, the others find them."""
    failed: list[BaseException] = []

    def migrate() -> None:
        try:
            upgrade_assets(pg_url)
        except BaseException as error:  # noqa: BLE001 - told by the assertion
            failed.append(error)

    threads = [threading.Thread(target=migrate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    with engine.connect() as connection:
        assert {"account", "item", "digest_delivery", "subscription"} <= set(connection.scalars(TABLES))


def test_the_schedulers_own_schema_comes_first(empty_pg_url: str) -> None:
    """Its clock is what the tables' defaults read, so a database without it is refused with what to run."""
    with pytest.raises(DatabaseNotMigrated, match="cronless db upgrade"):
        upgrade_assets(empty_pg_url)


def test_asking_before_it_is_made_says_how(engine: Engine) -> None:
    """A handler that meets no tables fails with the command that makes them, not with a traceback of SQL."""
    with pytest.raises(DatabaseNotMigrated, match="--assets"), transaction(engine) as connection:
        connection.execute(text("SELECT 1 FROM cronless_assets.account"))


def test_each_role_may_do_its_work(assets_engine: Engine) -> None:
    """Whoever adds accounts and whoever runs handlers may write here, and nobody else."""
    allowed = text(
        "SELECT has_table_privilege(:role, 'cronless_assets.item', 'INSERT')"
        " AND has_schema_privilege(:role, 'cronless_assets', 'USAGE')"
    )
    with assets_engine.begin() as connection:
        for role in ("cronless_app", "cronless_dispatcher", "cronless_worker"):
            assert connection.scalar(allowed, {"role": role}), role
        connection.execute(text("CREATE ROLE nobody_in_particular"))
        assert not connection.scalar(allowed, {"role": "nobody_in_particular"})
        connection.execute(text("DROP ROLE nobody_in_particular"))


def test_the_scheduler_works_without_it(engine: Engine) -> None:
    """Whoever uses none of the ready-made assets has none of their tables."""
    with engine.begin() as connection:
        jobs.add(connection, tenant_id="acme", job_type="own", schedule="@daily")
        assert list(connection.scalars(TABLES)) == []
