"""How things stand: each count, its bound, and that none of them walks the table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine, event, text

from cronless_dagster.store.database import transaction
from cronless_dagster.store.declarations import declare
from cronless_dagster.store.status import NUMBERS, Status, TypeStatus, read_status
from tests.store.queued import begin, dispatched, finish, give_back, messages, queued

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def insert(engine: Engine, job_type: str, number: int = 1, **columns: Any) -> None:
    """Insert rows as they come to stand in the table."""
    values = {
        "status": "PENDING",
        "next_run_at": None,
        "paused_at": None,
        "misfire_grace_seconds": 300,
        **columns,
    }
    if values["status"] in ("QUEUED", "RUNNING"):
        values.setdefault("claim_id", "00000000-0000-0000-0000-000000000001")
    names = ", ".join(values)
    placeholders = ", ".join(
        f"CAST(:{name} AS uuid)" if name == "claim_id" else f":{name}" for name in values
    )
    with engine.begin() as connection:
        connection.execute(
            text(
                f"INSERT INTO cronless.scheduled_job (tenant_id, job_type, name, schedule, {names})"
                f" SELECT 't', :job_type, gen_random_uuid()::text, '@daily', {placeholders}"
                " FROM generate_series(1, :number)"
            ),
            {"job_type": job_type, "number": number, **values},
        )


def claim(
    engine: Engine, job_type: str, state: str, number: int, lease_expires_at: datetime, done: int = 0
) -> None:
    """Make an open claim."""
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO cronless.job_claim (id, job_type, route, id_low, job_count, done_count, state,"
                " lease_seconds, lease_expires_at, created_at) VALUES (gen_random_uuid(), :job_type, 'run',"
                " gen_random_uuid(), :number, :done, :state, 600, :lease, :now)"
            ),
            {
                "job_type": job_type,
                "number": number,
                "done": done,
                "state": state,
                "lease": lease_expires_at,
                "now": NOW,
            },
        )


def status(engine: Engine, **bounds: int) -> Status:
    """Read the status at `NOW`."""
    with transaction(engine) as connection:
        return read_status(connection, NOW, **bounds)


def numbers(one: TypeStatus) -> dict[str, int]:
    """Return the counts that aren't zero."""
    return {name: getattr(one, name) for name in NUMBERS if getattr(one, name)}


def test_each_row_is_counted_where_it_stands(engine: Engine) -> None:
    """Due, late, unplanned, paused, invalid; what lies ahead or has ended is none of them."""
    with engine.begin() as connection:
        declare(connection, [("a", "run", 10)], NOW)
    insert(engine, "a", 2, next_run_at=NOW)
    insert(engine, "a", 3, next_run_at=NOW - HOUR)
    insert(engine, "a", 4, next_run_at=NOW - HOUR, misfire_grace_seconds=3_600)
    insert(engine, "a", 5)
    insert(engine, "a", 6, next_run_at=NOW - HOUR, paused_at=NOW)
    insert(engine, "a", 7, status="INVALID")
    insert(engine, "a", 8, next_run_at=NOW + HOUR)
    insert(engine, "a", 9, status="DONE")
    (one,) = status(engine).types
    assert numbers(one) == {"due": 9, "late": 3, "unplanned": 5, "paused": 6, "invalid": 7}
    assert (one.declared, one.oldest_due_at, one.at_least) == (True, NOW - HOUR, ())


def test_every_type_is_found_once(engine: Engine) -> None:
    """By a declaration, a pending row, a paused, an invalid or a claimed one, whichever there is."""
    with engine.begin() as connection:
        declare(connection, [("declared", "run", 10), ("both", "run", 10)], NOW)
    insert(engine, "both", next_run_at=NOW + HOUR)
    insert(engine, "ahead", 3, next_run_at=NOW + HOUR)
    insert(engine, "paused", paused_at=NOW)
    insert(engine, "invalid", status="INVALID")
    insert(engine, "done", status="DONE")
    claim(engine, "claimed", "CLAIMED", 1, NOW + HOUR)
    assert [one.job_type for one in status(engine).types] == [
        "ahead",
        "both",
        "claimed",
        "declared",
        "invalid",
        "paused",
    ]


def test_what_no_running_code_declares_is_unclaimable(engine: Engine) -> None:
    """Also where the last declaration is older than a day."""
    with engine.begin() as connection:
        declare(connection, [("old", "run", 10)], NOW - 25 * HOUR)
    insert(engine, "old", 2, next_run_at=NOW)
    insert(engine, "never", 3, next_run_at=NOW)
    assert [numbers(one) for one in status(engine).types] == [
        {"due": 3, "unclaimable": 3},
        {"due": 2, "unclaimable": 2},
    ]


def test_claims(engine: Engine) -> None:
    """Finished jobs of a claim don't count; one that runs past its lease is stuck, one that waits past it isn't."""
    claim(engine, "a", "CLAIMED", 10, NOW + HOUR)
    claim(engine, "a", "SUBMITTED", 20, NOW - HOUR)
    claim(engine, "a", "RUNNING", 40, NOW + HOUR, done=5)
    claim(engine, "a", "RUNNING", 80, NOW - HOUR)
    claim(engine, "b", "RUNNING", 1, NOW + HOUR)
    found = status(engine)
    assert [numbers(one) for one in found.types] == [
        {"queued": 30, "running": 115, "stuck": 80},
        {"running": 1},
    ]
    assert found.open_claims == {"CLAIMED": 1, "SUBMITTED": 1, "RUNNING": 3}


