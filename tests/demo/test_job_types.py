"""The demo's handlers, run through real claims."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from cronless_dagster.demo.command import ROOT
from cronless_dagster.demo.job_types import job_types
from cronless_dagster.demo.load import load_schedules
from cronless_dagster.demo.tables import make_tables
from cronless_dagster.engine.local import tick_and_run

pytestmark = pytest.mark.postgres
START = datetime(2026, 12, 7, 8, 59, 30, tzinfo=UTC)


def test_handlers_write_what_people_can_query(virtual_engine):
    """Each accepted success left its row, the made-up failures were retried, and no key is written twice."""
    make_tables(virtual_engine)
    load_schedules(virtual_engine, ROOT / "examples" / "schedules.csv")
    for minute in range(4):
        tick_and_run(virtual_engine, job_types, now=START + timedelta(minutes=minute))
    with virtual_engine.connect() as connection:
        done = dict(
            connection.execute(
                text(
                    "SELECT job_type, count(*) FROM cronless.job_execution WHERE outcome = 'success' GROUP BY 1"
                )
            ).all()
        )
        failed = connection.execute(
            text(
                "SELECT DISTINCT job_type FROM cronless.job_execution WHERE outcome IN ('failure', 'superseded')"
            )
        ).all()
        written = {
            "research_refresh": "SELECT count(*) FROM cronless_demo.refresh WHERE jobs > 0",
            "email_digest": "SELECT count(*) FROM cronless_demo.digest WHERE body <> ''",
            "webhook_renewal": "SELECT sum(renewals) FROM cronless_demo.webhook_lease",
        }
        counts = {name: connection.execute(text(query)).scalar_one() for name, query in written.items()}
    assert done
    assert counts == {name: done.get(name, 0) for name in written}
    assert failed == [("webhook_renewal",)]
