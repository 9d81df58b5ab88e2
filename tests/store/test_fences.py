"""The start and finish fences: of a claim on the run route, of one job through the SQL functions."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DataError, DBAPIError

from cronless_dagster.engine.tick import tick as engine_tick
from cronless_dagster.scheduling.models import Outcome
from cronless_dagster.store import claims
from cronless_dagster.store.database import transaction
from cronless_dagster.store.errors import ClaimLost
from tests.store.rows import (
    HOUR,
    MINUTE,
    NOW,
    at,
    claim,
    claim_row,
    due_row,
    edit,
    exists,
    history,
    job_types,
    outcomes,
    planned_row,
    row,
    set_clock,
    sql,
    start,
)


def start_claim(engine, claim_id, execution_id, now=NOW):
    """Start a claim; None where the fence refused."""
    with transaction(engine) as connection:
        return claims.start_claim(connection, claim_id, execution_id, "a run", now)


def start_job(engine, job, token, execution, lease=600):
    """Call the start function; returns its row, or None where the fence refused."""
    rows = sql(
        engine,
        "SELECT * FROM cronless.cronless_start(:job, :token, :execution, :lease)",
        job=job,
        token=token,
        execution=execution,
        lease=lease,
    )
    return rows[0] if rows else None


def finish_job(engine, job, token, execution, outcome="success", error=None, next_at=None):
    """Call the finish function; returns its answer."""
    [answer] = sql(
        engine,
        "SELECT cronless.cronless_finish(:job, :token, :execution, :outcome, :error, CAST(:next_at AS timestamptz))",
        job=job,
        token=token,
        execution=execution,
        outcome=outcome,
        error=error,
        next_at=next_at,
    )
    return answer[0]


def renew_job(engine, job, token, execution):
    """Call the renewal; returns whether the job is still held."""
    [answer] = sql(
        engine,
        "SELECT cronless.cronless_renew(:job, :token, :execution, 60)",
        job=job,
        token=token,
        execution=execution,
    )
    return answer[0]


def tick(engine, now=NOW):
    """Tick without an executor: only planning, and taking what workers reported."""
    report = engine_tick(engine, job_types(), now=now)
    assert report.errors == []
    return report


class TestClaimStart:
    def test_starts_once(self, virtual_engine):
        """Of two runs of one claim the first one starts it; the other is refused and changes nothing."""
        due_row(virtual_engine)
        claim_id, first, second = claim(virtual_engine), uuid4(), uuid4()
        assert start_claim(virtual_engine, claim_id, first).state == "RUNNING"
        assert start_claim(virtual_engine, claim_id, second) is None
        assert claim_row(virtual_engine, claim_id).execution_id == first

    def test_same_execution_may_ask_again(self, virtual_engine):
        """A holder whose COMMIT lost its answer asks again and gets the same one."""
        due_row(virtual_engine)
        claim_id, me = claim(virtual_engine), uuid4()
        start_claim(virtual_engine, claim_id, me)
        again = start_claim(virtual_engine, claim_id, me, NOW + MINUTE)
        assert (again.state, again.started_at) == ("RUNNING", NOW)

    def test_closed_claim_never_starts(self, virtual_engine):
        """A claim that has ended is not started again, by whomever."""
        due_row(virtual_engine)
        claim_id = claim(virtual_engine)
        with transaction(virtual_engine) as connection:
            claims.close_claim(connection, claim_id, "released", NOW)
        assert start_claim(virtual_engine, claim_id, uuid4()) is None

    def test_touches_the_claim_only(self, virtual_engine):
        """Start and heartbeat of the run route write no row of a job."""
        job = due_row(virtual_engine)
        claim_id = claim(virtual_engine)
        before = row(virtual_engine, job)
        holder = start(virtual_engine, claim_id)
        with transaction(virtual_engine) as connection:
            claims.hold_claim(connection, claim_id, holder.execution_id, NOW + MINUTE)
        assert row(virtual_engine, job) == before
        assert claim_row(virtual_engine, claim_id).lease_expires_at == NOW + MINUTE + timedelta(seconds=600)


class TestClaimFinish:
    def test_is_accepted_once(self, virtual_engine):
        """The second report of the same result is accepted for no job and leaves no second history row."""
        job = due_row(virtual_engine)
        holder = start(virtual_engine, claim(virtual_engine))
        assert holder.finish() == {job}
        assert holder.finish() == set()
        assert outcomes(virtual_engine, job) == ["success"]

    def test_history_names_everything(self, virtual_engine):
        """A finished try is recorded with its occurrence, its token, its holder and its run."""
        job = due_row(virtual_engine, NOW - MINUTE)
        claim_id = claim(virtual_engine)
        holder = start(virtual_engine, claim_id)
        holder.finish()
        [done] = history(virtual_engine, job)
        assert (done.scheduled_for, done.due_at, done.started_at) == (NOW - MINUTE, NOW - MINUTE, NOW)
        assert (done.claim_id, done.execution_id, done.run_id) == (claim_id, holder.execution_id, "a run")
        assert (done.attempt, done.manual, done.tenant_id, done.job_type) == (1, False, "acme", "digest")

    @pytest.mark.parametrize("how", ["closed", "another holder"])
    def test_lost_claim_accepts_nothing(self, virtual_engine, how):
        """A holder that lost its claim gets an error, and none of its results is accepted."""
        job = due_row(virtual_engine)
        holder = start(virtual_engine, claim(virtual_engine))
        if how == "closed":
            with transaction(virtual_engine) as connection:
                claims.close_claim(connection, holder.claim_id, "split", NOW)
        else:
            sql(virtual_engine, "UPDATE cronless.job_claim SET execution_id = gen_random_uuid()")
        with pytest.raises(ClaimLost, match=str(holder.claim_id)):
            holder.finish()
        assert outcomes(virtual_engine, job) == []
        assert row(virtual_engine, job).status == "QUEUED"

    def test_row_of_another_claim_is_left_out(self, virtual_engine):
        """Of a batch the rows that moved to another claim are left out, and their neighbours are accepted."""
        moved, kept = due_row(virtual_engine), due_row(virtual_engine)
        holder = start(virtual_engine, claim(virtual_engine))
        sql(
            virtual_engine,
            "UPDATE cronless.scheduled_job SET claim_id = gen_random_uuid(), plan_count = plan_count + 1"
            " WHERE id = :id",
            id=moved,
        )
        assert holder.finish() == {kept}
        assert row(virtual_engine, moved).status == "QUEUED"

    def test_stale_token_changes_nothing(self, virtual_engine):
        """A holder of an earlier claim can't finish the row that was claimed anew."""
        job = due_row(virtual_engine)
        old = start(virtual_engine, claim(virtual_engine))
        with transaction(virtual_engine) as connection:
            claims.release_rows(connection, old.claim_id)
        new = start(virtual_engine, claim(virtual_engine))
        assert old.finish() == set()
        assert new.finish() == {job}

    def test_error_with_nul_is_stored(self, virtual_engine):
        """An error text that PostgreSQL can't hold as it is neither fails the batch nor is lost."""
        job = due_row(virtual_engine)
        start(virtual_engine, claim(virtual_engine)).finish(Outcome("failure", error="a\x00b" + "x" * 10_000))
        [done] = history(virtual_engine, job)
        assert done.error.startswith("a\\x00b")
        assert len(done.error) == 4_000

    def test_lone_surrogate_in_an_error_is_stored(self, virtual_engine):
        """An error text with half a character fails neither its job's result nor its neighbours'."""
        job = due_row(virtual_engine)
        assert start(virtual_engine, claim(virtual_engine)).finish(
            Outcome("failure", error="bad \ud800 byte")
        ) == {job}
        assert "bad" in history(virtual_engine, job)[0].error


