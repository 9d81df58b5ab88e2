"""What nodes do: die in the middle of their work, and have a wrong clock."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from threading import Event
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from cronless_dagster.engine.queueing import HAND_OVER_PATIENCE
from cronless_dagster.scheduling.models import RetryPolicy
from cronless_dagster.store.clock import make_virtual
from cronless_dagster.store.database import transaction
from cronless_dagster.store.executions import Start, start_jobs
from tests.conftest import VIRTUAL_NOW
from tests.engine.queues import finish, make_due
from tests.engine.support import sql
from tests.outside.nodes import start_node
from tests.rabbitmq.receiving import receiving, take, until

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from sqlalchemy import Engine

    from cronless_dagster.rabbitmq.address import Broker
    from tests.processes import Spawner

TYPES = ("work", "mail", "report")
EACH = 1_500
KILLED_AT = 4
"""How many of the claims there are when a node is killed: it is in the middle of one, or of handing one over."""
GROUPS = ("prefix=0", "range=1-7", "range=8-b", "range=c-f")


def open_claims(engine: Engine, state: str = "") -> int:
    """Count the claims that aren't closed, or those in a state."""
    condition = f"state = '{state}'" if state else "state <> 'CLOSED'"
    return int(sql(engine, f"SELECT count(*) FROM cronless.job_claim WHERE {condition}")[0][0])


def work_off(engine: Engine, broker: Broker, count: int, at: datetime) -> Counter[UUID]:
    """Take messages and work their jobs off until so many were; returns how often each job was started."""
    started: Counter[UUID] = Counter()
    with receiving(broker, *TYPES, prefetch=1_000) as consumer:

        def all_are() -> bool:
            received = consumer.take(1_000, 0.1)
            asked = {one.message.job_id: one.message.token for one in received}
            with transaction(engine) as connection:
                starts = [Start(job_id, token, uuid4()) for job_id, token in asked.items()]
                begun = start_jobs(connection, starts, 600, at, RetryPolicy()).jobs
            started.update(job.id for job in begun)
            finish(engine, begun, at)
            consumer.acknowledge(received)
            return started.total() >= count

        until(all_are, f"{count} jobs were started")
        assert not all_are() or started.total() == count
    return started


@pytest.mark.crash
def test_a_node_that_is_killed_under_load(
    virtual_engine: Engine, virtual_url: str, broker: Broker, spawn: Spawner, tmp_path: Path
) -> None:
    """The other answers on and publishes what the dead one had claimed: each job starts once, and nothing stays."""
    ids = [one for name in TYPES for one in make_due(virtual_engine, EACH, VIRTUAL_NOW, job_type=name)]
    dying, other = (start_node(spawn, tmp_path, virtual_url, broker) for _ in range(2))
    assert dying.started["public"] != other.started["public"]
    enough = Event()
    with ThreadPoolExecutor() as threads:
        load = [
            threads.submit(node.call_until, enough, GROUPS[n:] + GROUPS[:n])
            for node in (dying, other)
            for n in range(3)
        ]
        while open_claims(virtual_engine) < KILLED_AT:
            assert not any(one.done() for one in load)
        dying.kill()
        for query in GROUPS:
            other.call(query=query)
        enough.set()
        for one in load:
            one.result()
    later = VIRTUAL_NOW + HAND_OVER_PATIENCE + timedelta(seconds=1)
    make_virtual(virtual_engine, later)
    for query in GROUPS:
        other.call(query=query)
    assert work_off(virtual_engine, broker, len(ids), later) == Counter(ids)
    make_virtual(virtual_engine, later + timedelta(minutes=2))
    for query in GROUPS:
        other.call("rescue", query)
        other.call(query=query)
    assert open_claims(virtual_engine) == 0
    assert work_off(virtual_engine, broker, 0, later) == Counter()


def due_in(engine: Engine, seconds: float) -> UUID:
    """Insert a job that is due so many seconds from now, by the real clock of the database."""
    [row] = sql(
        engine,
        "INSERT INTO cronless.scheduled_job (tenant_id, job_type, name, schedule, next_run_at, scheduled_for)"
        " SELECT 't', 'work', gen_random_uuid()::text, '0 0 1 1 *', at, at"
        " FROM (SELECT now() + make_interval(secs => :seconds) AS at) AS given RETURNING id",
        seconds=seconds,
    )
    return row.id  # type: ignore[no-any-return]


def test_nodes_with_a_wrong_clock_go_by_the_databases(
    engine: Engine, pg_url: str, broker: Broker, spawn: Spawner, tmp_path: Path
) -> None:
    """Three minutes fast: what is due in two waits. Three minutes slow: what is due now doesn't."""
    fast = start_node(spawn, tmp_path, pg_url, broker, wrong_by_seconds=180)
    slow = start_node(spawn, tmp_path, pg_url, broker, wrong_by_seconds=-180)
    late = due_in(engine, 120)
    for node, wrong_by in ((fast, 180), (slow, -180)):
        due = due_in(engine, -1)
        _, date = node.call()
        wrong = parsedate_to_datetime(date) - datetime.now(UTC)
        assert abs(wrong.total_seconds() - wrong_by) < 60
        claimed = sql(
            engine, "SELECT id FROM cronless.scheduled_job WHERE status = 'QUEUED' AND id = :id", id=due
        )
        assert [row.id for row in claimed] == [due]
    assert (
        sql(engine, "SELECT status FROM cronless.scheduled_job WHERE id = :id", id=late)[0].status
        == "PENDING"
    )
    with receiving(broker, *TYPES) as consumer:
        assert len(take(consumer, 2)) == 2
