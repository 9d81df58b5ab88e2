"""The questions that calls from outside ask first: by index, however large the table is."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from cronless_dagster.scheduling.shards import FULL, from_prefix
from cronless_dagster.store.checks import anything_open, anything_to_do, done_of, mark_done, take_turn
from cronless_dagster.store.database import transaction
from tests.store.rows import MINUTE, NOW, sql

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_JOBS = """
    INSERT INTO cronless.scheduled_job (tenant_id, job_type, name, schedule, next_run_at, scheduled_for)
    SELECT 'tenant ' || (n % 500), 'type ' || n % 20, 'job ' || n, '0 * * * *', at, at
    FROM generate_series(1, CAST(:size AS integer)) AS n
    CROSS JOIN LATERAL (SELECT CAST(:now AS timestamptz) + make_interval(secs => 1 + n % 86400) AS at) AS ahead
"""
_CLAIMS = """
    INSERT INTO cronless.job_claim (id, job_type, route, id_low, job_count, done_count, state, lease_seconds,
                                    lease_expires_at, created_at, started_at, closed_at)
    SELECT gen_random_uuid(), 'type 1', 'run', gen_random_uuid(), 9, 9, 'CLOSED', 600, :now, :now, :now, :now
    FROM generate_series(1, 10000) AS n
"""
TYPES = tuple(f"type {n}" for n in range(20))


def asked(connection: Connection, ids: object = FULL) -> str | None:
    """Ask as `dispatch` does."""
    _, why = anything_to_do(
        connection,
        TYPES,
        ids,
        NOW,
        key="tick:x",
        quiet=MINUTE,
        patience=MINUTE,  # type: ignore[arg-type]
    )
    return why


@pytest.mark.parametrize("size", [1_000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_no_question_walks_a_table(virtual_engine: Engine, size: int) -> None:
    """Analysed while empty, and with what is there; asked until plans are kept, where nothing is to be done."""
    sql(virtual_engine, _CLAIMS, now=NOW)
    sql(virtual_engine, "ANALYZE cronless.scheduled_job, cronless.job_claim")
    sql(virtual_engine, _JOBS, size=size, now=NOW)
    for analysed in (False, True):
        if analysed:
            with virtual_engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(text("VACUUM (ANALYZE) cronless.scheduled_job, cronless.job_claim"))
        with transaction(virtual_engine) as connection:
            before = read(connection)
            for _ in range(8):
                assert asked(connection, from_prefix("b")) == "quiet"
                assert not anything_open(connection, from_prefix("b"))[1]
            # A question of each kind and type by an index, and not a row fetched by any.
            assert {name: after - before[name] for name, after in read(connection).items()} == {
                "walked": 0,
                "fetched": 0,
                "probed": 8 * (1 + 1 + 20 + 20 + 1 + 1 + 1),
            }


def read(connection: Connection) -> dict[str, int]:
    """Return how often this transaction has walked a table or probed an index, and how many rows indexes gave."""
    counts = connection.execute(
        text(
            "SELECT sum(seq_scan) AS walked, sum(idx_scan) AS probed, sum(idx_tup_fetch) AS fetched"
            " FROM pg_stat_xact_user_tables WHERE relname IN ('scheduled_job', 'job_claim')"
        )
    ).one()
    return {name: int(number) for name, number in counts._asdict().items()}


def test_turns_come_once(virtual_engine: Engine) -> None:
    """For one caller in each span of time."""
    turns = []
    for seconds in (0, 0, 49, 50, 60, 100):
        with transaction(virtual_engine) as connection:
            turns.append(
                take_turn(connection, "rescue:x", NOW + timedelta(seconds=seconds), timedelta(seconds=50))
            )
    assert turns == [True, False, False, True, False, True]


def test_marks(virtual_engine: Engine) -> None:
    """Set once for a place and window, by whoever commits; a check's marks are its own."""
    place = from_prefix("b").low
    with virtual_engine.connect() as connection:
        assert mark_done(connection, "mine", place, NOW, "b", NOW)
        connection.rollback()
    made = []
    for name, window in [("mine", NOW), ("mine", NOW), ("mine", NOW + MINUTE), ("other", NOW)]:
        with transaction(virtual_engine) as connection:
            made.append(mark_done(connection, name, place, window, "b" * 900, NOW))
    assert made == [True, False, True, True]
    with transaction(virtual_engine) as connection:
        wanted = [(place, NOW), (place, NOW + MINUTE), (place, NOW + 2 * MINUTE)]
        assert done_of(connection, "mine", wanted) == set(wanted[:2])
        assert done_of(connection, "other", wanted) == set(wanted[:1])
        assert done_of(connection, "mine", []) == set()


def test_somebody_who_is_at_it_is_not_waited_for(virtual_engine: Engine) -> None:
    """The second one goes on with the others."""
    place = from_prefix("b").low
    with transaction(virtual_engine) as first, transaction(virtual_engine) as second:
        assert mark_done(first, "mine", place, NOW, "b", NOW)
        assert not mark_done(second, "mine", place, NOW, "b", NOW)
        assert mark_done(second, "mine", place, NOW + MINUTE, "b", NOW)
