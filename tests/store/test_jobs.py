"""Scheduled jobs in the caller's own session and transaction, with either driver."""

from __future__ import annotations

from datetime import timedelta
from types import MappingProxyType
from uuid import UUID, uuid4

import pytest
from sqlalchemy import create_engine, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from cronless_dagster.scheduling.errors import ScheduleError, TimezoneError
from cronless_dagster.store import jobs
from cronless_dagster.store.errors import JobError, PayloadError
from cronless_dagster.store.models import ScheduledJob
from tests.store.rows import (
    DAY,
    HOUR,
    NOW,
    claim,
    due_row,
    exists,
    outcomes,
    plan,
    row,
    serve,
    set_clock,
    sql,
    start,
)

BASE = {"tenant_id": "acme", "job_type": "digest", "schedule": "0 9 * * MON-FRI"}


@pytest.fixture(params=["psycopg", "psycopg2", "connection"])
def db(request, virtual_engine):
    """What a caller may have: a session on psycopg 3, on psycopg2, or a bare connection. Nothing is committed."""
    if request.param == "connection":
        with virtual_engine.connect() as connection:
            yield connection
        return
    engine = create_engine(virtual_engine.url.set(drivername=f"postgresql+{request.param}"))
    with Session(engine) as session:
        yield session
    engine.dispose()


class TestCallersTransaction:
    def test_rollback_leaves_nothing(self, db, virtual_engine):
        """Whatever was added, changed or removed is gone with the caller's rollback."""
        kept = due_row(virtual_engine, NOW + DAY)
        before = row(virtual_engine, kept)
        added = jobs.add(db, **BASE)
        jobs.change(db, kept, schedule="@daily")
        jobs.trigger(db, kept)
        jobs.pause(db, kept, reason="holiday")
        jobs.upsert(db, **BASE, name="other")
        assert jobs.remove(db, kept) is True
        assert jobs.get(db, kept) is None
        db.rollback()
        assert not exists(virtual_engine, added)
        assert row(virtual_engine, kept) == before

    def test_commit_is_the_callers(self, db, virtual_engine):
        """Nothing is visible to others before the caller commits, and all is afterwards."""
        added = jobs.add(db, **BASE, payload={"to": ["ann"]}, timezone="Europe/Paris", jitter_seconds=60)
        assert isinstance(added, UUID)
        assert not exists(virtual_engine, added)
        db.commit()
        found = row(virtual_engine, added)
        assert (found.payload, found.timezone, found.jitter_seconds) == ({"to": ["ann"]}, "Europe/Paris", 60)
        assert (found.status, found.next_run_at) == ("PENDING", None)
        assert plan(virtual_engine).planned == 1

    def test_every_call_works(self, db):
        """Each function works on what the caller has, and reads back what it wrote."""
        added = jobs.add(db, **BASE, name="weekly", starts_at=NOW, ends_at=NOW + DAY)
        jobs.change(db, added, schedule="@daily", payload={"a": 1}, next_run_at=NOW + HOUR)
        jobs.pause(db, added, reason="holiday")
        assert jobs.find(db, tenant_id="acme", job_type="digest", name="weekly").pause_reason == "holiday"
        jobs.resume(db, added)
        jobs.trigger(db, added)
        found = jobs.get(db, added)
        assert (found.paused_at, found.trigger_requested_at, found.schedule) == (None, NOW, "@daily")
        assert jobs.remove(db, added) is True


class TestUpsert:
    def test_same_call_twice_changes_nothing(self, db, virtual_engine):
        """An upsert repeated, as at each deployment, neither replans nor touches the row."""
        values = {**BASE, "name": "weekly", "payload": {"b": 2, "a": 1}, "ends_at": NOW + DAY}
        job = jobs.upsert(db, **values)
        db.commit()
        plan(virtual_engine)
        before = row(virtual_engine, job)
        set_clock(virtual_engine, NOW + HOUR)
        assert jobs.upsert(db, **{**values, "payload": {"a": 1, "b": 2}}) == job
        db.commit()
        assert row(virtual_engine, job) == before

    def test_changes_what_differs(self, db, virtual_engine):
        """An upsert with another schedule changes the row of the same name and replans it."""
        job = jobs.upsert(db, **BASE, name="weekly")
        db.commit()
        plan(virtual_engine)
        assert jobs.upsert(db, **{**BASE, "schedule": "@daily"}, name="weekly") == job
        db.commit()
        after = row(virtual_engine, job)
        assert (after.schedule, after.next_run_at) == ("@daily", None)

    def test_makes_a_new_one_beside_a_tombstone(self, virtual_engine):
        """The name of a removed job that still runs is free."""
        job = due_row(virtual_engine, name="weekly")
        claim(virtual_engine)
        with virtual_engine.begin() as connection:
            assert jobs.remove(connection, job) is False
            with pytest.raises(JobError, match="has no 'digest' job named 'weekly'"):
                jobs.find(connection, tenant_id="acme", job_type="digest", name="weekly")
            assert jobs.upsert(connection, **BASE, name="weekly") != job


