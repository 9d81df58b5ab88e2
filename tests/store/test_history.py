"""The history's partitions: made ahead, made by whoever meets a missing one, and dropped."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from cronless_dagster.scheduling.models import MissedStretch
from cronless_dagster.store import history
from cronless_dagster.store.claims import close_claim
from cronless_dagster.store.database import transaction
from tests.store.rows import (
    DAY,
    NOW,
    claim,
    due_row,
    job_types,
    outcomes,
    sql,
    tick,
)


def partitions(engine):
    """Return the days that have a partition."""
    rows = sql(
        engine,
        "SELECT c.relname FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid"
        " WHERE inhparent = 'cronless.job_execution'::regclass ORDER BY 1",
    )
    return [date.fromisoformat(one.relname.removeprefix("job_execution_")) for one in rows]


def tables(engine):
    """Return the history's tables, detached ones included."""
    rows = sql(engine, "SELECT relname FROM pg_class WHERE relname ~ '^job_execution_[0-9]+$' ORDER BY 1")
    return [one.relname for one in rows]


@pytest.fixture
def old_partition(engine):
    """A partition of a hundred days ago with a row in it; returns its table's name."""
    day = datetime.now(UTC) - 100 * DAY
    sql(engine, "SELECT cronless.ensure_history_partition(:day)", day=day.date())
    sql(
        engine,
        "INSERT INTO cronless.job_execution (recorded_at, job_id, tenant_id, job_type, outcome)"
        " VALUES (:at, gen_random_uuid(), 'acme', 'digest', 'success')",
        at=day,
    )
    return f"job_execution_{day:%Y%m%d}"


class TestAhead:
    def test_migration_makes_them(self, engine):
        """A fresh database has partitions from yesterday to 14 days ahead."""
        today = datetime.now(UTC).date()
        assert partitions(engine) == [today + timedelta(days=n) for n in range(-1, 15)]

    def test_tick_makes_them_once_a_day(self, virtual_engine):
        """The first tick of a day makes the partitions up to 14 days ahead, the others look at nothing."""
        later = datetime(2027, 5, 1, 10, tzinfo=UTC)
        tick(virtual_engine, later)
        assert later.date() + timedelta(days=14) in partitions(virtual_engine)

    def test_day_is_utc_whatever_the_session_says(self, engine):
        """A partition holds a day of UTC, made by a session in any zone."""
        with engine.begin() as connection:
            connection.execute(text("SET LOCAL TimeZone = 'Pacific/Kiritimati'"))
            connection.execute(text("SELECT cronless.ensure_history_partition('2030-01-01')"))
            connection.execute(text("SET LOCAL TimeZone = 'UTC'"))
            bound = connection.scalar(
                text(
                    "SELECT pg_get_expr(relpartbound, oid) FROM pg_class"
                    " WHERE oid = 'cronless.job_execution_20300101'::regclass"
                )
            )
        assert "FROM ('2030-01-01 00:00:00+00') TO ('2030-01-02 00:00:00+00')" in bound

    def test_two_at_once(self, engine):
        """Two dispatchers that miss the same day make it once, and neither fails."""
        errors = []

        def make() -> None:
            try:
                with transaction(engine) as connection:
                    history.ensure_partitions(connection, datetime(2031, 1, 1, tzinfo=UTC), ahead=5)
            except Exception as error:  # noqa: BLE001 - any error at all fails the test
                errors.append(error)

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert errors == []
        assert sum(day.year == 2031 for day in partitions(engine)) == 6


class TestMissing:
    def test_finish_makes_the_missing_partition(self, virtual_engine):
        """A finish on a day without a partition makes it and is recorded, without running the job twice."""
        ran = []
        later = datetime(2028, 2, 29, 12, tzinfo=UTC)
        due_row(virtual_engine, later)

        def handler(job) -> None:
            ran.append(job.id)
            sql(virtual_engine, "SELECT cronless.drop_history_partition('2028-02-29')")

        types = job_types(handler=handler)
        _, [report] = tick(virtual_engine, later, types)
        assert (report.succeeded, len(ran)) == (1, 1)
        assert date(2028, 2, 29) in partitions(virtual_engine)
        assert outcomes(virtual_engine, ran[0]) == ["success"]

    def test_other_violations_are_errors(self, virtual_engine):
        """A history row that breaks another rule is no matter of partitions."""
        tried = []

        def write() -> None:
            tried.append(1)
            sql(
                virtual_engine,
                "INSERT INTO cronless.job_execution (recorded_at, job_id, tenant_id, job_type, outcome)"
                " VALUES (:now, gen_random_uuid(), 'a', 'b', 'nonsense')",
                now=NOW,
            )

        with pytest.raises(IntegrityError):
            history.with_partition(virtual_engine, NOW, write)
        assert len(tried) == 1

    def test_missing_partition_is_known_in_any_language(self, virtual_engine):
        """What is missing is read from the error's fields: the message is in the server's language."""
        with pytest.raises(IntegrityError) as caught:
            sql(
                virtual_engine,
                "INSERT INTO cronless.job_execution (recorded_at, job_id, tenant_id, job_type, outcome)"
                " VALUES ('1999-01-01', gen_random_uuid(), 'a', 'b', 'success')",
            )
        caught.value.orig.args = ("keine Partition von Relation gefunden",)
        attempts = iter([caught.value, None])

        def write() -> str:
            error = next(attempts)
            if error is not None:
                raise error
            return "written"

        assert history.with_partition(virtual_engine, NOW, write) == "written"


