"""A simulated day of real schedules on a virtual clock, with runs dying at random, against a brute-force walk."""

from __future__ import annotations

import random
import signal
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from cronless_dagster.store import claims as store
from cronless_dagster.store import jobs
from cronless_dagster.store.clock import make_virtual
from cronless_dagster.store.database import transaction
from tests.engine.support import World, history, sql, types_of
from tests.scheduling.test_replay_year import START as YEAR
from tests.scheduling.test_replay_year import brute_force, real_schedules

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cronless_dagster.engine.runs import HandOver
    from cronless_dagster.store.rows import ClaimedJob

# North America loses an hour.
MIDNIGHT = datetime(2026, 3, 8, tzinfo=UTC)
DAY = timedelta(days=1)
JOBS = 200
TYPES = ("first", "second", "third")
DIES = 0.3


class Death(BaseException):
    """The holder is gone in the middle of its claim."""


def die(*_: object) -> None:
    """Be the signal that ends a holder."""
    raise Death


def expected(expr: str, zone: str) -> list[datetime]:
    """Return the day's instants by a walk over its minutes."""
    instants = [YEAR + timedelta(minutes=int(number)) for number in brute_force(expr, zone)]
    return [at for at in instants if MIDNIGHT <= at < MIDNIGHT + DAY]


def chosen() -> list[tuple[str, str]]:
    """Return real schedules that fire on the day, most at full hours, few hourly: each minute costs a tick."""
    firing = [pair for pair in real_schedules() if expected(*pair)]
    seldom = [pair for pair in firing if len(expected(*pair)) <= 4]
    often = [pair for pair in firing if len(expected(*pair)) > 20]
    seldom.sort(key=lambda pair: int(pair[0].split()[0]) % 30)
    return seldom[: JOBS - 10] + often[:10]


class Day:
    """The day's world: its runs die at every point of their claim, though no job alone three times."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311
        self.deaths: Counter[str] = Counter()
        self.world = World(engine, types_of(self.serve, *TYPES, concurrency=1))
        self.dying_after: int | None = None
        self.buried = threading.Event()

    def serve(self, _job: ClaimedJob) -> None:
        """Do nothing, or have the holder die after so many jobs, in the middle of this one."""
        if self.dying_after is not None:
            self.dying_after -= 1
            if self.dying_after < 0:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
                self.buried.wait(60)

    def may_die(self, one: HandOver) -> str | None:
        """Choose a point at which this run dies, or none; a split claim is let live."""
        [claim] = sql(
            self.world.engine, "SELECT parent_id FROM cronless.job_claim WHERE id = :id", id=one.claim_id
        )
        if claim.parent_id is not None or self.random.random() > DIES:
            return None
        return self.random.choice(["no run", "before the fence", "after the fence", "in the middle"])

    def run(self, one: HandOver) -> None:
        """Launch a run and let it come to its end."""
        point = self.may_die(one)
        if point is not None:
            self.deaths[point] += 1
        if point == "no run" or (run_id := self.world.runs.launch(one)) is None:
            return
        if point == "after the fence":
            with transaction(self.world.engine) as connection:
                store.start_claim(connection, one.claim_id, UUID(run_id), run_id, self.world.at)
        elif point != "before the fence":
            self.dying_after = self.random.randrange(one.job_count) if point else None
            self.buried.clear()
            try:
                self.world.run(one.claim_id, execution_id=UUID(run_id), run_id=run_id)
            except Death:
                self.buried.set()
            else:
                self.world.runs.set(run_id, "success")
                return
        self.world.runs.set(run_id, "failure")

    def to_its_end(self) -> None:
        """Tick each minute in which something is due or open, until the day is over."""
        at = MIDNIGHT - timedelta(minutes=1)
        while at < MIDNIGHT + DAY + timedelta(minutes=30):
            report = self.world.tick(at)
            assert report.errors == []
            for one in report.hand_over:
                self.run(one)
            [following] = sql(
                self.world.engine,
                "SELECT (SELECT min(next_run_at) FROM cronless.scheduled_job WHERE status = 'PENDING') AS due,"
                " EXISTS (SELECT 1 FROM cronless.job_claim WHERE state <> 'CLOSED') AS open",
            )
            soon = at + timedelta(minutes=1)
            at = soon if following.open or following.due is None else max(soon, following.due)


@pytest.mark.slow
@pytest.mark.crash
def test_each_occurrence_is_accepted_once(virtual: Engine) -> None:
    """Whatever dies, the history holds each of the day's occurrences once, and no other."""
    make_virtual(virtual, MIDNIGHT - timedelta(hours=1))
    schedules = chosen()
    with transaction(virtual) as connection:
        ids = [
            jobs.add(
                connection,
                tenant_id=f"tenant-{number % 60}",
                job_type=TYPES[number % 3],
                name=str(number),
                schedule=expr,
                timezone=zone,
                starts_at=MIDNIGHT,
                ends_at=MIDNIGHT + DAY - timedelta(seconds=1),
                misfire_grace_seconds=3600,
            )
            for number, (expr, zone) in enumerate(schedules)
        ]
    day = Day(virtual, seed=20260308)
    before = signal.signal(signal.SIGUSR1, die)
    try:
        day.to_its_end()
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert set(day.deaths) == {"no run", "before the fence", "after the fence", "in the middle"}
    assert min(day.deaths.values()) >= 5
    lines = history(virtual)
    accepted = Counter((line.job_id, line.scheduled_for) for line in lines if line.outcome == "success")
    assert {line.outcome for line in lines} <= {"success", "crashed"}
    assert set(accepted.values()) == {1}
    assert set(accepted) == {
        (job_id, at) for job_id, pair in zip(ids, schedules, strict=True) for at in expected(*pair)
    }
    rows = sql(virtual, "SELECT DISTINCT status, claim_id, next_run_at FROM cronless.scheduled_job")
    assert [tuple(line) for line in rows] == [("DONE", None, None)]