class TestRequests:
    def test_pause_twice_is_once(self, db, virtual_engine):
        """The second pause keeps the instant and the reason of the first."""
        job = jobs.add(db, **BASE)
        jobs.pause(db, job, reason="holiday")
        jobs.pause(db, job, reason="other")
        db.commit()
        assert (row(virtual_engine, job).paused_at, row(virtual_engine, job).pause_reason) == (NOW, "holiday")

    @pytest.mark.parametrize("status", ["DONE", "FAILED", "INVALID"])
    def test_trigger_of_an_ended_job_is_refused(self, virtual_engine, status):
        """A request that nobody would serve is refused with what to do instead."""
        job = due_row(virtual_engine, status=status)
        with (
            virtual_engine.begin() as connection,
            pytest.raises(JobError, match=f"is {status}: give it a new"),
        ):
            jobs.trigger(connection, job)

    def test_remove_while_claimed(self, virtual_engine):
        """Removing a claimed job answers that it isn't gone yet; its finish is recorded and it goes."""
        job = due_row(virtual_engine)
        holder = start(virtual_engine, claim(virtual_engine))
        with virtual_engine.begin() as connection:
            assert jobs.remove(connection, job) is False
            for call in (jobs.remove, jobs.pause, jobs.resume, jobs.trigger, jobs.change):
                with pytest.raises(JobError, match=f"there is no job {job}"):
                    call(connection, job)
        holder.finish()
        assert not exists(virtual_engine, job)
        assert outcomes(virtual_engine, job) == ["success"]

    @pytest.mark.parametrize("call", [jobs.change, jobs.pause, jobs.resume, jobs.trigger, jobs.remove])
    def test_unknown_job(self, virtual_engine, call):
        """A job that isn't there is an error that says so."""
        with virtual_engine.begin() as connection, pytest.raises(JobError, match="there is no job"):
            call(connection, uuid4())


