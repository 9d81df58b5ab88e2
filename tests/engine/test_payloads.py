"""A payload that PostgreSQL takes and Python can't read costs its own job an error, and no other job anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.engine.queues import FakeBroker, finish, make_due, queue_types, start
from tests.engine.support import NOON, World, history, outcomes, sql, types_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import pandas as pd
    from sqlalchemy import Engine

MANY_DIGITS = '{"number": 1e5000}'
DEEP = '{"nested": ' + "[" * 2_000 + "]" * 2_000 + "}"


def spoil(engine: Engine, job: UUID, payload: str = MANY_DIGITS) -> None:
    """Give a job a payload that can't be read."""
    sql(
        engine,
        "UPDATE cronless.scheduled_job SET payload = CAST(:payload AS jsonb) WHERE id = :id",
        payload=payload,
        id=job,
    )


def failed_alone(engine: Engine, ids: Sequence[UUID], spoiled: UUID) -> None:
    """Check that the spoiled one failed for its payload and is planned again, and that the others are done."""
    assert {tuple(outcomes(engine, job)) for job in set(ids) - {spoiled}} == {("success",)}
    [line] = history(engine, spoiled)
    assert line.outcome == "exhausted"
    assert "its payload can't be read" in line.error
    # Not the whole row: reading the payload here raises too.
    [found] = sql(
        engine, "SELECT status, crashes, next_run_at FROM cronless.scheduled_job WHERE id = :id", id=spoiled
    )
    assert (found.status, found.crashes) == ("PENDING", 0)
    assert found.next_run_at > NOON


@pytest.mark.parametrize("payload", [MANY_DIGITS, DEEP])
def test_in_a_run(virtual: Engine, payload: str) -> None:
    """The handler isn't called for it, nor tried again, and is called for its neighbours."""
    called: list[UUID] = []
    world = World(virtual, types_of(lambda job: called.append(job.id)))
    ids = make_due(virtual, 3)
    spoil(virtual, ids[1], payload)
    [ran] = world.go()
    assert (ran.succeeded, ran.failed) == (2, 1)
    assert sorted(called) == [ids[0], ids[2]]
    failed_alone(virtual, ids, ids[1])


def test_in_a_batch(virtual: Engine) -> None:
    """The frame holds the others; where none is left, the handler isn't called."""
    frames: list[int] = []

    def handler(frame: pd.DataFrame) -> dict[Any, None]:
        frames.append(len(frame))
        return dict.fromkeys(frame.index)

    world = World(virtual, types_of(handler, takes="batch"))
    ids = make_due(virtual, 3)
    spoil(virtual, ids[1])
    world.go()
    failed_alone(virtual, ids, ids[1])
    sql(virtual, "UPDATE cronless.scheduled_job SET next_run_at = :now WHERE id = :id", now=NOON, id=ids[1])
    world.go()
    assert frames == [2]
    assert outcomes(virtual, ids[1]) == ["exhausted"] * 2


def test_at_the_start_of_a_message(virtual: Engine) -> None:
    """It starts with its neighbours, and says what is wrong with it."""
    queues, world = FakeBroker(), World(virtual, queue_types())
    ids = make_due(virtual, 3)
    spoil(virtual, ids[1])
    world.tick(queue=queues)
    jobs = start(virtual, queues.take(), NOON).jobs
    assert {job.id for job in jobs if job.payload_error is not None} == {ids[1]}
    assert len(finish(virtual, jobs, NOON)) == 3


def test_reported_by_a_worker_in_another_language(virtual: Engine) -> None:
    """Such a worker may be able to read it: its outcome and its neighbours' are planned."""
    queues, world = FakeBroker(), World(virtual, queue_types())
    ids = make_due(virtual, 3)
    spoil(virtual, ids[1])
    world.tick(queue=queues)
    for job in start(virtual, queues.take(), NOON).jobs:
        sql(
            virtual,
            "SELECT cronless.cronless_finish(:job, :token, :execution, 'success')",
            job=job.id,
            token=job.claim_id,
            execution=job.execution_id,
        )
    report = world.tick(queue=queues)
    assert (report.finished, report.errors) == (3, [])
    assert outcomes(virtual) == ["success"] * 3
