from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from cronless_dagster.checks import collecting
from cronless_dagster.checks.collecting import collect, collect_ended
from cronless_dagster.checks.declaring import Answer, CheckError
from cronless_dagster.scheduling.shards import shard
from cronless_dagster.store.database import transaction
from cronless_dagster.store.progress import write_progress
from tests.checks.support import asked
from tests.engine.support import NOON, add, sql

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Engine

MOMENT = timedelta(seconds=1)


def mark(engine: Engine, over_at: datetime, count: int = 1) -> None:
    """Note so many entities as done at an instant."""
    sql(
        engine,
        "INSERT INTO cronless.check_done (check_name, place, window_start, entity, over_at)"
        " SELECT 'reminders', gen_random_uuid(), :at, 'one', :at FROM generate_series(1, :count)",
        at=over_at,
        count=count,
    )


def snapshot(engine: Engine, window_start: datetime) -> None:
    """Add the snapshot of a window."""
    sql(
        engine,
        "INSERT INTO cronless.health_snapshot (window_start, job_type, taken_at, due, late, running, stuck, failing,"
        " outcomes) VALUES (:at, 'work', :at, 0, 0, 0, 0, 0, '{}')",
        at=window_start,
    )


def note(engine: Engine, key: str, at: datetime) -> None:
    """Note something at an instant."""
    with transaction(engine) as connection:
        write_progress(connection, key, {}, at)


def ended(engine: Engine, status: str, days: float | None, **changes: Any) -> UUID:
    """Add a job that ended so many days ago, or never ran, and was left alone since."""
    job_id = add(engine)
    at = None if days is None else NOON - timedelta(days=days)
    sql(
        engine,
        "UPDATE cronless.scheduled_job SET status = :status, last_finished_at = :at, updated_at = :updated_at,"
        " plan_count = plan_count + 1 WHERE id = :id",
        id=job_id,
        status=status,
        at=at,
        updated_at=changes.get("updated_at", NOON - timedelta(days=400)),
    )
    return job_id


def left_of(engine: Engine, table: str) -> int:
    """Return how many rows a table has."""
    return int(sql(engine, f"SELECT count(*) FROM cronless.{table}")[0].count)


