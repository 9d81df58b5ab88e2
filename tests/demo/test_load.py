"""Loading the example schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from cronless_dagster.assets.migrate import upgrade_assets
from cronless_dagster.demo.command import JOB_TYPES_MODULE, ROOT
from cronless_dagster.demo.load import DemoError, load_schedules
from cronless_dagster.engine.job_types import load_job_types
from cronless_dagster.engine.tick import tick

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine

SCHEDULES = ROOT / "examples" / "schedules.csv"
SERVER = "http://127.0.0.1:8000"
HEADER = "tenant,job_type,name,expr,timezone,system,source_repo,source_path\n"

pytestmark = pytest.mark.postgres


@pytest.fixture(autouse=True)
def assets(pg_url: str) -> None:
    """Make the tables of the ready-made assets."""
    upgrade_assets(pg_url)


def count(engine: Engine, what: str) -> int:
    """Count the rows of a table, or of more than one joined."""
    with engine.connect() as connection:
        return connection.execute(text(f"SELECT count(*) FROM {what}")).scalar_one()


def test_every_example_schedule_is_loaded_and_planned(engine: Engine) -> None:
    """Several hundred rows of three types get an instant at once, or end if they never fire."""
    added, there = load_schedules(engine, SCHEDULES, SERVER)
    report = tick(engine, load_job_types(JOB_TYPES_MODULE))
    with engine.connect() as connection:
        tenants, types, planned = connection.execute(
            text(
                "SELECT count(DISTINCT tenant_id), count(DISTINCT job_type),"
                " count(*) FILTER (WHERE next_run_at IS NOT NULL OR status = 'DONE')"
                " FROM cronless.scheduled_job"
            )
        ).one()
    assert added == there >= 400
    assert (tenants, types) == (100, 3)
    assert count(engine, "cronless.scheduled_job") == added
    assert planned == added
    assert report.planned > 0


def test_each_row_becomes_what_an_application_would_set_up(engine: Engine) -> None:
    """An account for each research job, a reader for each digest job, a subscription for each webhook, and no more.

    Most readers have accounts to follow, and only those of their tenant.
    """
    load_schedules(engine, SCHEDULES, SERVER)
    of_type = "cronless.scheduled_job WHERE job_type = "
    assert count(engine, "cronless_assets.account") == count(engine, f"{of_type}'account_research'")
    assert count(engine, "cronless_assets.digest_user") == count(engine, f"{of_type}'email_digest'")
    assert count(engine, "cronless_assets.subscription") == count(engine, f"{of_type}'webhook_renewal'")
    assert count(engine, "cronless_assets.source") > count(engine, "cronless_assets.account")
    assert count(engine, "(SELECT DISTINCT user_id FROM cronless_assets.follow) AS one") > 100
    followed = (
        "cronless_assets.follow JOIN cronless_assets.account ON account.id = account_id"
        " JOIN cronless_assets.digest_user ON digest_user.id = user_id"
    )
    assert count(engine, f"{followed} WHERE account.tenant_id <> digest_user.tenant_id") == 0


def test_a_second_load_leaves_edits_alone(engine: Engine) -> None:
    """A database that has jobs is not loaded again, so a person's changes stay."""
    load_schedules(engine, SCHEDULES, SERVER)
    with engine.begin() as connection:
        connection.execute(text("UPDATE cronless.scheduled_job SET schedule = '5 5 * * *'"))
    assert load_schedules(engine, SCHEDULES, SERVER)[0] == 0
    with engine.connect() as connection:
        assert connection.execute(text("SELECT DISTINCT schedule FROM cronless.scheduled_job")).all() == [
            ("5 5 * * *",)
        ]


def test_a_second_demo_finds_its_web_server_at_another_port(engine: Engine) -> None:
    """Feeds, topics, hubs and the jobs named after them move along; what a person added stays."""
    load_schedules(engine, SCHEDULES, SERVER)
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO cronless_assets.source (account_id, kind, location)"
                " SELECT id, 'feed', 'https://example.org/feeds/own.xml' FROM cronless_assets.account LIMIT 1"
            )
        )
    before = count(engine, "cronless_assets.source")
    load_schedules(engine, SCHEDULES, "http://127.0.0.1:9000")
    assert (
        count(engine, "cronless_assets.source WHERE location LIKE 'http://127.0.0.1:9000/feeds/%'")
        == before - 1
    )
    assert count(engine, "cronless_assets.source WHERE location = 'https://example.org/feeds/own.xml'") == 1
    at_new = "hub = 'http://127.0.0.1:9000/hub' AND topic LIKE 'http://127.0.0.1:9000/feeds/%'"
    assert count(engine, f"cronless_assets.subscription WHERE NOT ({at_new})") == 0
    assert count(engine, "cronless.scheduled_job WHERE name LIKE 'http_//127.0.0.1_8000/%'") == 0


def test_a_bad_row_loads_nothing(engine: Engine, tmp_path: Path) -> None:
    """One unreadable schedule leaves no half-filled table."""
    path = tmp_path / "bad.csv"
    path.write_text(f"{HEADER}t,email_digest,a,0 9 * * *,,x,x,x\nt,email_digest,b,0 9 * *,,x,x,x\n")
    with pytest.raises(Exception, match="0 9"):
        load_schedules(engine, path, SERVER)
    assert count(engine, "cronless.scheduled_job") == 0
    assert count(engine, "cronless_assets.digest_user") == 0


@pytest.mark.parametrize("content", [None, "tenant,name\nt,a\n"])
def test_a_file_that_cannot_be_used_is_one_sentence(
    engine: Engine, tmp_path: Path, content: str | None
) -> None:
    """A missing file and missing columns are told by name."""
    path = tmp_path / "schedules.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(DemoError, match=r"schedules\.csv"):
        load_schedules(engine, path, SERVER)
