"""Pause, resume, trigger and remove: requests beside the state, which disturb no claim."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import text

from cronless_dagster.scheduling.models import Outcome
from cronless_dagster.store import claims
from cronless_dagster.store.database import transaction
from tests.store.rows import (
    FAILURE,
    HOUR,
    MINUTE,
    NOW,
    add_row,
    at,
    claim,
    claim_row,
    due_row,
    edit,
    exists,
    history,
    outcomes,
    plan,
    planned_row,
    row,
    serve,
    set_clock,
    sql,
    start,
    tick,
)


def release(engine, claim_id):
    """Give a claim's unstarted rows back."""
    with transaction(engine) as connection:
        claims.release_rows(connection, claim_id)


class TestPause:
    def test_paused_rows_are_neither_claimed_nor_planned(self, virtual_engine):
        """Nothing new is claimed of a paused job, due or not, and one without an instant gets none."""
        due, unplanned = due_row(virtual_engine), add_row(virtual_engine)
        sql(virtual_engine, "UPDATE cronless.scheduled_job SET paused_at = :now", now=NOW)
        assert claim(virtual_engine) is None
        assert plan(virtual_engine).planned == 0
        assert row(virtual_engine, due).next_run_at == NOW
        assert row(virtual_engine, unplanned).next_run_at is None

    @pytest.mark.parametrize("started", [False, True])
    def test_pause_while_claimed(self, virtual_engine, started):
        """What is claimed ends as it would; then the job is planned, paused, and not claimed."""
        job = due_row(virtual_engine)
        claim_id = claim(virtual_engine)
        holder = start(virtual_engine, claim_id) if started else None
        edit(virtual_engine, job, paused_at=NOW)
        holder = holder or start(virtual_engine, claim_id)
        assert holder.finish() == {job}
        after = row(virtual_engine, job)
        assert (after.status, after.next_run_at, after.paused_at) == ("PENDING", at("13:00"), NOW)
        assert claim(virtual_engine, NOW + 2 * HOUR) is None

    def test_pause_while_claimed_and_released(self, virtual_engine):
        """A paused job whose claim is released keeps its occurrence and isn't claimed again."""
        job = due_row(virtual_engine)
        claim_id = claim(virtual_engine)
        edit(virtual_engine, job, paused_at=NOW)
        release(virtual_engine, claim_id)
        assert row(virtual_engine, job).next_run_at == NOW
        assert claim(virtual_engine) is None

    def test_job_pauses_itself(self, virtual_engine):
        """So many failed occurrences in a row as pause_after says pause the job, with the reason."""
        job = due_row(virtual_engine, max_attempts=1, pause_after=2)
        serve(virtual_engine, outcome=FAILURE)
        assert row(virtual_engine, job).paused_at is None
        serve(virtual_engine, at("13:00"), FAILURE)
        after = row(virtual_engine, job)
        assert (after.paused_at, after.consecutive_failures) == (at("13:00"), 2)
        assert "2 occurrences failed in a row" in after.pause_reason


class TestResume:
    def test_paused_stretch_is_recorded_once(self, virtual_engine):
        """What fell into a pause is one history row with first, last and count, and isn't made up."""
        job = planned_row(virtual_engine)
        edit(virtual_engine, job, paused_at=NOW)
        later = set_clock(virtual_engine, at("15:30"))
        edit(virtual_engine, job, paused_at=None)
        plan(virtual_engine, later)
        [missed] = history(virtual_engine, job)
        assert (missed.outcome, missed.missed_reason, missed.missed_count) == ("missed", "paused", 3)
        assert (missed.scheduled_for, missed.missed_last) == (at("13:00"), at("15:00"))
        assert row(virtual_engine, job).next_run_at == at("16:00")
        edit(virtual_engine, job, paused_at=later)
        edit(virtual_engine, job, paused_at=None)
        plan(virtual_engine, later)
        assert len(history(virtual_engine, job)) == 1

    def test_resume_forgets_the_reason_and_the_failures(self, virtual_engine):
        """A resumed job starts its count of failures anew, and its pause has no reason any more."""
        job = planned_row(virtual_engine, consecutive_failures=4)
        edit(virtual_engine, job, paused_at=NOW, pause_reason="4 occurrences failed")
        edit(virtual_engine, job, paused_at=None)
        after = row(virtual_engine, job)
        assert (after.pause_reason, after.consecutive_failures) == (None, 0)

    def test_resume_while_running(self, virtual_engine):
        """Paused and resumed during its run, a job goes on from the finish; what passed isn't made up."""
        job = due_row(virtual_engine, schedule="*/10 * * * *")
        holder = start(virtual_engine, claim(virtual_engine))
        edit(virtual_engine, job, paused_at=NOW)
        later = set_clock(virtual_engine, at("12:35"))
        edit(virtual_engine, job, paused_at=None)
        holder.finish(now=later)
        plan(virtual_engine, later)
        assert row(virtual_engine, job).next_run_at == at("12:40")
        assert sum(one.missed_count or 0 for one in history(virtual_engine, job)) == 3

    def test_resume_during_a_manual_run(self, virtual_engine):
        """A planned instant that passed in the pause isn't served late because a manual run was going on."""
        job = planned_row(virtual_engine, schedule="*/10 * * * *")
        edit(virtual_engine, job, paused_at=NOW, trigger_requested_at=NOW)
        holder = start(virtual_engine, claim(virtual_engine, triggered=True))
        later = set_clock(virtual_engine, at("12:35"))
        edit(virtual_engine, job, paused_at=None)
        holder.finish(now=later)
        plan(virtual_engine, later)
        assert row(virtual_engine, job).next_run_at == at("12:40")
        [_, missed] = history(virtual_engine, job)
        assert (missed.missed_reason, missed.missed_count) == ("paused", 3)

    def test_resumed_retry_of_a_one_time_job_keeps_its_count(self, virtual_engine):
        """A one-time job resumed while it waited for a retry has no more tries than before."""
        job = due_row(virtual_engine, schedule="@once 2026-03-02T12:00")
        serve(virtual_engine, outcome=FAILURE)
        edit(virtual_engine, job, paused_at=NOW)
        later = set_clock(virtual_engine, NOW + HOUR)
        edit(virtual_engine, job, paused_at=None)
        plan(virtual_engine, later)
        after = row(virtual_engine, job)
        assert after.attempt == 1
        assert after.next_run_at > later