class TestQueueRoute:
    """Jobs are started one by one there: the table's own view, beside which the queue's depth is shown."""

    def test_jobs_by_their_own_state(self, virtual_engine: Engine) -> None:
        """Started ones run, the others are queued, whatever the claim's state; one whose lease ran out is stuck."""
        token, ids = queued(virtual_engine, 5)
        begin(virtual_engine, messages(token, ids[:1]), lease=60)
        begin(virtual_engine, messages(token, ids[1:3]), lease=3_600)
        assert numbers(one_type(virtual_engine, NOW)) == {"queued": 2, "running": 3}
        dispatched(virtual_engine, token)
        # A backlog of many leases isn't stuck: only what a worker has started can be.
        assert numbers(one_type(virtual_engine, NOW + timedelta(minutes=30))) == {
            "queued": 2,
            "running": 3,
            "stuck": 1,
        }

    def test_beside_the_run_route(self, virtual_engine: Engine) -> None:
        """A type that moved from one to the other has claims of both."""
        token, ids = queued(virtual_engine, 3)
        begin(virtual_engine, messages(token, ids[:1]))
        claim(virtual_engine, "digest", "SUBMITTED", 10, NOW + HOUR)
        claim(virtual_engine, "digest", "RUNNING", 100, NOW - HOUR)
        assert numbers(one_type(virtual_engine, NOW)) == {"queued": 12, "running": 101, "stuck": 100}

    def test_finished_jobs_are_gone(self, virtual_engine: Engine) -> None:
        """Done, given back: neither queued nor running."""
        token, ids = queued(virtual_engine, 3)
        jobs = begin(virtual_engine, messages(token, ids)).jobs
        finish(virtual_engine, jobs[:1])
        give_back(virtual_engine, jobs[1:2])
        assert numbers(one_type(virtual_engine, NOW)) == {"due": 1, "running": 1, "unclaimable": 1}

    def test_which_types_have_a_queue(self, engine: Engine) -> None:
        """As running code has declared them lately; what nobody has declared for a day has none."""
        with engine.begin() as connection:
            declare(connection, [("a", "queue", 10), ("b", "run", 10), ("c", "queue", 10)], NOW)
            declare(connection, [("old", "queue", 10)], NOW - 25 * HOUR)
        assert status(engine).queue_types == ("a", "c")


def one_type(engine: Engine, now: datetime) -> TypeStatus:
    """Return the only type's status at an instant."""
    with transaction(engine) as connection:
        (one,) = read_status(connection, now).types
    return one


def test_counts_stop_at_their_bound_and_say_so(engine: Engine) -> None:
    """A backlog costs a bounded time; the oldest is exact all the same."""
    insert(engine, "a", 6, next_run_at=NOW - HOUR)
    insert(engine, "a", next_run_at=NOW - 2 * HOUR)
    insert(engine, "a", 3)
    (one,) = status(engine, count_bound=4, late_bound=2).types
    assert numbers(one) == {"due": 4, "late": 2, "unclaimable": 4, "unplanned": 3}
    assert one.at_least == ("due", "late", "unclaimable")
    assert one.oldest_due_at == NOW - 2 * HOUR


def test_the_last_of_several_shards_ticks(engine: Engine) -> None:
    """Each shard notes its own; the latest is the one that counts."""
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO cronless.progress (key, value, updated_at) VALUES"
                """ ('tick:1', '{"at": "2026-03-02T11:59:00+00:00", "claimed": 1}', now()),"""
                """ ('tick:2', '{"at": "2026-03-02T09:00:00+00:00", "claimed": 2}', now()),"""
                """ ('history', '"2026-03-02"', now())"""
            )
        )
    last = status(engine).last_tick
    assert last is not None
    assert last["claimed"] == 1


@pytest.fixture
def plans(engine: Engine) -> Iterator[list[str]]:
    """EXPLAIN every query that reads jobs while the test runs."""
    found: list[str] = []

    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "cronless.scheduled_job" in statement and statement.lstrip().startswith(("SELECT", "WITH")):
            with connection.connection.cursor() as other:
                other.execute(f"EXPLAIN (ANALYZE, FORMAT TEXT) {statement}", parameters)
                found.append("\n".join(line for (line,) in other.fetchall()))

    event.listen(engine, "before_cursor_execute", explain)
    yield found
    event.remove(engine, "before_cursor_execute", explain)


def test_no_count_walks_the_table(engine: Engine, plans: list[str]) -> None:
    """Most rows lie ahead or have ended, and none of those is read: 20,000 of them, some 60 rows touched."""
    insert(engine, "a", 10_000, next_run_at=NOW + HOUR)
    insert(engine, "b", 10_000, status="DONE")
    for kind in ("a", "b"):
        insert(engine, kind, 10, next_run_at=NOW - HOUR)
        insert(engine, kind, 5)
        insert(engine, kind, 5, paused_at=NOW)
        insert(engine, kind, 5, status="INVALID")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE cronless.scheduled_job"))
    plans.clear()
    status(engine)
    assert len(plans) == 4
    for plan in plans:
        assert "Seq Scan on scheduled_job" not in plan, plan
        assert "Bitmap" not in plan, plan
        for line in plan.splitlines():
            if "Rows Removed by Filter" in line:
                assert int(line.rpartition(":")[2]) <= 20, plan
