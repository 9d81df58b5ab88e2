from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from cronless_dagster.checks import analytics as module
from cronless_dagster.checks.analytics import analytics
from cronless_dagster.checks.declaring import Answer
from cronless_dagster.scheduling.id_space import place_of
from cronless_dagster.scheduling.shards import shard
from cronless_dagster.store import snapshots
from cronless_dagster.store.database import transaction
from cronless_dagster.store.history import ensure_partitions
from cronless_dagster.store.snapshots import take, window_of
from tests.checks.support import asked
from tests.engine.support import NOON, add, after, nothing, sql, types_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine, Row

TWO = types_of(nothing, "digest", "renewal")


@pytest.fixture(autouse=True)
def _history(virtual_engine: Engine) -> None:
    with transaction(virtual_engine) as connection:
        ensure_partitions(connection, NOON - timedelta(days=1), ahead=1)


def taken(engine: Engine) -> Sequence[Row[Any]]:
    """Return the snapshots, the oldest first."""
    return sql(engine, "SELECT * FROM cronless.health_snapshot ORDER BY window_start, job_type")


def tried(
    engine: Engine, outcome: str, minutes: float, *, late: float = 0.0, job_type: str = "digest"
) -> None:
    """Write a line of history of so many minutes after noon, started so many seconds late."""
    sql(
        engine,
        "INSERT INTO cronless.job_execution (recorded_at, job_id, tenant_id, job_type, outcome, due_at, started_at)"
        " VALUES (:at, gen_random_uuid(), 't', :job_type, :outcome, :at, CAST(:at AS timestamptz)"
        " + make_interval(secs => :late))",
        at=after(minutes=minutes),
        job_type=job_type,
        outcome=outcome,
        late=late,
    )