class TestMissedStretch:
    def test_is_one_row(self, virtual_engine):
        """A stretch of missed instants is one history row with first, last, count and reason."""
        job = due_row(virtual_engine)
        stretch = MissedStretch(NOW - 3 * DAY, NOW - DAY, 49, False, "overrun")
        with transaction(virtual_engine) as connection:
            history.record_missed(connection, [history.Missed(job, "acme", "digest", stretch)], NOW)
            [found] = history.of_job(connection, job)
        assert (found.outcome, found.scheduled_for, found.missed_last) == ("missed", NOW - 3 * DAY, NOW - DAY)
        assert (found.missed_count, found.missed_reason) == (49, "overrun")


class TestRetention:
    def test_old_days_are_dropped(self, engine, old_partition):
        """A day that ended longer ago than history is kept is dropped as a table; the others stay."""
        days = partitions(engine)
        assert history.prune(engine, datetime.now(UTC), 99) == [old_partition]
        assert old_partition not in tables(engine)
        assert partitions(engine) == days[1:]

    def test_kept_days_stay(self, engine, old_partition):
        """A day within the time that history is kept stays, to the day."""
        assert history.prune(engine, datetime.now(UTC), 100) == []
        assert old_partition in tables(engine)

    def test_closed_claims_go_with_it(self, virtual_engine):
        """Claims closed before are deleted; open ones and younger ones stay."""
        due_row(virtual_engine)
        old = claim(virtual_engine)
        due_row(virtual_engine)
        young = claim(virtual_engine)
        due_row(virtual_engine)
        still_open = claim(virtual_engine)
        with transaction(virtual_engine) as connection:
            close_claim(connection, old, "done", NOW - 31 * DAY)
            close_claim(connection, young, "done", NOW - 29 * DAY)
        history.prune(virtual_engine, NOW, 30)
        assert {one.id for one in sql(virtual_engine, "SELECT id FROM cronless.job_claim")} == {
            young,
            still_open,
        }

    def test_reader_holds_it_up_for_a_bounded_time(self, engine, old_partition, monkeypatch):
        """A reader of the old day makes the tick give up after its time, and another prune finishes the detach."""
        monkeypatch.setattr(history, "PRUNE_SECONDS", 1)
        with engine.connect() as reader:
            reader.execute(text("SELECT count(*) FROM cronless.job_execution")).all()
            assert history.prune(engine, datetime.now(UTC), 99) == []
            pending = sql(engine, "SELECT inhdetachpending FROM pg_inherits WHERE inhdetachpending")
            assert len(pending) == 1
        assert history.prune(engine, datetime.now(UTC), 99) == [old_partition]
        assert old_partition not in tables(engine)

    def test_detached_leftover_is_dropped(self, engine, old_partition):
        """A partition that was detached and not dropped, because its process died, goes next time."""
        sql(engine, f"ALTER TABLE cronless.job_execution DETACH PARTITION cronless.{old_partition}")
        assert history.prune(engine, datetime.now(UTC), 99) == [old_partition]

    def test_writers_of_other_days_go_on(self, engine, old_partition):
        """While an old day is dropped, an uncommitted finish of today neither waits nor is waited for."""
        with engine.connect() as writer:
            writer.execute(
                text(
                    "INSERT INTO cronless.job_execution (recorded_at, job_id, tenant_id, job_type, outcome)"
                    " VALUES (now(), gen_random_uuid(), 'a', 'b', 'success')"
                )
            )
            pruner = threading.Thread(target=history.prune, args=(engine, datetime.now(UTC), 99))
            pruner.start()
            sql(
                engine,
                "INSERT INTO cronless.job_execution (recorded_at, job_id, tenant_id, job_type, outcome)"
                " VALUES (now(), gen_random_uuid(), 'a', 'b', 'success')",
            )
            writer.commit()
        pruner.join(60)
        assert old_partition not in tables(engine)
