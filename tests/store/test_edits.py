"""What an edit does to the plan: section by section of the state that the row is in."""

from __future__ import annotations

import functools
import threading
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from cronless_dagster.engine import running
from cronless_dagster.scheduling.models import Outcome
from cronless_dagster.scheduling.shards import FULL
from cronless_dagster.store import claims
from cronless_dagster.store.database import transaction
from cronless_dagster.store.planning import take_unplanned, write_plans
from tests.store.rows import (
    DAY,
    FAILURE,
    HOUR,
    MINUTE,
    NOW,
    SUCCESS,
    add_row,
    at,
    claim,
    due_row,
    edit,
    history,
    job_types,
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

PLANNING_EDITS = {
    "schedule": "30 * * * *",
    "timezone": "Asia/Kathmandu",
    "dst_policy": "wall",
    "starts_at": NOW - DAY,
    "ends_at": NOW + DAY,
    "jitter_seconds": 60,
}


class TestPending:
    @pytest.mark.parametrize("column", PLANNING_EDITS)
    def test_instant_ahead_is_planned_anew(self, virtual_engine, column):
        """An edit of any planning column clears an instant that lies ahead and raises plan_version."""
        job = planned_row(virtual_engine)
        before = row(virtual_engine, job)
        edit(virtual_engine, job, **{column: PLANNING_EDITS[column]})
        after = row(virtual_engine, job)
        assert (after.next_run_at, after.scheduled_for) == (None, None)
        assert after.plan_version == before.plan_version + 1
        assert (after.status, after.updated_at) == ("PENDING", NOW)

    @pytest.mark.parametrize(
        ("column", "value"),
        [("name", "other"), ("payload", '{"a": 1}'), ("misfire_policy", "skip"), ("max_attempts", 9)],
    )
    def test_other_columns_keep_the_plan(self, virtual_engine, column, value):
        """An edit of what no instant depends on leaves the plan and its version alone."""
        job = planned_row(virtual_engine)
        before = row(virtual_engine, job)
        edit(virtual_engine, job, **{column: value})
        after = row(virtual_engine, job)
        assert (after.next_run_at, after.plan_version) == (before.next_run_at, before.plan_version)

    def test_writing_the_same_value_is_no_edit(self, virtual_engine):
        """An UPDATE that changes nothing, as an ORM may send it, moves no plan."""
        job = planned_row(virtual_engine)
        edit(virtual_engine, job, schedule="0 * * * *", timezone="UTC")
        assert row(virtual_engine, job).next_run_at == at("13:00")

    def test_due_row_stays_due(self, virtual_engine):
        """An edit never drops what is due: it is still claimed, for the occurrence that it was due for."""
        job = due_row(virtual_engine)
        edit(virtual_engine, job, schedule="0 3 1 1 *")
        assert row(virtual_engine, job).next_run_at == NOW
        [served] = start(virtual_engine, claim(virtual_engine)).jobs
        assert (served.id, served.scheduled_for) == (job, NOW)

    def test_nothing_fires_early(self, virtual_engine):
        """An edit never fires anything: the new plan lies strictly ahead of the tick that makes it."""
        job = planned_row(virtual_engine)
        edit(virtual_engine, job, schedule="* * * * *")
        assert claim(virtual_engine) is None
        plan(virtual_engine)
        assert row(virtual_engine, job).next_run_at == NOW + MINUTE
        assert claim(virtual_engine) is None

    def test_all_rows_in_one_statement(self, virtual_engine):
        """One UPDATE of all rows, in different states, treats each by its own state."""
        ahead, waiting = planned_row(virtual_engine), planned_row(virtual_engine, schedule="@daily")
        claimed = due_row(virtual_engine, NOW - HOUR)
        held = start(virtual_engine, claim(virtual_engine, most=1))
        due = due_row(virtual_engine, NOW - MINUTE)
        sql(virtual_engine, "UPDATE cronless.scheduled_job SET timezone = 'Europe/Paris'")
        assert {row(virtual_engine, one).next_run_at for one in (ahead, waiting)} == {None}
        assert row(virtual_engine, due).next_run_at == NOW - MINUTE
        assert held.finish() == {claimed}
        assert row(virtual_engine, claimed).next_run_at is None
        plan(virtual_engine)
        assert row(virtual_engine, waiting).next_run_at == at("23:00")

    def test_direct_write_wins(self, virtual_engine):
        """A direct UPDATE of next_run_at is the plan: it is its own nominal instant and no zone data moves it."""
        job = planned_row(virtual_engine)
        edit(virtual_engine, job, next_run_at=at("12:34"), schedule="@daily")
        after = row(virtual_engine, job)
        assert (after.next_run_at, after.scheduled_for, after.tzdata_version) == (
            at("12:34"),
            at("12:34"),
            None,
        )
        assert plan(virtual_engine).planned == 0

    def test_clearing_the_instant_asks_for_a_plan(self, virtual_engine):
        """Writing NULL to next_run_at sends the row to the planner."""
        job = planned_row(virtual_engine)
        edit(virtual_engine, job, next_run_at=None)
        assert plan(virtual_engine).planned == 1
        assert row(virtual_engine, job).next_run_at == at("13:00")

    def test_instant_that_a_handler_chose_survives(self, virtual_engine):
        """An edit of a handler-driven job keeps the instant that its handler chose; it doesn't fire at once."""
        job = due_row(virtual_engine, schedule="@handler fallback=24h")
        serve(virtual_engine, outcome=Outcome("success", next_at=NOW + 5 * HOUR))
        edit(virtual_engine, job, jitter_seconds=30, schedule="@handler fallback=48h")
        plan(virtual_engine)
        assert row(virtual_engine, job).scheduled_for == NOW + 5 * HOUR
        assert claim(virtual_engine, NOW + HOUR) is None


class TestWaitingForRetry:
    def test_retry_is_not_dropped_in_silence(self, virtual_engine):
        """An edit gives up the retry of a cron job for its next occurrence, and the history says so."""
        job = due_row(virtual_engine)
        serve(virtual_engine, outcome=FAILURE)
        assert row(virtual_engine, job).attempt == 1
        edit(virtual_engine, job, schedule="30 * * * *")
        plan(virtual_engine)
        after = row(virtual_engine, job)
        assert (after.next_run_at, after.attempt) == (at("12:30"), 0)
        [_, missed] = history(virtual_engine, job)
        assert (missed.outcome, missed.missed_reason, missed.scheduled_for) == ("missed", "superseded", NOW)

    def test_due_retry_stays(self, virtual_engine):
        """A retry whose turn has come is due, and an edit keeps it with its count."""
        job = due_row(virtual_engine)
        serve(virtual_engine, outcome=FAILURE)
        later = set_clock(virtual_engine, NOW + 10 * MINUTE)
        edit(virtual_engine, job, schedule="@daily")
        [served] = start(virtual_engine, claim(virtual_engine, later), later).jobs
        assert (served.scheduled_for, served.tries) == (NOW, 2)

    def test_retry_of_a_one_time_job_keeps_its_count(self, virtual_engine):
        """An edit of a one-time job that waits for a retry gives it no further tries."""
        job = due_row(virtual_engine, schedule="@once 2026-03-02T12:00")
        serve(virtual_engine, outcome=FAILURE)
        edit(virtual_engine, job, ends_at=NOW + DAY)
        plan(virtual_engine)
        after = row(virtual_engine, job)
        assert (after.attempt, after.scheduled_for) == (1, NOW)
        assert after.next_run_at > NOW


class TestClaimed:
    @pytest.mark.parametrize("started", [False, True])
    def test_finish_leaves_planning_to_the_edit(self, virtual_engine, started):
        """A job edited while QUEUED or RUNNING ends as claimed, and its next occurrence is the new schedule's."""
        job = due_row(virtual_engine)
        claim_id = claim(virtual_engine)
        if not started:
            edit(virtual_engine, job, schedule="45 * * * *")
        holder = start(virtual_engine, claim_id)
        if started:
            edit(virtual_engine, job, schedule="45 * * * *")
        assert row(virtual_engine, job).claim_id == claim_id
        assert holder.finish() == {job}
        assert outcomes(virtual_engine, job) == ["success"]
        plan(virtual_engine)
        assert row(virtual_engine, job).next_run_at == at("12:45")

    def test_finish_that_planned_before_the_edit_does_not_overwrite(self, virtual_engine):
        """A plan made from the row as it was before an edit is not written over what the edit left."""
        job = due_row(virtual_engine)
        holder = start(virtual_engine, claim(virtual_engine))
        edit(virtual_engine, job, schedule="45 * * * *")
        holder.finish()
        assert row(virtual_engine, job).next_run_at is None

    def test_direct_write_wins_over_the_finish(self, virtual_engine):
        """An instant written while the job runs is its next one, with no zone data version of the planner's."""
        job = due_row(virtual_engine)
        holder = start(virtual_engine, claim(virtual_engine))
        edit(virtual_engine, job, next_run_at=at("12:07"))
        holder.finish(FAILURE)
        after = row(virtual_engine, job)
        assert (after.next_run_at, after.scheduled_for, after.attempt) == (at("12:07"), at("12:07"), 0)
        assert after.tzdata_version is None

    def test_direct_write_wins_over_the_release(self, virtual_engine):
        """An instant written while the job is QUEUED stays when its claim is released."""
        job = due_row(virtual_engine)
        claim_id = claim(virtual_engine)
        edit(virtual_engine, job, next_run_at=at("12:07"))
        with transaction(virtual_engine) as connection:
            claims.release_rows(connection, claim_id)
        after = row(virtual_engine, job)
        assert (after.status, after.next_run_at, after.scheduled_for) == ("PENDING", at("12:07"), at("12:07"))

    def test_release_after_an_edit_keeps_the_claimed_occurrence(self, virtual_engine):
        """An edit of a QUEUED row never drops the occurrence that was claimed: released, it is due again."""
        job = due_row(virtual_engine)
        claim_id = claim(virtual_engine)
        edit(virtual_engine, job, schedule="@daily")
        with transaction(virtual_engine) as connection:
            claims.release_rows(connection, claim_id)
        after = row(virtual_engine, job)
        assert (after.next_run_at, after.scheduled_for) == (NOW, NOW)

    def test_failure_after_an_edit_is_not_silent(self, virtual_engine):
        """A retry that an edit during the run supersedes is in the history as missed."""
        job = due_row(virtual_engine)
        holder = start(virtual_engine, claim(virtual_engine))
        edit(virtual_engine, job, schedule="45 * * * *")
        holder.finish(FAILURE)
        plan(virtual_engine)
        assert sorted(outcomes(virtual_engine, job)) == ["failure", "missed"]
        assert row(virtual_engine, job).next_run_at == at("12:45")

    def test_one_time_job_edited_while_it_runs_is_not_served_again(self, virtual_engine):
        """A one-time job that succeeded is DONE, whatever was edited meanwhile, unless its instant moved."""
        job = due_row(virtual_engine, schedule="@once 2026-03-02T12:00")
        holder = start(virtual_engine, claim(virtual_engine))
        edit(virtual_engine, job, jitter_seconds=5)
        holder.finish()
        plan(virtual_engine)
        after = row(virtual_engine, job)
        assert (after.status, after.next_run_at) == ("DONE", None)
        edit(virtual_engine, job, schedule="@once 2026-03-02T15:00")
        plan(virtual_engine)
        assert row(virtual_engine, job).scheduled_for == at("15:00")

    def test_word_of_a_handler_survives_an_edit_during_its_run(self, virtual_engine):
        """What a handler answers is kept although the row was edited while it ran."""
        job = due_row(virtual_engine, schedule="@handler fallback=24h")
        holder = start(virtual_engine, claim(virtual_engine))
        edit(virtual_engine, job, jitter_seconds=1)
        holder.finish(Outcome("success", next_at=NOW + 5 * HOUR))
        plan(virtual_engine)
        assert row(virtual_engine, job).scheduled_for == NOW + 5 * HOUR

    def test_overrun_before_an_edit_is_recorded(self, virtual_engine):
        """Occurrences that passed while an edited job ran are in the history, each once."""
        job = due_row(virtual_engine, schedule="*/10 * * * *")
        holder = start(virtual_engine, claim(virtual_engine))
        edit(virtual_engine, job, jitter_seconds=1)
        later = at("12:35")
        holder.finish(now=later)
        plan(virtual_engine, later)
        missed = [one for one in history(virtual_engine, job) if one.outcome == "missed"]
        assert sum(one.missed_count for one in missed) == 3
        assert row(virtual_engine, job).scheduled_for == at("12:40")

    @pytest.mark.parametrize("column", ["tenant_id", "job_type"])
    def test_tenant_and_type_stand_while_claimed(self, virtual_engine, column):
        """The tenant and the type of a claimed row can't change; afterwards they can."""
        job = due_row(virtual_engine)
        holder = start(virtual_engine, claim(virtual_engine))
        with pytest.raises(OperationalError, match="is claimed"):
            edit(virtual_engine, job, **{column: "other"})
        holder.finish()
        edit(virtual_engine, job, **{column: "other"})
        assert getattr(row(virtual_engine, job), column) == "other"

    def test_failures_are_counted_from_the_row(self, virtual_engine):
        """A resume during the run starts the count of failures anew, and the finish adds to it."""
        job = due_row(virtual_engine, consecutive_failures=4, max_attempts=1, paused_at=None)
        holder = start(virtual_engine, claim(virtual_engine))
        edit(virtual_engine, job, paused_at=NOW)
        edit(virtual_engine, job, paused_at=None)
        holder.finish(FAILURE)
        assert row(virtual_engine, job).consecutive_failures == 1


class TestEnded:
    def test_done_returns_by_an_edit(self, virtual_engine):
        """A job that its end made DONE goes on when the end is moved."""
        job = due_row(virtual_engine, ends_at=NOW)
        serve(virtual_engine)
        assert row(virtual_engine, job).status == "DONE"
        edit(virtual_engine, job, ends_at=None)
        plan(virtual_engine)
        after = row(virtual_engine, job)
        assert (after.status, after.next_run_at) == ("PENDING", at("13:00"))
        assert outcomes(virtual_engine, job) == ["success"]

    def test_done_one_time_job_is_not_fired_by_an_edit(self, virtual_engine):
        """An edit of a one-time job that was served fires nothing, as long as its instant stays."""
        job = due_row(virtual_engine, schedule="@once 2026-03-02T12:00")
        serve(virtual_engine)
        edit(virtual_engine, job, jitter_seconds=10, timezone="Africa/Abidjan")
        plan(virtual_engine)
        assert row(virtual_engine, job).status == "DONE"

    @pytest.mark.parametrize("outcome", [SUCCESS, FAILURE])
    @pytest.mark.parametrize(
        "change", [{"timezone": "Europe/Paris"}, {"jitter_seconds": 30}, {"timezone": "Asia/Tokyo"}]
    )
    def test_ended_one_time_job_is_not_fired_by_an_edit_of_its_zone(self, virtual_engine, outcome, change):
        """Weeks later, another zone or jitter moves the instant of a one-time job, and runs nothing again."""
        job = due_row(virtual_engine, schedule="@once 2026-03-02T12:00", max_attempts=1)
        serve(virtual_engine, outcome=outcome)
        ended = row(virtual_engine, job).status
        edit(virtual_engine, job, **change)
        plan(virtual_engine, NOW + 40 * DAY)
        after = row(virtual_engine, job)
        assert (after.status, after.next_run_at) == (ended, None)

    def test_one_time_job_given_an_instant_just_past_runs(self, virtual_engine):
        """A new instant that passed while the edit waited for its tick is served, late."""
        job = due_row(virtual_engine, schedule="@once 2026-03-02T12:00")
        serve(virtual_engine)
        edit(virtual_engine, job, schedule="@once 2026-03-02T15:00")
        plan(virtual_engine, at("15:01"))
        after = row(virtual_engine, job)
        assert (after.status, after.next_run_at) == ("PENDING", at("15:00"))

    def test_failed_returns_by_an_edit(self, virtual_engine):
        """A one-time job that FAILED runs at the new instant that it is given, with all its tries."""
        job = due_row(virtual_engine, schedule="@once 2026-03-02T12:00", max_attempts=1)
        serve(virtual_engine, outcome=FAILURE)
        assert row(virtual_engine, job).status == "FAILED"
        edit(virtual_engine, job, schedule="@once 2026-03-02T14:00")
        plan(virtual_engine)
        after = row(virtual_engine, job)
        assert (after.status, after.next_run_at, after.attempt) == ("PENDING", at("14:00"), 0)

    @pytest.mark.parametrize(
        ("column", "bad", "good"),
        [
            ("schedule", "nonsense", "0 * * * *"),
            ("timezone", "Mars/Olympus", "UTC"),
            ("dst_policy", "maybe", "wall"),
        ],
    )
    def test_invalid_returns_by_an_edit(self, virtual_engine, column, bad, good):
        """What made a row INVALID says so in its reason, and mending it brings the row back."""
        job = add_row(virtual_engine, **{column: bad})
        healthy = add_row(virtual_engine)
        report = plan(virtual_engine)
        assert (report.planned, report.invalid) == (1, 1)
        assert row(virtual_engine, healthy).next_run_at == at("13:00")
        after = row(virtual_engine, job)
        assert after.status == "INVALID"
        assert bad in after.invalid_reason
        edit(virtual_engine, job, **{column: good})
        plan(virtual_engine)
        after = row(virtual_engine, job)
        assert (after.status, after.next_run_at, after.invalid_reason) == ("PENDING", at("13:00"), None)

    def test_payload_brings_invalid_back(self, virtual_engine):
        """A row that is INVALID for its payload, or kills its worker, returns with another payload."""
        job = add_row(virtual_engine, status="INVALID", crashes=3, invalid_reason="kills its worker")
        edit(virtual_engine, job, payload='{"size": 1}')
        after = row(virtual_engine, job)
        assert (after.status, after.crashes, after.invalid_reason) == ("PENDING", 0, None)

    def test_payload_alone_does_not_bring_done_back(self, virtual_engine):
        """Another payload is no reason for a job that has ended to go on."""
        job = add_row(virtual_engine, status="DONE")
        edit(virtual_engine, job, payload='{"size": 1}')
        assert row(virtual_engine, job).status == "DONE"

    @pytest.mark.parametrize("status", ["DONE", "FAILED", "INVALID"])
    def test_direct_write_brings_it_back(self, virtual_engine, status):
        """An instant written to a job that has ended is served."""
        job = add_row(virtual_engine, status=status)
        edit(virtual_engine, job, next_run_at=NOW)
        assert serve(virtual_engine) == {job}

    def test_what_an_invalid_row_missed_is_recorded(self, virtual_engine):
        """Occurrences that passed while a row was INVALID are one stretch of its history once it is mended."""
        job = due_row(virtual_engine, NOW - 3 * HOUR)
        edit(virtual_engine, job, timezone="Mars/Olympus")
        tick(virtual_engine)
        assert row(virtual_engine, job).status == "INVALID"
        edit(virtual_engine, job, timezone="UTC")
        plan(virtual_engine)
        [missed] = history(virtual_engine, job)
        assert (missed.missed_count, missed.scheduled_for, missed.missed_last) == (4, at("09:00"), NOW)


class TestRaces:
    def test_planner_never_overwrites_a_racing_edit(self, virtual_engine):
        """An edit that waits for the planner's lock sees the plan and clears it again."""
        job = add_row(virtual_engine)
        done = threading.Event()

        def change() -> None:
            edit(virtual_engine, job, schedule="20 * * * *")
            done.set()

        with transaction(virtual_engine) as connection:
            [locked] = take_unplanned(connection, FULL, 10)
            editor = threading.Thread(target=change)
            editor.start()
            assert not done.wait(0.3)
            from cronless_dagster.scheduling.models import Plan

            write_plans(
                connection,
                [(locked.id, Plan(status="PENDING", next_run_at=at("13:00"), scheduled_for=at("13:00")))],
            )
        editor.join(20)
        assert row(virtual_engine, job).next_run_at is None
        plan(virtual_engine)
        assert row(virtual_engine, job).next_run_at == at("12:20")

    def test_planner_passes_over_a_row_being_edited(self, virtual_engine):
        """A row under an uncommitted edit is left for the next tick, and the planner doesn't wait."""
        job = add_row(virtual_engine)
        other = add_row(virtual_engine)
        with virtual_engine.begin() as connection:
            connection.execute(
                text("UPDATE cronless.scheduled_job SET schedule = '20 * * * *' WHERE id = :id"), {"id": job}
            )
            assert plan(virtual_engine).planned == 1
        assert row(virtual_engine, other).next_run_at == at("13:00")
        plan(virtual_engine)
        assert row(virtual_engine, job).next_run_at == at("12:20")

    def test_claim_passes_over_a_row_being_edited(self, virtual_engine):
        """A due row under an uncommitted edit is not waited for, and is claimed afterwards."""
        job = due_row(virtual_engine)
        with virtual_engine.begin() as connection:
            connection.execute(
                text("UPDATE cronless.scheduled_job SET next_run_at = :at WHERE id = :id"),
                {"id": job, "at": NOW - HOUR},
            )
            assert claim(virtual_engine) is None
        [served] = start(virtual_engine, claim(virtual_engine)).jobs
        assert served.scheduled_for == NOW - HOUR

    def test_finish_outlasts_a_long_edit(self, virtual_engine, monkeypatch):
        """A run whose rows are locked by somebody's long transaction waits, and loses no result."""
        impatient = functools.partial(transaction, lock_timeout_ms=50)
        monkeypatch.setattr(running, "transaction", impatient)
        job = due_row(virtual_engine)
        claim_id = claim(virtual_engine)
        ran, reports = [], []
        types = job_types(handler=lambda it: ran.append(it.id))
        with virtual_engine.begin() as connection:
            connection.execute(text("UPDATE cronless.scheduled_job SET name = 'edited'"))
            runner = threading.Thread(
                target=lambda: reports.append(
                    running.run_claim(virtual_engine, types, claim_id, execution_id=uuid4(), now=NOW)
                )
            )
            runner.start()
            runner.join(1)
            assert runner.is_alive()
        runner.join(60)
        assert (ran, reports[0].succeeded) == ([job], 1)

    def test_what_became_due_during_the_transaction_is_due(self, engine):
        """An edit in a transaction that began before the row was due doesn't drop what is due by now."""
        due = datetime.now(UTC) + timedelta(seconds=0.5)
        job = due_row(engine, due)
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_sleep(0.7)"))
            connection.execute(text("UPDATE cronless.scheduled_job SET schedule = '@daily'"))
        assert row(engine, job).next_run_at == due

    def test_finish_sees_an_edit_that_commits_while_it_waits(self, virtual_engine):
        """A finish that waits for an editor's lock judges the row as the edit left it."""
        job = due_row(virtual_engine)
        holder = start(virtual_engine, claim(virtual_engine))
        with virtual_engine.begin() as connection:
            connection.execute(
                text("UPDATE cronless.scheduled_job SET schedule = '20 * * * *' WHERE id = :id"), {"id": job}
            )
            finisher = threading.Thread(target=holder.finish)
            finisher.start()
            finisher.join(0.3)
            assert finisher.is_alive()
        finisher.join(20)
        after = row(virtual_engine, job)
        assert (after.status, after.next_run_at) == ("PENDING", None)