class TestRefused:
    @pytest.mark.parametrize(
        ("values", "error", "message"),
        [
            ({"schedule": "often"}, ScheduleError, "often"),
            ({"schedule": "0 9 * * *\x00"}, ScheduleError, "schedule|characters"),
            ({"schedule": "\ud800"}, ScheduleError, "schedule|characters"),
            ({"schedule": "*/5 * * * *," * 1_000}, ScheduleError, "schedule|characters"),
            ({"timezone": "Mars/Olympus"}, TimezoneError, "Mars/Olympus"),
            ({"timezone": "UTC\x00"}, TimezoneError, "zone"),
            ({"timezone": "\ud800"}, TimezoneError, "zone"),
            ({"timezone": "../../etc/passwd"}, TimezoneError, "zone"),
            ({"dst_policy": "maybe"}, ScheduleError, "maybe"),
            ({"misfire_policy": "never"}, JobError, "use latest, skip, all"),
            ({"tenant_id": ""}, JobError, "tenant_id '' can't be used"),
            ({"tenant_id": "a\x00b"}, JobError, "tenant_id"),
            ({"tenant_id": "\ud800"}, JobError, "tenant_id"),
            ({"tenant_id": 7}, JobError, "tenant_id"),
            ({"tenant_id": None}, JobError, "tenant_id is None"),
            ({"job_type": "x" * 101}, JobError, "at most 100 characters"),
            ({"name": "x" * 10_000}, JobError, "at most 500 characters"),
            ({"name": "\U0001f600" * 500}, JobError, "takes 2,000 bytes"),
            ({"name": None}, JobError, "name is None"),
            ({"jitter_seconds": -1}, JobError, "jitter_seconds -1"),
            ({"jitter_seconds": 2**31}, JobError, "jitter_seconds"),
            ({"jitter_seconds": None}, JobError, "jitter_seconds is None"),
            ({"jitter_seconds": "60"}, JobError, "jitter_seconds '60'"),
            ({"max_attempts": 0}, JobError, "max_attempts 0"),
            ({"starts_at": NOW.replace(tzinfo=None)}, JobError, "has no zone"),
            ({"starts_at": NOW, "ends_at": NOW - DAY}, JobError, "lies before starts_at"),
            ({"status": "RUNNING"}, JobError, "status can't be set"),
            ({"plan_count": 7}, JobError, "plan_count can't be set"),
        ],
    )
    def test_value(self, virtual_engine, values, error, message):
        """What can't be used is refused before anything is written, by add and change alike."""
        job = due_row(virtual_engine, NOW + DAY)
        before = row(virtual_engine, job)
        with virtual_engine.begin() as connection:
            with pytest.raises(error, match=message):
                jobs.add(connection, **{**BASE, **values})
            with pytest.raises(error, match=message):
                jobs.upsert(connection, **{**BASE, **values})
            with pytest.raises(error, match=message):
                jobs.change(connection, job, **values)
        assert sql(virtual_engine, "SELECT count(*) FROM cronless.scheduled_job") == [(1,)]
        assert row(virtual_engine, job) == before

    @pytest.mark.parametrize(
        ("payload", "message"),
        [
            ([1, 2], "is list, not a JSON object"),
            ("text", "is str"),
            ({"a": float("nan")}, "is no JSON"),
            ({"a": NOW}, "is no JSON"),
            ({"a": "\ud800"}, "is no JSON"),
            ({"a": "x\x00y"}, "NUL"),
            ({"\x00": 1}, "NUL"),
            ({"a": "x" * 65_536}, "65,545 bytes, more than 65,536"),
            ({"a": "é" * 32_768}, "more than 65,536"),
        ],
    )
    def test_payload(self, virtual_engine, payload, message):
        """A payload that can't be stored or is over its limit in bytes is refused with a reason."""
        with virtual_engine.begin() as connection:
            with pytest.raises(PayloadError, match=message):
                jobs.add(connection, **BASE, payload=payload)
            assert jobs.add(connection, **BASE)

    def test_deep_payload(self, virtual_engine):
        """A payload nested without end is refused, not a crash."""
        payload = {}
        for _ in range(200_000):
            payload = {"a": payload}
        with virtual_engine.begin() as connection, pytest.raises(PayloadError, match=r"deeply|bytes"):
            jobs.add(connection, **BASE, payload=payload)

    def test_payload_at_its_limit(self, virtual_engine):
        """The limit is inclusive, can be set by the caller, and an escaped backslash is no NUL."""
        exact = {"a": "x" * (65_536 - 9)}
        with virtual_engine.begin() as connection:
            job = jobs.add(connection, **BASE, payload=exact)
            assert jobs.get(connection, job).payload == exact
            with pytest.raises(PayloadError, match="more than 10"):
                jobs.add(connection, **BASE, name="b", payload={"a": "xxx"}, max_payload_bytes=10)
            job = jobs.add(connection, **BASE, name="c", payload=MappingProxyType({"a": "\\u0000"}))
            assert jobs.get(connection, job).payload == {"a": "\\u0000"}

    def test_taken_name(self, virtual_engine):
        """A name that is taken is refused without aborting the caller's transaction."""
        with virtual_engine.begin() as connection:
            first = jobs.add(connection, **BASE, name="weekly")
            other = jobs.add(connection, **BASE, name="daily")
            with pytest.raises(JobError, match="already has a 'digest' job named 'weekly'"):
                jobs.add(connection, **BASE, name="weekly")
            with pytest.raises(JobError, match="already has a 'digest' job named 'weekly'"):
                jobs.change(connection, other, name="weekly")
            jobs.change(connection, first, name="weekly")
            jobs.add(connection, **{**BASE, "tenant_id": "other"}, name="weekly")

    def test_longest_names_can_be_stored(self, virtual_engine):
        """The longest values that are let through fit into their index."""
        longest = {"tenant_id": "€" * 200, "job_type": "€" * 100, "name": "€" * 500}
        with virtual_engine.begin() as connection:
            job = jobs.add(connection, schedule="@daily", **longest)
            assert jobs.find(connection, **longest).id == job

    def test_tenant_of_a_claimed_job(self, virtual_engine):
        """The tenant of a claimed job can't change, and the caller's transaction goes on."""
        job = due_row(virtual_engine)
        claim(virtual_engine)
        with virtual_engine.begin() as connection:
            with pytest.raises(JobError, match="is claimed"):
                jobs.change(connection, job, tenant_id="other")
            jobs.change(connection, job, name="renamed")

    def test_reason_of_a_pause(self, virtual_engine):
        """A reason that can't be stored is refused."""
        job = due_row(virtual_engine)
        with virtual_engine.begin() as connection, pytest.raises(JobError, match="reason"):
            jobs.pause(connection, job, reason="a\x00b")