class TestOnceInAWindow:
    """A quarter of an hour has one snapshot of a job type, whoever asks."""

    def test_each_type_once(self, virtual_engine: Engine) -> None:
        """The first call of a window takes them, others of it find them, and the next window begins anew."""
        first = analytics(asked(virtual_engine, job_types=TWO))
        assert (first.acted, first.counts, first.notes, first.now) == (2, {"snapshots": 2}, (), NOON)
        later = after(minutes=14, seconds=59)
        assert analytics(asked(virtual_engine, job_types=TWO, now=later)) == Answer(now=later)
        assert analytics(asked(virtual_engine, job_types=TWO, now=after(minutes=15))).acted == 2
        assert [(one.window_start, one.job_type) for one in taken(virtual_engine)] == [
            (NOON, "digest"),
            (NOON, "renewal"),
            (after(minutes=15), "digest"),
            (after(minutes=15), "renewal"),
        ]

    def test_doubled_calls_at_once(self, virtual_engine: Engine) -> None:
        """Of many calls at once, together one takes each snapshot."""
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _: analytics(asked(virtual_engine, job_types=TWO)), range(24)))
        assert sum(one.acted for one in answers) == 2
        assert len(taken(virtual_engine)) == 2

    def test_second_call_leaves_it_to_the_first(self, virtual_engine: Engine) -> None:
        """While one is taking a snapshot another neither waits nor counts the same rows."""
        with transaction(virtual_engine) as connection:
            assert take(connection, ["digest"], NOON, NOON) == 1
            answer = analytics(asked(virtual_engine, job_types=TWO))
            assert answer.counts == {"snapshots": 1}
        assert [one.job_type for one in taken(virtual_engine)] == ["digest", "renewal"]

    def test_late_question_finds_it_taken(
        self, virtual_engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One who asked before the other wrote, and acts after it, writes nothing."""
        asks, goes_on = Event(), Event()
        before = snapshots.untaken

        def slowly(*arguments: Any) -> list[str]:
            found = before(*arguments)
            asks.set()
            assert goes_on.wait(20)
            return found

        with ThreadPoolExecutor(1) as thread:
            monkeypatch.setattr(module, "untaken", slowly)
            slow = thread.submit(analytics, asked(virtual_engine, job_types=TWO))
            assert asks.wait(20)
            monkeypatch.setattr(module, "untaken", before)
            assert analytics(asked(virtual_engine, job_types=TWO)).acted == 2
            goes_on.set()
            assert slow.result(20).acted == 0

    def test_parts_cover_all_types(self, virtual_engine: Engine) -> None:
        """A call takes the types whose names lie in its range, and all parts together each of them once."""
        names = [f"type_{number}" for number in range(12)]
        types = types_of(nothing, *names)
        half = shard(0, 2)
        analytics(asked(virtual_engine, job_types=types, ids=half))
        assert {one.job_type for one in taken(virtual_engine)} == {
            name for name in names if half.contains(place_of(name))
        }
        analytics(asked(virtual_engine, job_types=types, ids=shard(1, 2)))
        assert [one.job_type for one in taken(virtual_engine)] == sorted(names)

    def test_budget_leaves_the_rest(self, virtual_engine: Engine) -> None:
        """Without time nothing begins, and the answer says what is left."""
        answer = analytics(asked(virtual_engine, job_types=TWO, budget_seconds=0.0))
        assert (answer.acted, answer.notes) == (0, ("2 job types are left to the window's next call",))


class TestNumbers:
    """What a snapshot says."""

    def test_of_the_quarter_that_ended(self, virtual_engine: Engine) -> None:
        """Outcomes and lateness are those recorded in the window before, its beginning included."""
        for minutes, late in ((-15, 1.0), (-10, 2.0), (-1, 60.0)):
            tried(virtual_engine, "success", minutes, late=late)
        tried(virtual_engine, "failure", -2, late=2.0)
        tried(virtual_engine, "success", -15.01, late=999.0)
        tried(virtual_engine, "success", 0, late=999.0)
        tried(virtual_engine, "success", -3, late=5.0, job_type="renewal")
        sql(
            virtual_engine,
            "INSERT INTO cronless.job_execution (recorded_at, job_id, tenant_id, job_type, outcome, missed_count)"
            " VALUES (:at, gen_random_uuid(), 't', 'digest', 'missed', 7)",
            at=after(minutes=-4),
        )
        analytics(asked(virtual_engine, job_types=TWO, now=after(minutes=3)))
        digest, renewal = taken(virtual_engine)
        assert (digest.window_start, digest.taken_at) == (NOON, after(minutes=3))
        assert digest.outcomes == {"success": 3, "failure": 1, "missed": 7}
        assert (digest.lateness_p50, digest.lateness_p95, digest.lateness_p99) == (2.0, 60.0, 60.0)
        assert (renewal.outcomes, renewal.lateness_p50) == ({"success": 1}, 5.0)

    def test_of_now(self, virtual_engine: Engine) -> None:
        """Due, late and failing jobs are counted as they stand; a quiet type has noughts and no lateness."""
        for minutes in (-1, -2, -20):
            add(virtual_engine, job_type="digest")
            sql(
                virtual_engine,
                "UPDATE cronless.scheduled_job SET next_run_at = :at, scheduled_for = :at, consecutive_failures = 3,"
                " plan_count = plan_count + 1 WHERE next_run_at IS NULL",
                at=after(minutes=minutes),
            )
        analytics(asked(virtual_engine, job_types=TWO))
        digest, renewal = taken(virtual_engine)
        assert (digest.due, digest.late, digest.running, digest.stuck, digest.failing) == (3, 1, 0, 0, 3)
        assert (renewal.due, renewal.late, renewal.failing) == (0, 0, 0)
        assert (renewal.lateness_p50, renewal.outcomes) == (None, {})

    def test_types_of_other_nodes(self, virtual_engine: Engine) -> None:
        """A type that only other code declares is noted too, until nobody has declared it for a day."""
        for name, hours in (("elsewhere", 23), ("gone", 25)):
            sql(
                virtual_engine,
                "INSERT INTO cronless.job_type (name, route, batch_size, seen_at) VALUES (:name, 'run', 1, :at)",
                name=name,
                at=after(hours=-hours),
            )
        analytics(asked(virtual_engine, job_types=TWO))
        assert [one.job_type for one in taken(virtual_engine)] == ["digest", "elsewhere", "renewal"]


@pytest.mark.parametrize(("minutes", "begins"), [(0, 0), (14.99, 0), (15, 15), (-0.01, -15)])
def test_window_of(minutes: float, begins: int) -> None:
    """A window begins at a quarter of an hour and does not hold the next one's beginning."""
    assert window_of(after(minutes=minutes)) == after(minutes=begins)
