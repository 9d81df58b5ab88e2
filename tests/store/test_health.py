"""What schedule_health asks for: each number from rows made for it, and its bound."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from cronless_dagster.store.database import transaction
from cronless_dagster.store.health import Health, read_health
from tests.store.queued import begin, messages, queued
from tests.store.rows import DAY, HOUR, MINUTE, NOW, add_row, due_row, sql

if TYPE_CHECKING:
    from sqlalchemy import Engine


def health(engine: Engine, **bounds: Any) -> Health:
    """Read the health at `NOW`."""
    with transaction(engine) as connection:
        return read_health(connection, NOW, **bounds)


def executed(engine: Engine, outcome: str = "success", **columns: Any) -> None:
    """Write one row of history, of a job that was due ten minutes ago and started at once."""
    values = {
        "recorded_at": NOW - MINUTE,
        "tenant_id": "acme",
        "job_type": "digest",
        "outcome": outcome,
        "due_at": NOW - 10 * MINUTE,
        "started_at": NOW - 10 * MINUTE,
        **columns,
    }
    names, places = ", ".join(values), ", ".join(f":{name}" for name in values)
    sql(
        engine,
        f"INSERT INTO cronless.job_execution (job_id, {names}) VALUES (gen_random_uuid(), {places})",
        **values,
    )


def claimed(engine: Engine, lease_expires_at: Any, **columns: Any) -> None:
    """Make an open claim of five jobs."""
    values = {"state": "RUNNING", "route": "run", "done_count": 0, "oldest_due_at": NOW - HOUR, **columns}
    names, places = ", ".join(values), ", ".join(f":{name}" for name in values)
    sql(
        engine,
        "INSERT INTO cronless.job_claim (id, job_type, id_low, job_count, lease_seconds, lease_expires_at, created_at,"
        f" {names}) VALUES (gen_random_uuid(), 'digest', gen_random_uuid(), 5, 600, :lease, :now, {places})",
        lease=lease_expires_at,
        now=NOW - HOUR,
        **values,
    )


def test_nothing_at_all(virtual_engine: Engine) -> None:
    """An empty database is healthy, and no number is missing."""
    found = health(virtual_engine)
    assert (found.due.number, found.recent.tried, found.failing_count) == (0, 0, 0)
    assert (found.stuck, found.failing, found.invalid, found.minutes) == ([], [], [], {})
    assert found.unstarted_since is None
    assert found.at_least == ()


class TestLateness:
    def test_of_what_is_due(self, virtual_engine: Engine) -> None:
        """Percentiles are ages that occur, of all, by type, and the longest by tenant; what is paused isn't due."""
        for minutes in range(1, 11):
            due_row(virtual_engine, NOW - minutes * MINUTE, tenant_id=f"t{minutes % 2}")
        due_row(virtual_engine, NOW - HOUR, job_type="renewal", tenant_id="t2")
        due_row(virtual_engine, NOW - DAY, paused_at=NOW)
        found = health(virtual_engine)
        digest = found.due_by_type["digest"]
        assert (digest.number, digest.p50, digest.p95, digest.longest) == (10, 300, 600, 600)
        assert (found.due.number, found.due.p50, found.due.longest) == (11, 360, 3_600)
        assert {name: (one.number, one.longest) for name, one in found.due_by_tenant.items()} == {
            "t2": (1, 3_600),
            "t0": (5, 600),
            "t1": (5, 540),
        }

    def test_of_what_was_started_lately(self, virtual_engine: Engine) -> None:
        """Within a quarter of an hour; what started before counts as a try alone."""
        for seconds in (10, 20, 30):
            executed(virtual_engine, started_at=NOW - 10 * MINUTE + timedelta(seconds=seconds))
        executed(virtual_engine, due_at=NOW - 2 * HOUR, started_at=NOW - 20 * MINUTE)
        recent = health(virtual_engine).recent
        assert recent.tried == 4
        assert (recent.started.number, recent.started.p50, recent.started.longest) == (3, 20, 30)

    def test_of_claims_that_nobody_started(self, virtual_engine: Engine) -> None:
        """Their jobs are neither due nor started, and wait all the same."""
        claimed(virtual_engine, NOW + HOUR, state="SUBMITTED", oldest_due_at=NOW - 40 * MINUTE)
        claimed(virtual_engine, NOW + HOUR, started_at=NOW, oldest_due_at=NOW - 2 * HOUR)
        assert health(virtual_engine).unstarted_since == NOW - 40 * MINUTE

    def test_stops_at_its_bound(self, virtual_engine: Engine) -> None:
        """The longest due ones are those that are looked at, and it says so."""
        for minutes in range(1, 6):
            due_row(virtual_engine, NOW - minutes * MINUTE)
        found = health(virtual_engine, due_bound=2)
        assert (found.due.number, found.due.p50, found.due.longest) == (2, 240, 300)
        assert found.at_least == ("due_lateness",)