@pytest.fixture
def queued(virtual_engine):
    """A claimed job as a worker of the queue route knows it: (engine, job, token)."""
    job = due_row(virtual_engine, payload='{"to": "ann"}', name="weekly")
    return virtual_engine, job, claim(virtual_engine, route="queue")


class TestJobStart:
    def test_answers_with_what_the_worker_needs(self, queued):
        """The start returns the payload as it is now, so that an edit in between isn't lost."""
        engine, job, token = queued
        edit(engine, job, payload='{"to": "bob"}')
        started = start_job(engine, job, token, uuid4())
        assert (started.payload, started.name, started.tenant_id) == ({"to": "bob"}, "weekly", "acme")
        assert (started.scheduled_for, started.attempt, started.manual) == (NOW, 1, False)
        assert started.lease_expires_at == NOW + timedelta(seconds=600)
        assert row(engine, job).status == "RUNNING"

    def test_doubled_message_starts_once(self, queued):
        """A message delivered twice with the same token starts once."""
        engine, job, token = queued
        first = uuid4()
        assert start_job(engine, job, token, first) is not None
        assert start_job(engine, job, token, uuid4()) is None
        after = row(engine, job)
        assert (after.execution_id, after.attempt) == (first, 1)

    def test_same_execution_may_ask_again(self, queued):
        """A retry after a lost COMMIT answer is harmless: the same answer, and no further try is counted."""
        engine, job, token = queued
        me = uuid4()
        assert start_job(engine, job, token, me).attempt == 1
        assert start_job(engine, job, token, me).attempt == 1

    def test_stale_token_starts_nothing(self, queued):
        """A message of a claim that was released starts nothing, be the row pending or claimed anew."""
        engine, job, token = queued
        with transaction(engine) as connection:
            claims.release_rows(connection, token)
        assert start_job(engine, job, token, uuid4()) is None
        claim(engine, route="queue")
        assert start_job(engine, job, token, uuid4()) is None
        assert row(engine, job).attempt == 0

    def test_reported_job_does_not_start_again(self, queued):
        """A job whose outcome waits for a tick is not started again by its own message."""
        engine, job, token = queued
        me = uuid4()
        start_job(engine, job, token, me)
        finish_job(engine, job, token, me)
        assert start_job(engine, job, token, me) is None


