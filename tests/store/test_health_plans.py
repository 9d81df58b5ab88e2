"""Plan guards of schedule_health: no question walks a table, however it is analysed."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from cronless_dagster.store.database import transaction
from cronless_dagster.store.health import read_health
from tests.store.explained import explaining
from tests.store.rows import NOW, sql

_JOBS = """
    INSERT INTO cronless.scheduled_job
        (tenant_id, job_type, name, schedule, status, next_run_at, scheduled_for, consecutive_failures)
    SELECT 'tenant ' || (n % 500), CASE n % 3 WHEN 0 THEN 'renewal' ELSE 'digest' END, 'job ' || n, '0 * * * *',
           CASE WHEN n % 100 = 1 THEN 'INVALID' WHEN n % 10 = 2 THEN 'DONE'
                WHEN n % 50 = 3 THEN 'FAILED' ELSE 'PENDING' END,
           at, at, CASE WHEN n % 200 = 4 THEN 4 ELSE 0 END
    FROM generate_series(1, CAST(:size AS integer)) AS n
    CROSS JOIN LATERAL (SELECT CAST(:now AS timestamptz)
        + make_interval(secs => n * CAST(7919 AS bigint) % 172800 - 60) AS at) AS ahead
"""
# As history is written: in the order of time. The last hour is a small part of its day.
_HISTORY = """
    INSERT INTO cronless.job_execution (recorded_at, job_id, tenant_id, job_type, outcome, due_at, started_at)
    SELECT CAST(:now AS timestamptz) - interval '11 hours' + n * interval '11 hours' / :size,
           gen_random_uuid(), 'tenant ' || (n % 500), 'digest', 'success', :now, :now
    FROM generate_series(1, CAST(:size AS integer)) AS n
"""
# Without any, reading them in order is what's best.
_CLAIMS = """
    INSERT INTO cronless.job_claim (id, job_type, route, id_low, job_count, done_count, state, lease_seconds,
                                    lease_expires_at, created_at, started_at, closed_at)
    SELECT gen_random_uuid(), 'digest', CASE n % 2 WHEN 0 THEN 'run' ELSE 'queue' END, gen_random_uuid(), 9, 9,
           'CLOSED', 600, at, at, at, at
    FROM generate_series(1, 10000) AS n
    CROSS JOIN LATERAL (SELECT CAST(:now AS timestamptz) - n * interval '1 minute' AS at) AS past
"""


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_every_question_has_its_index(virtual_engine, size):
    """Analysed while empty, and with what is there: the same indexes, and reads that follow what is asked for."""
    sql(virtual_engine, _CLAIMS, now=NOW)
    sql(virtual_engine, "ANALYZE cronless.job_claim")
    for analysed in (False, True):
        if analysed:
            with virtual_engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(text("VACUUM (ANALYZE) cronless.scheduled_job, cronless.job_claim"))
                connection.execute(text("VACUUM (ANALYZE) cronless.job_execution"))
        else:
            sql(virtual_engine, "ANALYZE cronless.scheduled_job")
            sql(virtual_engine, _JOBS, size=size, now=NOW)
            sql(virtual_engine, _HISTORY, size=size, now=NOW)
        with explaining(virtual_engine) as found, transaction(virtual_engine) as connection:
            read_health(connection, NOW)
        by_name = {one.name: one for one in found}
        assert [fault for one in found for fault in one.faults] == []
        for name, index in {
            "due_lateness": "scheduled_job_due",
            "due_minutes": "scheduled_job_due",
            "ended_jobs": "scheduled_job_over",
            "failing_jobs": "scheduled_job_failing",
        }.items():
            # Two hold the ended rows alone; without statistics they look alike.
            either = {"scheduled_job_ended"} if name == "ended_jobs" and not analysed else set()
            assert len(by_name[name].indexes) == 1, by_name[name].plan
            assert by_name[name].indexes <= {index} | either, by_name[name].plan
        history = by_name["recent_executions"]
        assert any(name.startswith("job_execution_") and "recorded" in name for name in history.indexes), (
            history.plan
        )
        if analysed and size > 10_000:
            # An hour of eleven, and what shares its ranges of 128 pages.
            read = max(
                node["Actual Rows"] + node.get("Rows Removed by Index Recheck", 0)
                for node in history.scans_of("job_execution")
            )
            assert size / 11 - 2 <= read < size / 11 + 30_000
