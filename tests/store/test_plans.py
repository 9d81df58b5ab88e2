"""Plan guards: what PostgreSQL does for each hot statement, at several sizes of the table.

The tables are analysed while no row is QUEUED or RUNNING, as they are in production most of the time: rows in
these states come and go between two ANALYZEs, and a plan that is good only with statistics of them is none.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import replace

import psycopg
import pytest
from sqlalchemy import text

from cronless_dagster.engine.claiming import claim_one
from cronless_dagster.engine.planning import finish_reported, plan_rows
from cronless_dagster.engine.queue_rescue import carry_out_queued, rescue_lapsed
from cronless_dagster.engine.report import TickReport
from cronless_dagster.engine.rescue import carry_out
from cronless_dagster.scheduling.limits import Limits
from cronless_dagster.scheduling.models import Outcome
from cronless_dagster.scheduling.shards import FULL, from_prefix
from cronless_dagster.store import claims, fairness, history, jobs, outbox, replan
from cronless_dagster.store.clock import make_virtual
from cronless_dagster.store.database import create_store_engine, transaction
from cronless_dagster.store.results import Result, lock_finished
from tests.store.explained import explaining
from tests.store.queued import begin, dispatched, finish, give_back, messages, renew, waiting
from tests.store.rows import DAY, HOUR, MINUTE, NOW, job_types, sql, start

BATCH = 2_000

_GROW = """
    INSERT INTO cronless.scheduled_job
        (tenant_id, job_type, name, schedule, next_run_at, scheduled_for, tzdata_version, misfire_grace_seconds)
    SELECT 'tenant ' || (n % 500),
           CASE n % 10 WHEN 8 THEN 'renewal' WHEN 9 THEN 'research' ELSE 'digest' END, 'job ' || n,
           '0 * * * *', at, at, 'now', 86400
    FROM generate_series(CAST(:low AS integer), CAST(:high AS integer)) AS n
    CROSS JOIN LATERAL
        (SELECT CAST(:now AS timestamptz) + make_interval(secs => 60 + n * CAST(7919 AS bigint) % 86400) AS at) AS ahead
"""
_CLAIMS = """
    INSERT INTO cronless.job_claim (id, job_type, route, id_low, job_count, done_count, state, lease_seconds,
                                    lease_expires_at, created_at, closed_at)
    SELECT gen_random_uuid(), 'digest', 'run', gen_random_uuid(), 100, 100, 'CLOSED', 600, at, at, at
    FROM generate_series(1, 10000) AS n
    CROSS JOIN LATERAL (SELECT CAST(:now AS timestamptz) - n * interval '1 minute' AS at) AS past
"""
# A busy month of a queue's claims, all started: among these the probe for overtaken ones looks.
_QUEUE_CLAIMS = """
    INSERT INTO cronless.job_claim (id, job_type, route, id_low, job_count, done_count, state, lease_seconds,
                                    lease_expires_at, created_at, submitted_at, started_at, closed_at)
    SELECT gen_random_uuid(), CASE n % 4 WHEN 0 THEN 'renewal' ELSE 'digest' END, 'queue', gen_random_uuid(), 100, 100,
           'CLOSED', 600, at, at, at, at, at
    FROM generate_series(1, 200000) AS n
    CROSS JOIN LATERAL (SELECT CAST(:now AS timestamptz) - n * interval '12 seconds' AS at) AS past
"""
_HISTORY = """
    INSERT INTO cronless.job_execution (recorded_at, job_id, tenant_id, job_type, outcome)
    SELECT CAST(:now AS timestamptz), id, tenant_id, job_type, 'success' FROM cronless.scheduled_job LIMIT 10000