class TestCollect:
    """What has had its time goes; what has not stays."""

    def test_nothing_there(self, virtual_engine: Engine) -> None:
        """It is a question that changes nothing."""
        assert collect(asked(virtual_engine)) == Answer(now=NOON)

    def test_by_age(self, virtual_engine: Engine) -> None:
        """Marks of two days, snapshots of the history's days and notes of a week go, and none a moment younger."""
        mark(virtual_engine, NOON - timedelta(days=2))
        mark(virtual_engine, NOON - timedelta(days=2) - MOMENT)
        snapshot(virtual_engine, NOON - timedelta(days=10))
        snapshot(virtual_engine, NOON - timedelta(days=10) - MOMENT)
        note(virtual_engine, "tick:young", NOON - timedelta(days=7))
        note(virtual_engine, "tick:old", NOON - timedelta(days=7) - MOMENT)
        note(virtual_engine, "whole:old", NOON - timedelta(days=7) - MOMENT)
        note(virtual_engine, "rescue:old", NOON - timedelta(days=7) - MOMENT)
        note(virtual_engine, "zones", NOON - timedelta(days=300))
        job_id = ended(virtual_engine, "DONE", 300)
        answer = collect(asked(virtual_engine, history_days=10))
        assert answer == Answer(5, {"marks": 1, "snapshots": 1, "notes": 3}, (), NOON)
        assert (left_of(virtual_engine, "check_done"), left_of(virtual_engine, "health_snapshot")) == (1, 1)
        assert sql(virtual_engine, "SELECT key FROM cronless.progress ORDER BY key") == [
            ("tick:young",),
            ("zones",),
        ]
        assert sql(virtual_engine, "SELECT id FROM cronless.scheduled_job") == [(job_id,)]
        assert collect(asked(virtual_engine, history_days=10)).acted == 0

    def test_latest_tick_stays(self, virtual_engine: Engine) -> None:
        """Where nothing has ticked for weeks, it can still be seen since when."""
        note(virtual_engine, "tick:one", NOON - timedelta(days=20))
        note(virtual_engine, "tick:two", NOON - timedelta(days=21))
        assert collect(asked(virtual_engine)).counts == {"notes": 1}
        assert sql(virtual_engine, "SELECT key FROM cronless.progress") == [("tick:one",)]

    def test_bounded(self, virtual_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        """One kind keeps no other waiting: the rest is the next call's, and the answer says so."""
        monkeypatch.setattr(collecting, "BATCH", 3)
        monkeypatch.setattr(collecting, "BATCHES", 2)
        mark(virtual_engine, NOON - timedelta(days=3), 8)
        snapshot(virtual_engine, NOON - timedelta(days=40))
        first = collect(asked(virtual_engine))
        assert (first.counts, first.notes) == (
            {"marks": 6, "snapshots": 1},
            ("more old marks are left to the next call",),
        )
        assert collect(asked(virtual_engine)) == Answer(2, {"marks": 2}, (), NOON)

    def test_without_time_nothing_begins(self, virtual_engine: Engine) -> None:
        """The budget holds for every kind."""
        mark(virtual_engine, NOON - timedelta(days=3))
        answer = collect(asked(virtual_engine, budget_seconds=0.0))
        assert (answer.acted, len(answer.notes)) == (0, 3)

    def test_doubled_calls_at_once(self, virtual_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        """Many at once remove each row once, and none fails."""
        monkeypatch.setattr(collecting, "BATCH", 50)
        mark(virtual_engine, NOON - timedelta(days=3), 500)
        for days in (2.5, 3):
            ended(virtual_engine, "DONE", days)
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _: collect_ended(1)(asked(virtual_engine)), range(16)))
        assert sum(one.counts.get("marks", 0) for one in answers) == 500
        assert sum(one.counts.get("ended_jobs", 0) for one in answers) == 2

    def test_rows_in_use_are_passed_over(self, virtual_engine: Engine) -> None:
        """What another call is removing is neither waited for nor counted twice."""
        mark(virtual_engine, NOON - timedelta(days=3))
        mark(virtual_engine, NOON - timedelta(days=4))
        with transaction(virtual_engine) as connection:
            assert collecting.garbage.collect_marks(connection, NOON, 1) == 1
            assert collect(asked(virtual_engine)).counts == {"marks": 1}


class TestEndedJobs:
    """Kept, unless a check says for how long."""

    def test_those_that_ended_long_ago(self, virtual_engine: Engine) -> None:
        """DONE and FAILED ones go after their days; others, changed ones and those that never ran stay."""
        ended(virtual_engine, "DONE", 31)
        ended(virtual_engine, "FAILED", 31)
        stay = {
            ended(virtual_engine, "DONE", 29),
            ended(virtual_engine, "PENDING", 31),
            ended(virtual_engine, "INVALID", 31),
            ended(virtual_engine, "DONE", 31, updated_at=NOON - timedelta(days=2)),
            ended(virtual_engine, "DONE", None),
        }
        assert collect_ended(30)(asked(virtual_engine)).counts == {"ended_jobs": 2}
        assert {one.id for one in sql(virtual_engine, "SELECT id FROM cronless.scheduled_job")} == stay

    def test_only_of_the_range(self, virtual_engine: Engine) -> None:
        """A call removes jobs of its own part of the ids."""
        made = {ended(virtual_engine, "DONE", 31) for _ in range(12)}
        half = shard(0, 2)
        inside = {one for one in made if half.contains(one)}
        assert collect_ended(30)(asked(virtual_engine, ids=half)).acted == len(inside)
        assert {
            one.id for one in sql(virtual_engine, "SELECT id FROM cronless.scheduled_job")
        } == made - inside

    def test_at_least_a_day(self) -> None:
        """Less is refused."""
        with pytest.raises(CheckError, match="kept for 0 days: give 1 or more"):
            collect_ended(0)
