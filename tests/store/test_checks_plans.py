"""Plan guards of analytics and garbage-collect: reads follow what is asked for, however the tables are analysed."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from cronless_dagster.scheduling.shards import from_prefix
from cronless_dagster.store import garbage
from cronless_dagster.store.database import transaction
from cronless_dagster.store.snapshots import take, untaken, window_of
from tests.store import explained
from tests.store.explained import explaining
from tests.store.rows import DAY, NOW, sql

TABLES = ("check_done", "health_snapshot", "scheduled_job", "job_execution")
MOST = 100

_MARKS = """
    INSERT INTO cronless.check_done (check_name, place, window_start, entity, over_at)
    SELECT 'reminders', cronless.place_of(CAST(n AS text)), at, CAST(n AS text), at
    FROM generate_series(1, CAST(:size AS integer)) AS n
    CROSS JOIN LATERAL (SELECT CAST(:now AS timestamptz) - n * interval '4 days' / :size AS at) AS past
"""
_SNAPSHOTS = """
    INSERT INTO cronless.health_snapshot
        (window_start, job_type, taken_at, due, late, running, stuck, failing, outcomes)
    SELECT CAST(:now AS timestamptz) - n / 30 * interval '15 minutes', 'type ' || n % 30, :now, 0, 0, 0, 0, 0, '{}'
    FROM generate_series(30, CAST(:size AS integer) + 29) AS n
"""
_JOBS = """
    INSERT INTO cronless.scheduled_job
        (tenant_id, job_type, name, schedule, status, next_run_at, last_finished_at, updated_at)
    SELECT 'tenant ' || n % 500, 'digest', 'job ' || n, '0 * * * *', CASE n % 4 WHEN 0 THEN 'PENDING' ELSE 'DONE' END,
           CASE n % 4 WHEN 0 THEN :now END, at, at
    FROM generate_series(1, CAST(:size AS integer)) AS n
    CROSS JOIN LATERAL (SELECT CAST(:now AS timestamptz) - n * interval '60 days' / :size AS at) AS past
"""
_HISTORY = """
    INSERT INTO cronless.job_execution (recorded_at, job_id, tenant_id, job_type, outcome, due_at, started_at)
    SELECT CAST(:now AS timestamptz) - interval '11 hours' + n * interval '11 hours' / :size,
           gen_random_uuid(), 'tenant ' || n % 500, 'digest', 'success', :now, :now
    FROM generate_series(1, CAST(:size AS integer)) AS n
"""


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_every_question_has_its_index(virtual_engine, monkeypatch, size):
    """Analysed while empty, and with what is there: a batch reads about a batch, and nothing reads a table."""
    monkeypatch.setattr(explained, "GROWING", TABLES)
    named = ", ".join(f"cronless.{table}" for table in TABLES)
    sql(virtual_engine, "TRUNCATE cronless.check_done, cronless.health_snapshot")
    try:
        sql(virtual_engine, f"ANALYZE {named}")
        for rows in (_MARKS, _SNAPSHOTS, _JOBS, _HISTORY):
            sql(virtual_engine, rows, size=size, now=NOW)
        for analysed in (False, True):
            if analysed:
                with virtual_engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                    connection.execute(text(f"VACUUM (ANALYZE) {named}"))
            with explaining(virtual_engine) as found:
                _ask_all(virtual_engine)
            assert [fault for one in found for fault in one.faults] == []
            by_name = {one.name: one for one in found}
            for name, table, index in (
                ("collect_marks", "check_done", "check_over_at"),
                ("collect_snapshots", "health_snapshot", "health_snapshot_pkey"),
                ("collect_ended", "scheduled_job", "scheduled_job_ended_at"),
            ):
                assert by_name[name].indexes == {index}, by_name[name].plan
                for node in by_name[name].scans_of(table):
                    read = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                    assert read * node["Actual Loops"] <= MOST, node
            assert by_name["untaken_snapshots"].indexes == {"health_snapshot_pkey"}
            history = by_name["take_snapshots"].indexes
            assert any(name.startswith("job_execution_") and "recorded" in name for name in history)
            assert "scheduled_job_failing" in history
    finally:
        sql(virtual_engine, "TRUNCATE cronless.check_done, cronless.health_snapshot")


def _ask_all(engine):
    window = window_of(NOW)
    names = [f"type {number}" for number in range(20)] + ["digest"]
    with transaction(engine) as connection:
        assert "digest" in untaken(connection, names, window)
    with transaction(engine) as connection:
        assert take(connection, names, window, NOW) == 21
    sql(engine, "DELETE FROM cronless.health_snapshot WHERE window_start = :window", window=window)
    with transaction(engine, index_order=True) as connection:
        assert garbage.collect_marks(connection, NOW - 2 * DAY, MOST) == MOST
    with transaction(engine, index_order=True) as connection:
        garbage.collect_snapshots(connection, NOW - DAY / 12, MOST)
    with transaction(engine, index_order=True) as connection:
        # Half of the ids: others' rows are passed over within the index.
        assert garbage.collect_ended(connection, from_prefix("0"), NOW - 30 * DAY, 5) <= 5