class TestHistory:
    def test_outcomes_by_type(self, virtual_engine: Engine) -> None:
        """Tries that failed, whether or not a retry follows; a person's cancelling is no try; older rows are left."""
        for outcome in ("success", "success", "failure", "exhausted", "superseded", "crashed", "canceled"):
            executed(virtual_engine, outcome)
        executed(virtual_engine, "missed", job_type="renewal", missed_count=7, started_at=None, due_at=None)
        executed(virtual_engine, "failure", recorded_at=NOW - HOUR - MINUTE)
        found = health(virtual_engine)
        digest, renewal = found.recent_by_type["digest"], found.recent_by_type["renewal"]
        assert (digest.tried, digest.failed, digest.missed) == (6, 4, 0)
        assert (renewal.tried, renewal.failed, renewal.missed) == (0, 0, 7)
        assert (found.recent.tried, found.recent.failed, found.recent.missed) == (6, 4, 7)

    def test_the_worst_tenants(self, virtual_engine: Engine) -> None:
        """Those that failed most, and none that didn't."""
        for tenant, failures in (("a", 1), ("b", 3), ("c", 2), ("d", 0)):
            executed(virtual_engine, tenant_id=tenant)
            for _ in range(failures):
                executed(virtual_engine, "failure", tenant_id=tenant)
        found = health(virtual_engine).recent_by_tenant
        assert {name: (one.tried, one.failed) for name, one in found.items()} == {
            "b": (4, 3),
            "c": (3, 2),
            "a": (2, 1),
        }
        assert list(health(virtual_engine, listed=2).recent_by_tenant) == ["b", "c"]


class TestStuck:
    def test_on_the_run_route(self, virtual_engine: Engine) -> None:
        """Only what nobody rescued for a while after the lease's end, and what still has jobs."""
        claimed(virtual_engine, NOW - 6 * MINUTE, done_count=2, run_id="a run")
        claimed(virtual_engine, NOW - 4 * MINUTE)
        claimed(virtual_engine, NOW - HOUR, done_count=5)
        claimed(virtual_engine, NOW + HOUR)
        [one] = health(virtual_engine).stuck
        assert (one.job_type, one.jobs, one.run_id, one.since) == ("digest", 3, "a run", NOW - 6 * MINUTE)
        assert len(health(virtual_engine, stuck_after=MINUTE).stuck) == 2

    def test_what_waits_in_dagsters_run_queue_is_late_not_stuck(self, virtual_engine: Engine) -> None:
        """A claim has a holder to lose only once a run has started it; one of the command line is its maker's."""
        for state in ("CLAIMED", "SUBMITTED"):
            claimed(virtual_engine, NOW - HOUR, state=state)
        found = health(virtual_engine)
        assert (found.stuck, found.unstarted_since) == ([], NOW - HOUR)
        claimed(virtual_engine, NOW - HOUR, state="CLAIMED", route="local")
        assert [one.route for one in health(virtual_engine).stuck] == ["local"]

    def test_on_the_queue_route(self, virtual_engine: Engine) -> None:
        """Jobs beyond their own lease; a backlog that nobody has started isn't stuck."""
        token, ids = queued(virtual_engine, 5)
        begin(virtual_engine, messages(token, ids[:2]), lease=60)
        begin(virtual_engine, messages(token, ids[2:3]), lease=3_600)
        with transaction(virtual_engine) as connection:
            assert read_health(connection, NOW + 5 * MINUTE).stuck == []
            [one] = read_health(connection, NOW + 7 * MINUTE).stuck
        assert (one.id, one.route, one.jobs, one.since) == (token, "queue", 2, NOW + MINUTE)


def test_failing_invalid_and_ended_jobs(virtual_engine: Engine) -> None:
    """Three failures in a row are many; the worst come first; what has ended is counted by type."""
    for failures in (2, 3, 5):
        add_row(virtual_engine, name=str(failures), consecutive_failures=failures, last_error="it broke")
    add_row(virtual_engine, name="odd", status="INVALID", invalid_reason="no such zone")
    for status in ("DONE", "DONE", "FAILED"):
        add_row(virtual_engine, status=status)
    found = health(virtual_engine)
    assert [(one.name, one.failures, one.error) for one in found.failing] == [
        ("5", 5, "it broke"),
        ("3", 3, "it broke"),
    ]
    assert found.failing_count == 2
    assert [(one.name, one.reason) for one in found.invalid] == [("odd", "no such zone")]
    assert found.ended == {("digest", "DONE"): 2, ("digest", "FAILED"): 1}


class TestMinutes:
    def test_of_the_next_day(self, virtual_engine: Engine) -> None:
        """By whole minutes of UTC and by type, from now until a day later; what lies beyond is only counted."""
        for seconds in (1, 59, 60, 119):
            add_row(virtual_engine, next_run_at=NOW + HOUR + timedelta(seconds=seconds))
        add_row(virtual_engine, job_type="renewal", next_run_at=NOW + HOUR)
        for away in (timedelta(0), DAY, DAY + HOUR):
            add_row(virtual_engine, next_run_at=NOW + away)
        add_row(virtual_engine, next_run_at=NOW + HOUR, paused_at=NOW)
        found = health(virtual_engine)
        assert found.minutes == {
            NOW + HOUR: {"digest": 2, "renewal": 1},
            NOW + HOUR + MINUTE: {"digest": 2},
        }
        assert found.ahead == {"digest": 6, "renewal": 1}
        assert found.at_least == ()

    def test_stop_at_a_bound(self, virtual_engine: Engine) -> None:
        """The next ones are those that are counted."""
        for minute in range(1, 6):
            add_row(virtual_engine, next_run_at=NOW + minute * MINUTE)
        found = health(virtual_engine, ahead_bound=3)
        assert list(found.minutes) == [NOW + minute * MINUTE for minute in (1, 2, 3)]
        assert found.at_least == ("ahead",)