class TestTrigger:
    def test_manual_run_keeps_the_planned_one(self, virtual_engine):
        """A manual run is an occurrence of its own: the planned instant stays, whatever its outcome."""
        for outcome in (Outcome("success"), FAILURE, Outcome("canceled", error="stopped")):
            job = planned_row(virtual_engine, consecutive_failures=2)
            edit(virtual_engine, job, trigger_requested_at=NOW)
            claim_id = claim(virtual_engine, triggered=True)
            queued = row(virtual_engine, job)
            assert (queued.status, queued.next_run_at, queued.trigger_requested_at) == (
                "QUEUED",
                at("13:00"),
                None,
            )
            start(virtual_engine, claim_id).finish(outcome)
            after = row(virtual_engine, job)
            assert (after.status, after.next_run_at, after.scheduled_for) == (
                "PENDING",
                at("13:00"),
                at("13:00"),
            )
            assert (after.attempt, after.consecutive_failures) == (0, 2)
            [done] = history(virtual_engine, job)
            assert (done.manual, done.scheduled_for) == (True, NOW)

    def test_trigger_of_a_paused_job(self, virtual_engine):
        """A person's request is served although the job is paused, and it stays paused."""
        job = planned_row(virtual_engine)
        edit(virtual_engine, job, paused_at=NOW, trigger_requested_at=NOW)
        assert serve(virtual_engine, triggered=True) == {job}
        assert row(virtual_engine, job).paused_at == NOW

    @pytest.mark.parametrize("started", [False, True])
    def test_trigger_while_claimed(self, virtual_engine, started):
        """A request made while the job is QUEUED or RUNNING is served after the finish, once."""
        job = due_row(virtual_engine)
        claim_id = claim(virtual_engine)
        holder = start(virtual_engine, claim_id) if started else None
        edit(virtual_engine, job, trigger_requested_at=NOW)
        assert claim(virtual_engine, triggered=True) is None
        (holder or start(virtual_engine, claim_id)).finish()
        assert serve(virtual_engine, NOW + MINUTE, triggered=True) == {job}
        assert claim(virtual_engine, triggered=True) is None
        assert [one.manual for one in history(virtual_engine, job)] == [False, True]

    @pytest.mark.parametrize("outcome", [Outcome("success"), FAILURE])
    def test_trigger_while_the_last_occurrence_runs(self, virtual_engine, outcome):
        """A request made during the only run of a one-time job is honoured, and then the job has ended."""
        job = due_row(virtual_engine, schedule="@once 2026-03-02T12:00", max_attempts=1)
        holder = start(virtual_engine, claim(virtual_engine))
        edit(virtual_engine, job, trigger_requested_at=NOW)
        holder.finish(outcome)
        _, ran = tick(virtual_engine, NOW + MINUTE)
        assert [report.finished for report in ran] == [1]
        assert [one.manual for one in history(virtual_engine, job)] == [False, True]
        assert row(virtual_engine, job).status == "DONE"

    def test_request_survives_a_lost_claim(self, virtual_engine):
        """A manual run that never started is asked for again, and the planned one is still there."""
        job = planned_row(virtual_engine)
        edit(virtual_engine, job, trigger_requested_at=NOW)
        release(virtual_engine, claim(virtual_engine, triggered=True))
        after = row(virtual_engine, job)
        assert (after.trigger_requested_at, after.next_run_at) == (NOW, at("13:00"))
        assert serve(virtual_engine, triggered=True) == {job}

    def test_request_for_later_holds_nothing_up(self, virtual_engine):
        """A request dated ahead is served in its time; until then the job is planned as ever."""
        job = due_row(virtual_engine)
        serve(virtual_engine)
        edit(virtual_engine, job, trigger_requested_at=at("12:50"), schedule="30 * * * *")
        plan(virtual_engine)
        assert row(virtual_engine, job).next_run_at == at("12:30")
        assert claim(virtual_engine, at("12:49"), triggered=True) is None
        assert serve(virtual_engine, at("12:50"), triggered=True) == {job}

    def test_manual_run_beside_a_waiting_retry(self, virtual_engine):
        """A manual run neither uses up nor resets the tries of an occurrence that waits for its retry."""
        job = due_row(virtual_engine)
        serve(virtual_engine, outcome=FAILURE)
        retry = row(virtual_engine, job).next_run_at
        edit(virtual_engine, job, trigger_requested_at=NOW)
        holder = start(virtual_engine, claim(virtual_engine, triggered=True))
        assert holder.jobs[0].tries == 1
        holder.finish()
        after = row(virtual_engine, job)
        assert (after.attempt, after.next_run_at, after.scheduled_for) == (1, retry, NOW)

    def test_edit_during_a_manual_run(self, virtual_engine):
        """An edit during a manual run replans the instant that lies ahead."""
        job = planned_row(virtual_engine)
        edit(virtual_engine, job, trigger_requested_at=NOW)
        holder = start(virtual_engine, claim(virtual_engine, triggered=True))
        edit(virtual_engine, job, schedule="20 * * * *")
        holder.finish()
        plan(virtual_engine)
        assert row(virtual_engine, job).next_run_at == at("12:20")

    def test_claim_of_requests_is_marked(self, virtual_engine):
        """A claim made of people's requests says so, for the run's name and the limits."""
        job = planned_row(virtual_engine)
        edit(virtual_engine, job, trigger_requested_at=NOW)
        assert claim_row(virtual_engine, claim(virtual_engine, triggered=True)).manual is True


