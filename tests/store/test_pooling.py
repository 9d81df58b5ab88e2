"""Behind a pooler in transaction mode, where the next transaction has another session, and ours is another's."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import time
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import event

from cronless_dagster.engine.rescue import carry_out
from cronless_dagster.store import claims, jobs
from cronless_dagster.store.database import create_store_engine, require_current, transaction
from cronless_dagster.store.history import prune
from tests.store.rows import (
    DAY,
    MINUTE,
    NOW,
    add_row,
    claim,
    due_row,
    edit,
    job_types,
    outcomes,
    sql,
    start,
    tick,
)

_LEFT_BEHIND = """
    SELECT 'setting ' || name FROM pg_settings WHERE source = 'session'
    UNION ALL SELECT 'prepared statement ' || name FROM pg_prepared_statements
    UNION ALL SELECT 'channel ' || name FROM pg_listening_channels() AS name
    UNION ALL SELECT 'advisory lock' FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
    UNION ALL SELECT 'temporary table ' || relname FROM pg_class
        WHERE relpersistence = 't' AND relnamespace = pg_my_temp_schema()
    UNION ALL SELECT 'cursor ' || name FROM pg_cursors WHERE is_holdable
"""


def do_everything(engine):
    """Plan, misfire, claim, run, fail, report, split, prune and edit; returns a job that was served."""
    job = due_row(engine)
    late = due_row(engine, NOW - DAY - 30 * MINUTE, schedule="30 * * * *", misfire_policy="skip")
    add_row(engine)
    report, [ran] = tick(engine)
    assert ran.succeeded == 1
    assert outcomes(engine, late) == ["missed"]
    with transaction(engine) as connection:
        other = jobs.add(connection, tenant_id="acme", job_type="digest", schedule="@hourly", name="pooled")
        jobs.change(connection, other, schedule="@daily")
        jobs.trigger(connection, other)
        jobs.pause(connection, other)
        jobs.resume(connection, other)
        jobs.remove(connection, other)
    for _ in range(2):
        due_row(engine)
    claim_id = claim(engine)
    start(engine, claim_id)
    with transaction(engine) as connection:
        [seen] = [one for one in claims.open_claims(connection) if one.id == claim_id]
    carry_out(engine, seen, "died", None, job_types(), NOW)
    reported, me = due_row(engine), uuid4()
    values = {"job": reported, "token": claim(engine, route="queue"), "me": me}
    sql(engine, "SELECT cronless.cronless_start(:job, :token, :me)", **values)
    sql(engine, "SELECT cronless.cronless_finish(:job, :token, :me, 'failure', 'no')", **values)
    edit(engine, job, timezone="Europe/Paris")
    sql(engine, "UPDATE cronless.scheduled_job SET tzdata_version = '2001a' WHERE status = 'PENDING'")
    sql(
        engine,
        'UPDATE cronless.progress SET value = \'{"version": "2001a", "after": null}\' WHERE key ~ \'zone\'',
    )
    report, _ = tick(engine, NOW + MINUTE)
    assert report.finished == 1
    prune(engine, NOW + MINUTE, 30)
    require_current(engine)
    return job


def test_transactions_leave_nothing_behind(virtual_engine):
    """No transaction leaves a setting, a prepared statement, a lock or a cursor in its session."""
    found = []

    @event.listens_for(virtual_engine, "checkin")
    def look(connection, _record) -> None:
        if connection is None or connection.closed:
            return
        autocommit = connection.autocommit
        if not autocommit:
            connection.rollback()
            connection.autocommit = True
        found.extend(row[0] for row in connection.execute(_LEFT_BEHIND).fetchall())
        connection.execute("DISCARD ALL")
        connection.autocommit = autocommit

    try:
        for _ in range(6):
            # psycopg would prepare a statement that it sees for the fifth time.
            sql(virtual_engine, "SELECT 1 FROM cronless.scheduled_job")
        job = do_everything(virtual_engine)
    finally:
        event.remove(virtual_engine, "checkin", look)
    assert found == []
    assert outcomes(virtual_engine, job) == ["success"]


def test_sessions_change_between_transactions(virtual_engine):
    """Everything works where each transaction has a session that never saw one before."""
    engine = create_store_engine(virtual_engine.url.render_as_string(hide_password=False), pooled=False)
    assert outcomes(engine, do_everything(engine)) == ["success"]


@pytest.fixture
def pgbouncer_url(virtual_engine, tmp_path, spawn):
    """Address of a PgBouncer in transaction mode with two sessions, before the tests' server."""
    program = shutil.which("pgbouncer")
    if program is None:
        pytest.skip("PgBouncer is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Path(virtual_engine.url.query["host"])
    # The socket's directory is the server's user's alone.
    user = pwd.getpwuid(server.resolve().stat().st_uid).pw_name
    config = tmp_path / "pgbouncer.ini"
    config.write_text(
        f"[databases]\n* = host={server} port={virtual_engine.url.query.get('port', 5432)} user=postgres\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        "auth_type = any\npool_mode = transaction\ndefault_pool_size = 2\n"
    )
    command = [program, *(["-u", user] if os.geteuid() == 0 else []), str(config)]
    log = tmp_path / "pgbouncer.log"
    process = spawn(*command, output=log)
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
    return f"postgresql://anybody@127.0.0.1:{port}/{virtual_engine.url.database}"


def test_real_pgbouncer(pgbouncer_url):
    """Everything works through a real PgBouncer in transaction mode, on two sessions."""
    engine = create_store_engine(pgbouncer_url)
    try:
        assert outcomes(engine, do_everything(engine)) == ["success"]
    finally:
        engine.dispose()