"""


@pytest.fixture(scope="module")
def growing(postgres_server, template_database):
    """Grow one database to a size; called with growing sizes."""
    name = f"g_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template_database}")
    engine = create_store_engine(postgres_server.url(name))
    make_virtual(engine, NOW)
    with engine.begin() as connection:
        history.ensure_partitions(connection, NOW, ahead=2)
    # Autovacuum would analyse when it likes.
    for table in ("scheduled_job", "job_claim"):
        sql(engine, f"ALTER TABLE cronless.{table} SET (autovacuum_enabled = false)")
    sql(engine, _CLAIMS, now=NOW)
    sql(engine, _QUEUE_CLAIMS, now=NOW)

    def grow(size):
        [(there,)] = sql(engine, "SELECT count(*) FROM cronless.scheduled_job")
        if there < size:
            # An index made over rows with HOT chains may not be used while an older transaction runs anywhere on
            # the server, in another test's database too.
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(text("VACUUM cronless.scheduled_job"))
            # Indexes made afterwards are several times faster than indexes kept up row by row.
            made = sql(
                engine,
                "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'cronless'"
                " AND tablename = 'scheduled_job' AND indexname <> 'scheduled_job_pkey'",
            )
            for index in made:
                sql(engine, f"DROP INDEX cronless.{index.indexname}")
            sql(engine, _GROW, low=there + 1, high=size, now=NOW)
            for index in made:
                sql(engine, index.indexdef)
            wait_until_usable(engine)
        # What the smaller size left claimed, due or missing goes back.
        sql(
            engine,
            "UPDATE cronless.job_claim SET state = 'CLOSED', closed_at = :now WHERE state <> 'CLOSED'",
            now=NOW,
        )
        sql(
            engine,
            "UPDATE cronless.scheduled_job SET status = 'PENDING', claim_id = NULL, execution_id = NULL, report = NULL,"
            " next_run_at = :later, scheduled_for = :later,"
            " attempt = 0, trigger_requested_at = NULL, plan_count = plan_count + 1"
            " WHERE status <> 'PENDING' OR next_run_at IS NULL OR next_run_at <= :later",
            later=NOW + HOUR,
        )
        if there < size:
            sql(engine, _HISTORY, now=NOW)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM (ANALYZE) cronless.scheduled_job, cronless.job_claim"))
            connection.execute(text("ANALYZE cronless.job_execution"))
        return engine

    yield grow
    engine.dispose()
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def wait_until_usable(engine):
    """Wait until the planner may use every index, whatever transactions run beside (see pg_index.indcheckxmin)."""
    deadline = time.monotonic() + 120
    waiting = (
        "SELECT count(*) FROM pg_index WHERE indrelid = 'cronless.scheduled_job'::regclass AND indcheckxmin"
        " AND age(xmin) <= age(CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS xid))"
    )
    while sql(engine, waiting)[0].count:
        assert time.monotonic() < deadline, "an older transaction keeps the new indexes from being used"
        time.sleep(0.1)


def aside(engine, statement, **parameters):
    """Run a statement of the test's own, which nobody explains."""
    return sql(engine.execution_options(aside=True), statement, **parameters)


def make_due(engine, rows, *, job_type="digest", grace=86_400):
    """Make so many rows of a type due, without letting statistics know."""
    aside(
        engine,
        "UPDATE cronless.scheduled_job SET next_run_at = :due, scheduled_for = :due, plan_count = plan_count + 1,"
        " misfire_grace_seconds = :grace WHERE id IN (SELECT id FROM cronless.scheduled_job"
        " WHERE status = 'PENDING' AND next_run_at > :now AND job_type = :job_type"
        " ORDER BY id LIMIT :rows)",
        due=NOW - HOUR,
        now=NOW,
        rows=rows,
        job_type=job_type,
        grace=grace,
    )


def claim_batch(engine, *, limits=None, job_type="digest", route="run", more=lambda: True):
    """Claim as a tick does; returns the claim's id, or None when there was no time to decide its misfires."""
    types = job_types(job_type, batch_size=BATCH, limits=limits or Limits(open_claims=None))
    with transaction(engine) as connection:
        waiting = fairness.waiting_types(connection, {job_type: BATCH}, NOW, FULL)[job_type]
    # As a caller that was not told of a backlog, so that both ways to ask are explained.
    waiting = replace(waiting, backlog=None)
    result = claim_one(engine, types[job_type], waiting, route=route, ids=FULL, now=NOW, more=more)
    assert result.rows > 0 or not more()
    return result.claim_id


def life_of_claims(engine):
    """Take claims through all that can become of them, in batches of 2,000."""
    # exactly a batch due: the plain claim; more: the fair one; with a limit a tenant: the counting one
    make_due(engine, BATCH)
    plain = claim_batch(engine)
    make_due(engine, BATCH + 500)
    fair = claim_batch(engine, limits=Limits(open_claims=None, per_tenant=10))
    released = claim_batch(engine)

    holder = start(engine, plain)
    assert len(holder.jobs) == BATCH
    with transaction(engine) as connection:
        lock_finished(connection, [Result(job, None, None, None) for job in holder.jobs[:1_000]])
    holder.finish(jobs=holder.jobs[:1_000])
    holder.finish(Outcome("failure", error="no"), jobs=holder.jobs[1_000:1_900])
    with transaction(engine) as connection:
        assert claims.unfinished_rows(connection, plain, most=1) == 1
        claims.correct_counts(connection, plain, done=1_900)
    seen = {one.id: one for one in _open(engine)}
    assert carry_out(engine, seen[plain], "died", None, job_types(), NOW) == "split"
    assert carry_out(engine, seen[released], "release", None, job_types(), NOW) == "released"
    start(engine, fair)
    assert (
        carry_out(engine, {one.id: one for one in _open(engine)}[fair], "cancel", "r", job_types(), NOW)
        == "canceled"
    )
    [alone, *_] = [one for one in _open(engine) if one.parent_id == plain]
    with transaction(engine) as connection:
        claims.crash_alone(connection, alone, 3, "died", NOW)