class TestRemove:
    def test_unclaimed_row_is_gone_at_once(self, virtual_engine):
        """A plain DELETE of a row that nobody holds deletes it."""
        job = planned_row(virtual_engine)
        sql(virtual_engine, "DELETE FROM cronless.scheduled_job WHERE id = :id", id=job)
        assert not exists(virtual_engine, job)

    def test_tombstone_by_update_of_an_unclaimed_row(self, virtual_engine):
        """Writing removed_at to a row that nobody holds removes it: it would never be claimed again to end."""
        job = due_row(virtual_engine)
        edit(virtual_engine, job, removed_at=NOW)
        assert not exists(virtual_engine, job)

    @pytest.mark.parametrize("started", [False, True])
    @pytest.mark.parametrize("outcome", [Outcome("success"), FAILURE])
    def test_claimed_row_is_gone_with_its_finish(self, virtual_engine, started, outcome):
        """A DELETE of a claimed row leaves a tombstone; the late finish is recorded and the row goes."""
        job = due_row(virtual_engine)
        claim_id = claim(virtual_engine)
        holder = start(virtual_engine, claim_id) if started else None
        sql(virtual_engine, "DELETE FROM cronless.scheduled_job WHERE id = :id", id=job)
        assert row(virtual_engine, job).removed_at == NOW
        (holder or start(virtual_engine, claim_id)).finish(outcome)
        assert not exists(virtual_engine, job)
        assert outcomes(virtual_engine, job) == ["success" if outcome.kind == "success" else "failure"]

    def test_claimed_row_is_gone_with_its_release(self, virtual_engine):
        """A tombstone whose claim never started goes with the release."""
        job = due_row(virtual_engine)
        claim_id = claim(virtual_engine)
        sql(virtual_engine, "DELETE FROM cronless.scheduled_job WHERE id = :id", id=job)
        release(virtual_engine, claim_id)
        assert not exists(virtual_engine, job)

    def test_tombstone_does_not_hold_the_name(self, virtual_engine):
        """While a removed job still runs, another of the same name can be added."""
        job = due_row(virtual_engine, name="weekly")
        claim(virtual_engine)
        sql(virtual_engine, "DELETE FROM cronless.scheduled_job WHERE id = :id", id=job)
        assert add_row(virtual_engine, name="weekly") != job

    def test_delete_that_waits_for_a_claim(self, virtual_engine):
        """A DELETE that waits for a claim's lock finds the row claimed and leaves a tombstone."""
        job = due_row(virtual_engine)
        with transaction(virtual_engine) as connection:
            connection.execute(
                text(
                    "UPDATE cronless.scheduled_job SET status = 'QUEUED', claim_id = gen_random_uuid(),"
                    " plan_count = plan_count + 1"
                )
            )
            deleter = threading.Thread(
                target=sql,
                args=(virtual_engine, "DELETE FROM cronless.scheduled_job WHERE id = :id"),
                kwargs={"id": job},
            )
            deleter.start()
            deleter.join(0.3)
            assert deleter.is_alive()
        deleter.join(20)
        assert row(virtual_engine, job).removed_at is not None