class TestPlainSql:
    @pytest.mark.parametrize(
        "values",
        [
            {"next_run_at": "infinity"},
            {"next_run_at": "-infinity"},
            {"starts_at": "20000-01-01"},
            {"ends_at": "0044-03-15 BC"},
            {"trigger_requested_at": "-infinity"},
            {"payload": "[]"},
            {"status": "QUEUED"},
            {"status": "SLEEPING"},
            {"tenant_id": ""},
            {"misfire_grace_seconds": -1},
            {"max_attempts": 0},
        ],
    )
    def test_what_would_stop_a_tick_is_refused(self, virtual_engine, values):
        """The database itself refuses rows that no tick could read or that contradict themselves."""
        due_row(virtual_engine, NOW + DAY)
        changes = ", ".join(f"{name} = :{name}" for name in values)
        with pytest.raises(IntegrityError):
            sql(virtual_engine, f"UPDATE cronless.scheduled_job SET {changes}", **values)

    def test_whole_range_of_instants(self, virtual_engine):
        """Every instant that Python can hold is taken."""
        for at in ("0001-01-01 00:00+00", "9999-12-31 23:59:59.999999+00"):
            job = due_row(virtual_engine, NOW + DAY)
            sql(
                virtual_engine,
                "UPDATE cronless.scheduled_job SET next_run_at = :at WHERE id = :id",
                at=at,
                id=job,
            )


class TestMappedClass:
    @pytest.fixture
    def session(self, virtual_engine):
        """A user's own session."""
        with Session(virtual_engine) as session:
            yield session

    def test_add_and_change(self, session, virtual_engine):
        """Rows are added and changed as objects; the trigger replans in the same transaction."""
        job = ScheduledJob(
            tenant_id="acme", job_type="digest", name="weekly", schedule="0 9 * * *", payload={"a": 1}
        )
        session.add(job)
        session.commit()
        assert (job.status, job.timezone, job.misfire_grace_seconds) == ("PENDING", "UTC", 300)
        plan(virtual_engine)
        session.refresh(job)
        assert job.next_run_at == NOW + timedelta(hours=21)
        job.timezone = "Europe/Paris"
        session.flush()
        session.refresh(job)
        assert (job.next_run_at, job.plan_version) == (None, 1)

    def test_direct_write(self, session, virtual_engine):
        """Writing next_run_at through the object is a direct write like any other."""
        job_id = due_row(virtual_engine, NOW + DAY)
        session.get(ScheduledJob, job_id).next_run_at = NOW
        session.commit()
        assert serve(virtual_engine) == {job_id}

    def test_query_and_delete(self, session, virtual_engine):
        """Rows are found by their columns, and deleting a claimed one leaves its tombstone."""
        due_row(virtual_engine, tenant_id="other")
        job_id = due_row(virtual_engine)
        claim(virtual_engine)
        [found] = session.scalars(select(ScheduledJob).where(ScheduledJob.tenant_id == "acme"))
        assert found.id == job_id
        assert "acme" in repr(found)
        assert "payload" not in repr(found)
        sql(virtual_engine, "DELETE FROM cronless.scheduled_job WHERE id = :id", id=job_id)
        session.refresh(found)
        assert found.removed_at == NOW