def life_of_messages(engine):
    """Take claims of the queue route through all that can become of them, in batches of 2,000."""
    make_due(engine, BATCH)
    token = claim_batch(engine, route="queue")
    with transaction(engine) as connection:
        last = outbox.take_outgoing(connection, token, 0, NOW, HOUR)
        page = outbox.outgoing(connection, token, last, BATCH)
        assert len(page) == BATCH
        outbox.note_confirmed(connection, token, 0, page[-1].job_id, NOW)
        assert outbox.outgoing(connection, token, page[-1].job_id, BATCH) == []
        outbox.leave_outgoing(connection, token, 0)
    dispatched(engine, token)
    asked = messages(token, [one.job_id for one in page[:-2]])
    jobs = begin(engine, asked, lease=60).jobs
    assert len(jobs) == BATCH - 2
    assert len(begin(engine, messages(token, [one.job_id for one in page[:-2]])).doubled) == BATCH - 2
    assert len(renew(engine, jobs, NOW, lease=60)) == BATCH - 2
    assert len(give_back(engine, jobs[:500])) == 500
    assert len(finish(engine, jobs[500:1_500])[0]) == 1_000
    later = NOW + 2 * MINUTE
    assert waiting(engine, token, later) == outbox.QueuedClaim(token, NOW, 2, 498, 498, overtaken=False)
    seen = {one.id: one for one in _open(engine)}
    assert rescue_lapsed(engine, seen[token], 1, later) == "split"
    assert carry_out_queued(engine, seen[token], "again", later) == "again"
    [alone, other, *_] = [one for one in _open(engine) if one.parent_id == token]
    held = begin(engine, messages(alone.id, [_row_of(engine, alone)]), later, lease=1).jobs
    finish(engine, begin(engine, messages(other.id, [_row_of(engine, other)]), later).jobs, now=later)
    assert len(held) == 1
    assert rescue_lapsed(engine, alone, 1, later + MINUTE) == "crashed"
    with transaction(engine) as connection:
        outbox.refuse_outgoing(connection, token, page[-1].job_id, "it can't be written")
    [seen] = [one for one in _open(engine) if one.id == token]
    assert carry_out_queued(engine, seen, "release", later) == "released"
    aside(engine, "UPDATE cronless.scheduled_job SET status = 'PENDING' WHERE status = 'INVALID'")


def _row_of(engine, claim):
    [found] = aside(engine, "SELECT id FROM cronless.scheduled_job WHERE claim_id = :id", id=claim.id)
    return found.id


def misfires_requests_and_plans(engine):
    """Misfires, requests, reports, unplanned rows, other zone data, and what users do."""
    aside(
        engine,
        "UPDATE cronless.scheduled_job SET misfire_policy = 'skip', schedule = '30 * * * *',"
        " plan_count = plan_count + 1 WHERE id IN"
        " (SELECT id FROM cronless.scheduled_job WHERE job_type = 'renewal' AND next_run_at > :now"
        " ORDER BY id LIMIT 450)",
        now=NOW,
    )
    make_due(engine, 900, job_type="renewal", grace=60)
    assert claim_batch(engine, job_type="renewal", more=lambda: False) is None
    claim_batch(engine, job_type="renewal")
    requested = aside(
        engine,
        "SELECT picked.id FROM unnest(ARRAY['digest', 'renewal', 'research']) AS kind CROSS JOIN LATERAL"
        " (SELECT id FROM cronless.scheduled_job WHERE status = 'PENDING' AND job_type = kind LIMIT 20) AS picked",
    )
    ids = [one.id for one in requested]
    aside(
        engine,
        "UPDATE cronless.scheduled_job SET trigger_requested_at = :now WHERE id = ANY(:ids)",
        now=NOW,
        ids=ids,
    )
    for name in ("digest", "renewal", "research"):
        with transaction(engine) as connection:
            waiting = fairness.waiting_types(connection, {name: BATCH}, NOW, FULL)[name]
        claim_one(
            engine,
            job_types(name, limits=Limits(open_claims=None))[name],
            waiting,
            route="queue",
            ids=FULL,
            now=NOW,
        )
    aside(
        engine,
        "UPDATE cronless.scheduled_job SET status = 'RUNNING', execution_id = gen_random_uuid(),"
        ' report = \'{"outcome": "success"}\', plan_count = plan_count + 1'
        " WHERE serving_manual AND status = 'QUEUED'",
    )
    finish_reported(engine, TickReport(now=NOW), job_types(), FULL, NOW, lambda: True)
    aside(
        engine,
        "UPDATE cronless.scheduled_job SET next_run_at = NULL WHERE id IN (SELECT id FROM cronless.scheduled_job"
        " WHERE status = 'PENDING' AND next_run_at > :now LIMIT 2500)",
        now=NOW,
    )
    plan_rows(engine, TickReport(now=NOW), from_prefix("b"), NOW, lambda: True)
    plan_rows(engine, TickReport(now=NOW), FULL, NOW, lambda: True)
    with transaction(engine) as connection:
        replan.clear_other_zone_data(connection, "2026f", uuid.UUID(int=0), 5_000, NOW)
        replan.clear_future(connection, uuid.UUID(int=0), 5_000, NOW, tenant_id="tenant 7")
        jobs.upsert(connection, tenant_id="tenant 7", job_type="digest", schedule="@daily", name="upserted")
        job = jobs.upsert(
            connection, tenant_id="tenant 7", job_type="digest", schedule="@daily", name="upserted"
        )
        jobs.change(connection, job, name=uuid.uuid4().hex)
        history.of_job(connection, ids[0])
        connection.execute(
            text("DELETE FROM cronless.job_claim WHERE state = 'CLOSED' AND closed_at < :before"),
            {"before": NOW - 7 * DAY},
        )