class TestNotedStart:
    """A queue's first start is noted on its claim, by which lost messages are found."""

    def test_the_first_start(self, virtual_engine):
        """Once: the second job's start leaves the instant of the first."""
        jobs = [due_row(virtual_engine), due_row(virtual_engine)]
        token = claim(virtual_engine, route="queue")
        start_job(virtual_engine, jobs[0], token, uuid4())
        set_clock(virtual_engine, NOW + MINUTE)
        start_job(virtual_engine, jobs[1], token, uuid4())
        assert claim_row(virtual_engine, token).started_at == NOW

    def test_no_refused_start(self, virtual_engine):
        """A message of an older token, or of another job, notes nothing."""
        job = due_row(virtual_engine)
        token = claim(virtual_engine, route="queue")
        other = due_row(virtual_engine)
        newer = claim(virtual_engine, route="queue")
        assert start_job(virtual_engine, other, token, uuid4()) is None
        assert start_job(virtual_engine, job, newer, uuid4()) is None
        assert [claim_row(virtual_engine, one).started_at for one in (token, newer)] == [None, None]

    def test_a_claim_of_the_run_route(self, virtual_engine):
        """It has a start of its own, and a job started beside it says nothing about that."""
        job = due_row(virtual_engine)
        token = claim(virtual_engine)
        assert start_job(virtual_engine, job, token, uuid4()) is not None
        assert claim_row(virtual_engine, token).started_at is None

    def test_the_state_of_the_claim_stays(self, virtual_engine):
        """Whether its messages are confirmed is for the dispatcher to say."""
        job = due_row(virtual_engine)
        token = claim(virtual_engine, route="queue")
        before = claim_row(virtual_engine, token)._asdict()
        start_job(virtual_engine, job, token, uuid4())
        assert claim_row(virtual_engine, token)._asdict() == {**before, "started_at": NOW}


class TestJobRenew:
    def test_only_the_holder_renews(self, queued):
        """The lease is renewed by its holder alone, while it runs."""
        engine, job, token = queued
        me = uuid4()
        assert renew_job(engine, job, token, me) is False
        start_job(engine, job, token, me, lease=5)
        assert renew_job(engine, job, token, me) is True
        assert row(engine, job).lease_expires_at == NOW + MINUTE
        assert renew_job(engine, job, token, uuid4()) is False
        assert renew_job(engine, job, uuid4(), me) is False


