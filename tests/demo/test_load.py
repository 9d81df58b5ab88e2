"""Loading the example schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from cronless_dagster.demo.command import JOB_TYPES_MODULE, ROOT
from cronless_dagster.demo.load import DemoError, load_schedules
from cronless_dagster.demo.tables import make_tables
from cronless_dagster.engine.job_types import load_job_types
from cronless_dagster.engine.tick import tick

if TYPE_CHECKING:
    from pathlib import Path

SCHEDULES = ROOT / "examples" / "schedules.csv"

pytestmark = pytest.mark.postgres


def test_every_example_schedule_is_loaded_and_planned(engine):
    """Several hundred rows of 300 tenants and three types get an instant at once, or end if they never fire."""
    added, there = load_schedules(engine, SCHEDULES)
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
    assert (tenants, types) == (300, 3)
    assert planned == report.planned == added


def test_a_second_load_leaves_edits_alone(engine):
    """A database that has jobs is not loaded again, so a person's changes stay."""
    load_schedules(engine, SCHEDULES)
    with engine.begin() as connection:
        connection.execute(text("UPDATE cronless.scheduled_job SET schedule = '5 5 * * *'"))
    assert load_schedules(engine, SCHEDULES)[0] == 0
    with engine.connect() as connection:
        assert connection.execute(text("SELECT DISTINCT schedule FROM cronless.scheduled_job")).all() == [
            ("5 5 * * *",)
        ]


def test_a_bad_row_loads_nothing(engine, tmp_path: Path):
    """One unreadable schedule leaves no half-filled table."""
    path = tmp_path / "bad.csv"
    path.write_text(
        "tenant,job_type,name,expr,timezone,system,source_repo,source_path\n"
        "t,email_digest,a,0 9 * * *,,x,x,x\n"
        "t,email_digest,b,0 9 * *,,x,x,x\n"
    )
    with pytest.raises(Exception, match="0 9"):
        load_schedules(engine, path)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM cronless.scheduled_job")).scalar_one() == 0


@pytest.mark.parametrize("content", [None, "tenant,name\nt,a\n"])
def test_a_file_that_cannot_be_used_is_one_sentence(engine, tmp_path: Path, content: str | None):
    """A missing file and missing columns are told by name."""
    path = tmp_path / "schedules.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(DemoError, match=r"schedules\.csv"):
        load_schedules(engine, path)


def test_the_demo_tables_can_be_made_twice(engine):
    """A second demo finds its tables and keeps their rows."""
    make_tables(engine)
    make_tables(engine)