def _open(engine):
    with transaction(engine) as connection:
        return claims.open_claims(connection)


# The index that each statement is meant to use.
INTENDED = {
    "claim_due": {"scheduled_job_due"},
    "claim_fair": {"scheduled_job_due_by_tenant"},
    "claim_triggered": {"scheduled_job_triggered"},
    "close_complete": {"job_claim_pkey", "scheduled_job_claimed"},
    "count_outcomes": {"job_claim_pkey"},
    "crash_alone": {"scheduled_job_claimed"},
    "due_by_tenant": {"scheduled_job_due_by_tenant"},
    "due_tenants": {"scheduled_job_due_by_tenant"},
    "finish_jobs": {"scheduled_job_pkey"},
    "give_back": {"scheduled_job_pkey"},
    "hold_claim": {"job_claim_pkey"},
    "load_claim": {"scheduled_job_claimed"},
    "load_messages": {"scheduled_job_claimed"},
    "lock_finished": {"scheduled_job_pkey"},
    "more_due_than": {"scheduled_job_due"},
    "open_claims": {"job_claim_pkey"},
    "queued_claims": {"job_claim_overtaking", "job_claim_pkey", "scheduled_job_claimed"},
    "release_claim": {"scheduled_job_claimed"},
    "renew_jobs": {"scheduled_job_pkey"},
    "replan_claimed": {"scheduled_job_pkey"},
    "serve_instead": {"scheduled_job_pkey"},
    "split_claim": {"scheduled_job_claimed", "scheduled_job_pkey", "job_claim_pkey"},
    "split_lapsed": {"scheduled_job_claimed", "scheduled_job_pkey", "job_claim_pkey"},
    "start_claim": {"job_claim_pkey"},
    "start_jobs": {"scheduled_job_pkey", "job_claim_pkey"},
    "take_misfired": {"scheduled_job_pkey"},
    "take_reported": {"scheduled_job_reported"},
    "take_unplanned": {"scheduled_job_unplanned"},
    "tenants_in_flight": {"scheduled_job_claimed", "job_claim_pkey"},
    "undo_claim": {"scheduled_job_pkey"},
    "waiting_types": {"scheduled_job_due", "scheduled_job_triggered"},
    "write_plans": {"scheduled_job_pkey"},
}


@pytest.mark.parametrize(
    "size",
    [
        10_000,
        pytest.param(200_000, marks=pytest.mark.slow),
        pytest.param(1_000_000, marks=pytest.mark.slow),
    ],
)
def test_plans(growing, size):
    """No hot statement reads a whole table or nests a scan of its array, and each uses the index meant for it."""
    engine = growing(size)
    with explaining(engine) as explained:
        life_of_claims(engine)
        life_of_messages(engine)
        misfires_requests_and_plans(engine)
    assert [fault for one in explained for fault in one.faults] == []
    used = {}
    for one in explained:
        used.setdefault(one.name, set()).update(one.indexes)
    # Open claims are few by their limits: finding one among them is as good as finding it by its id.
    found = {
        name: {one.replace("job_claim_open", "job_claim_pkey") for one in used.get(name, ())}
        for name in INTENDED
    }
    assert found == INTENDED