class TestJobFinish:
    def test_reported_success_is_planned_by_the_next_tick(self, queued):
        """The outcome is stored; the next tick records it and plans, by the same planner as everybody else."""
        engine, job, token = queued
        me = uuid4()
        start_job(engine, job, token, me)
        assert finish_job(engine, job, token, me) == "accepted"
        assert outcomes(engine, job) == []
        assert tick(engine).finished == 1
        after = row(engine, job)
        assert (after.status, after.next_run_at, after.report, after.attempt) == (
            "PENDING",
            at("13:00"),
            None,
            0,
        )
        [done] = history(engine, job)
        assert (done.outcome, done.execution_id, done.claim_id, done.attempt) == ("success", me, token, 1)
        closed = claim_row(engine, token)
        assert (closed.state, closed.done_count) == ("CLOSED", 1)

    def test_reported_failure_is_retried_by_backoff(self, queued):
        """A reported failure keeps its count of tries, which the start raised, and waits for its retry."""
        engine, job, token = queued
        me = uuid4()
        start_job(engine, job, token, me)
        finish_job(engine, job, token, me, "failure", "no answer")
        tick(engine)
        after = row(engine, job)
        assert (after.attempt, after.last_outcome, after.last_error) == (1, "failure", "no answer")
        assert NOW + MINUTE <= after.next_run_at <= NOW + 1.1 * MINUTE
        assert claim_row(engine, token).failed_count == 1

    def test_next_instant_of_a_handler(self, virtual_engine):
        """A worker in any language names the next instant of an @handler job."""
        job = due_row(virtual_engine, schedule="@handler fallback=24h")
        token, me = claim(virtual_engine, route="queue"), uuid4()
        start_job(virtual_engine, job, token, me)
        finish_job(virtual_engine, job, token, me, next_at=NOW + 7 * HOUR)
        tick(virtual_engine)
        assert row(virtual_engine, job).next_run_at == NOW + 7 * HOUR

    def test_repeated_finish_is_already_accepted(self, queued):
        """A finish repeated before or after the tick answers "already accepted" and records nothing more."""
        engine, job, token = queued
        me = uuid4()
        start_job(engine, job, token, me)
        finish_job(engine, job, token, me)
        assert finish_job(engine, job, token, me, "failure", "changed my mind") == "already accepted"
        tick(engine)
        assert finish_job(engine, job, token, me) == "already accepted"
        assert outcomes(engine, job) == ["success"]

    @pytest.mark.parametrize("wrong", ["token", "execution", "not started"])
    def test_stale_finish_has_lost_its_claim(self, queued, wrong):
        """A finish with another token or execution, or without a start, is lost and changes nothing."""
        engine, job, token = queued
        me = uuid4()
        if wrong != "not started":
            start_job(engine, job, token, me)
        before = row(engine, job)
        answer = finish_job(
            engine, job, uuid4() if wrong == "token" else token, uuid4() if wrong == "execution" else me
        )
        assert answer == "claim lost"
        assert row(engine, job) == before

    def test_crash_is_no_accepted_result(self, queued):
        """A holder that was given up as crashed has lost its claim, though the history names its execution."""
        engine, job, token = queued
        me = uuid4()
        sql(
            engine,
            "INSERT INTO cronless.job_execution"
            " (recorded_at, job_id, tenant_id, job_type, outcome, claim_id, execution_id)"
            " VALUES (:now, :job, 'acme', 'digest', 'crashed', :token, :me)",
            now=NOW,
            job=job,
            token=token,
            me=me,
        )
        assert finish_job(engine, job, token, me) == "claim lost"

    @pytest.mark.parametrize("outcome", [None, "", "done", "SUCCESS"])
    def test_unknown_outcome_is_refused(self, queued, outcome):
        """An outcome that isn't known is an error that says what to give, and the job still runs."""
        engine, job, token = queued
        me = uuid4()
        start_job(engine, job, token, me)
        with pytest.raises(DataError, match="give success or failure"):
            finish_job(engine, job, token, me, outcome)
        assert row(engine, job).report is None

    @pytest.mark.parametrize("next_at", ["infinity", "-infinity", "20000-01-01", "0044-03-15 BC"])
    def test_instant_that_nobody_can_read_is_refused(self, queued, next_at):
        """A next instant that no client can read is refused where it is given, not met by every tick."""
        engine, job, token = queued
        me = uuid4()
        start_job(engine, job, token, me)
        with pytest.raises(DBAPIError, match=r"next_at .* is out of range"):
            finish_job(engine, job, token, me, next_at=next_at)

    def test_finish_of_a_removed_job(self, queued):
        """The late finish of a removed job is recorded, and the row goes."""
        engine, job, token = queued
        me = uuid4()
        start_job(engine, job, token, me)
        sql(engine, "DELETE FROM cronless.scheduled_job WHERE id = :id", id=job)
        assert finish_job(engine, job, token, me) == "accepted"
        tick(engine)
        assert not exists(engine, job)
        assert finish_job(engine, job, token, me) == "already accepted"

    def test_manual_run_leaves_the_tries_alone(self, virtual_engine):
        """The start of a manual run counts a try, and its finish takes it back: it belongs to no planned one."""
        job = planned_row(virtual_engine)
        edit(virtual_engine, job, trigger_requested_at=NOW)
        token, me = claim(virtual_engine, triggered=True, route="queue"), uuid4()
        assert start_job(virtual_engine, job, token, me).manual is True
        finish_job(virtual_engine, job, token, me, "failure", "no")
        tick(virtual_engine)
        after = row(virtual_engine, job)
        assert (after.attempt, after.next_run_at) == (0, at("13:00"))

    def test_tick_passes_over_a_report_that_another_takes(self, queued):
        """Two ticks at once share the reported jobs instead of waiting for each other."""
        engine, job, token = queued
        me = uuid4()
        start_job(engine, job, token, me)
        finish_job(engine, job, token, me)
        with engine.begin() as connection:
            connection.execute(text("SELECT 1 FROM cronless.scheduled_job FOR UPDATE"))
            assert tick(engine).finished == 0
        assert tick(engine).finished == 1
