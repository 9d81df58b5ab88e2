"""The three counters, and what becomes of claims whose holder is lost: release, split, a crash borne alone."""

from __future__ import annotations

from collections import Counter

from cronless_dagster.engine.reconciling import group_size
from cronless_dagster.engine.rescue import MAX_CRASHES, carry_out
from cronless_dagster.store import claims
from cronless_dagster.store.database import transaction
from tests.store.rows import (
    FAILURE,
    HOUR,
    MINUTE,
    NOW,
    claim,
    claim_row,
    due_row,
    exists,
    history,
    job_types,
    outcomes,
    row,
    serve,
    set_clock,
    sql,
    start,
)


def opened(engine, claim_id):
    """Return an open claim."""
    with transaction(engine) as connection:
        [found] = [one for one in claims.open_claims(connection) if one.id == claim_id]
    return found


def die(engine, claim_id):
    """Start a claim and let its holder die; returns what the rescue did."""
    start(engine, claim_id)
    return carry_out(engine, opened(engine, claim_id), "died", None, job_types(), NOW)


def children(engine, claim_id):
    """Return the claims that a claim was split in."""
    return sql(engine, "SELECT * FROM cronless.job_claim WHERE parent_id = :id ORDER BY id", id=claim_id)


class TestCounters:
    def test_release_changes_no_counter(self, virtual_engine):
        """Rescuing rows that never started, however often, exhausts nobody's retries and moves no plan."""
        job = due_row(virtual_engine)
        serve(virtual_engine, outcome=FAILURE)
        before = row(virtual_engine, job)
        later = set_clock(virtual_engine, NOW + HOUR)
        for _ in range(5):
            claim_id = claim(virtual_engine, later)
            assert carry_out(
                virtual_engine, opened(virtual_engine, claim_id), "release", None, job_types(), later
            )
            assert claim_row(virtual_engine, claim_id).close_reason == "released"
        after = row(virtual_engine, job)
        kept = (
            "status",
            "attempt",
            "crashes",
            "consecutive_failures",
            "next_run_at",
            "scheduled_for",
            "plan_version",
        )
        assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
        assert outcomes(virtual_engine, job) == ["failure"]

    def test_handing_over_again_counts_dispatches_only(self, virtual_engine):
        """A claim without a run is handed over under a new run key; its rows are not touched."""
        job = due_row(virtual_engine)
        claim_id = claim(virtual_engine)
        before = row(virtual_engine, job)
        assert (
            carry_out(virtual_engine, opened(virtual_engine, claim_id), "again", None, job_types(), NOW)
            == "again"
        )
        assert (
            claim_row(virtual_engine, claim_id).dispatches,
            claim_row(virtual_engine, claim_id).state,
        ) == (1, "CLAIMED")
        assert row(virtual_engine, job) == before

    def test_attempt_rises_with_tries_and_falls_with_success(self, virtual_engine):
        """Tries of one occurrence are counted until it succeeds or is exhausted, and then from none."""
        job = due_row(virtual_engine, max_attempts=2, schedule="@daily")
        serve(virtual_engine, outcome=FAILURE)
        assert row(virtual_engine, job).attempt == 1
        serve(virtual_engine, NOW + 10 * MINUTE, FAILURE)
        after = row(virtual_engine, job)
        assert (after.attempt, after.consecutive_failures, after.last_outcome) == (0, 1, "exhausted")
        assert [one.attempt for one in history(virtual_engine, job)] == [1, 2]

    def test_success_forgets_crashes_and_failures(self, virtual_engine):
        """A success sets the crashes and the failures in a row back."""
        job = due_row(virtual_engine, crashes=2, consecutive_failures=7)
        serve(virtual_engine)
        after = row(virtual_engine, job)
        assert (after.crashes, after.consecutive_failures) == (0, 0)


class TestSplit:
    def test_dead_claim_is_cut_in_tenths_then_singly(self, virtual_engine):
        """The rows of a dead claim are claimed in groups of a tenth, then one by one, each row exactly once."""
        jobs = {due_row(virtual_engine) for _ in range(25)}
        first = claim(virtual_engine)
        assert die(virtual_engine, first) == "split"
        groups = children(virtual_engine, first)
        assert Counter(one.job_count for one in groups) == {3: 8, 1: 1}
        assert all((one.state, one.dispatches, one.route) == ("CLAIMED", 0, "run") for one in groups)
        held = sql(virtual_engine, "SELECT id, claim_id FROM cronless.scheduled_job WHERE status = 'QUEUED'")
        assert {one.id for one in held} == jobs
        assert Counter(one.claim_id for one in held) == {one.id: one.job_count for one in groups}
        group = next(one for one in groups if one.job_count == 3)
        assert die(virtual_engine, group.id) == "split"
        assert [one.job_count for one in children(virtual_engine, group.id)] == [1, 1, 1]
        assert row(virtual_engine, next(iter(jobs))).attempt == 0

    def test_finished_rows_stay_finished(self, virtual_engine):
        """Only what the dead holder had not finished is claimed again."""
        for _ in range(4):
            due_row(virtual_engine)
        claim_id = claim(virtual_engine)
        holder = start(virtual_engine, claim_id)
        done = holder.finish(jobs=holder.jobs[:3])
        assert (
            carry_out(virtual_engine, opened(virtual_engine, claim_id), "died", None, job_types(), NOW)
            == "split"
        )
        [child] = children(virtual_engine, claim_id)
        assert child.job_count == 1
        [left] = sql(virtual_engine, "SELECT id FROM cronless.scheduled_job WHERE status = 'QUEUED'")
        assert left.id not in done

    def test_child_keeps_the_occurrence_and_the_owner(self, virtual_engine):
        """A split moves neither the instant that a row serves nor the shard that hands it over."""
        job, _ = due_row(virtual_engine), due_row(virtual_engine)
        claim_id = claim(virtual_engine)
        before = row(virtual_engine, job)
        die(virtual_engine, claim_id)
        after = row(virtual_engine, job)
        assert (after.serving_at, after.due_at, after.attempt) == (before.serving_at, before.due_at, 0)
        assert {one.id_low for one in children(virtual_engine, claim_id)} == {
            claim_row(virtual_engine, claim_id).id_low
        }

    def test_group_size(self):
        """Groups are tenths, rounded up, and at the end single jobs."""
        assert [group_size(rows) for rows in (1, 2, 10, 11, 999, 100_000)] == [1, 1, 1, 2, 100, 10_000]

    def test_renewed_claim_is_left_alone(self, virtual_engine):
        """A holder that renewed its lease after the tick had read it is alive and keeps its claim."""
        due_row(virtual_engine)
        claim_id = claim(virtual_engine)
        holder = start(virtual_engine, claim_id)
        seen = opened(virtual_engine, claim_id)
        with transaction(virtual_engine) as connection:
            claims.hold_claim(connection, claim_id, holder.execution_id, NOW + MINUTE)
        assert carry_out(virtual_engine, seen, "died", None, job_types(), NOW) is None
        assert claim_row(virtual_engine, claim_id).state == "RUNNING"

    def test_two_rescues_at_once(self, virtual_engine):
        """A claim that another dispatcher is rescuing is neither waited for nor split twice."""
        due_row(virtual_engine)
        claim_id = claim(virtual_engine)
        start(virtual_engine, claim_id)
        seen = opened(virtual_engine, claim_id)
        with transaction(virtual_engine) as connection:
            assert claims.lock_claim(connection, claim_id) is not None
            assert carry_out(virtual_engine, seen, "died", None, job_types(), NOW) is None
        assert carry_out(virtual_engine, seen, "died", None, job_types(), NOW) == "crashed"
        assert carry_out(virtual_engine, seen, "died", None, job_types(), NOW) is None


class TestCrashAlone:
    def test_third_crash_alone_makes_it_invalid(self, virtual_engine):
        """Only a job that died alone bears the crash; after three it is INVALID, with the reason."""
        job, neighbour = due_row(virtual_engine), due_row(virtual_engine)
        claim_id = claim(virtual_engine)
        die(virtual_engine, claim_id)
        assert [row(virtual_engine, one).crashes for one in (job, neighbour)] == [0, 0]
        for crash in range(1, MAX_CRASHES + 1):
            alone = row(virtual_engine, job).claim_id
            assert die(virtual_engine, alone) == "crashed"
            assert row(virtual_engine, job).crashes == crash
        after = row(virtual_engine, job)
        assert (after.status, after.claim_id) == ("INVALID", None)
        assert after.invalid_reason.startswith("kills its worker: 3 holders died")
        assert outcomes(virtual_engine, job) == ["crashed"] * 3
        assert row(virtual_engine, neighbour).status == "QUEUED"
        assert sql(virtual_engine, "SELECT 1 FROM cronless.job_claim WHERE parent_id = :id", id=alone) == []

    def test_last_of_a_batch_bears_nothing(self, virtual_engine):
        """The only unfinished job of a larger claim may have been doing nothing yet: it is claimed alone first."""
        for _ in range(3):
            due_row(virtual_engine)
        claim_id = claim(virtual_engine)
        holder = start(virtual_engine, claim_id)
        holder.finish(jobs=holder.jobs[:2])
        carry_out(virtual_engine, opened(virtual_engine, claim_id), "died", None, job_types(), NOW)
        assert row(virtual_engine, holder.jobs[2].id).crashes == 0

    def test_claim_without_rows_is_closed(self, virtual_engine):
        """A holder that died after its last finish leaves a claim that is done."""
        due_row(virtual_engine)
        claim_id = claim(virtual_engine)
        start(virtual_engine, claim_id).finish()
        assert (
            carry_out(virtual_engine, opened(virtual_engine, claim_id), "died", None, job_types(), NOW)
            == "closed"
        )
        assert claim_row(virtual_engine, claim_id).close_reason == "done"

    def test_crash_of_a_manual_run_uses_up_no_planned_try(self, virtual_engine):
        """A manual run that killed its holder counts a crash, and no try of the planned occurrence."""
        job = due_row(virtual_engine, NOW + HOUR, trigger_requested_at=NOW)
        claim_id = claim(virtual_engine, triggered=True)
        die(virtual_engine, claim_id)
        assert (row(virtual_engine, job).crashes, row(virtual_engine, job).attempt) == (1, 0)

    def test_removed_job_that_kills_its_worker_is_gone(self, virtual_engine):
        """A tombstone goes when its job is given up."""
        job = due_row(virtual_engine, crashes=MAX_CRASHES - 1)
        claim_id = claim(virtual_engine)
        sql(virtual_engine, "DELETE FROM cronless.scheduled_job")
        die(virtual_engine, claim_id)
        assert not exists(virtual_engine, job)
        assert outcomes(virtual_engine, job) == ["crashed"]


class TestStartedOneByOne:
    def test_living_holder_keeps_its_job(self, virtual_engine):
        """A claim with a job that somebody started by itself ends only after that job's lease."""
        first, second = due_row(virtual_engine), due_row(virtual_engine)
        claim_id = claim(virtual_engine)
        sql(
            virtual_engine,
            "SELECT * FROM cronless.cronless_start(:job, :token, gen_random_uuid(), 60)",
            job=first,
            token=claim_id,
        )
        assert die(virtual_engine, claim_id) is None
        assert row(virtual_engine, first).status == "RUNNING"
        later = set_clock(virtual_engine, NOW + HOUR)
        dead = opened(virtual_engine, claim_id)
        assert carry_out(virtual_engine, dead, "died", None, job_types(), later) == "split"
        assert {row(virtual_engine, job).status for job in (first, second)} == {"QUEUED"}
        assert row(virtual_engine, first).execution_id is None


class TestCancel:
    def test_rows_of_a_canceled_run_end_as_canceled(self, virtual_engine):
        """A run canceled by a person ends its unfinished occurrences without counting a failure."""
        job = due_row(virtual_engine, consecutive_failures=2)
        claim_id = claim(virtual_engine)
        start(virtual_engine, claim_id)
        assert (
            carry_out(virtual_engine, opened(virtual_engine, claim_id), "cancel", "r", job_types(), NOW)
            == "canceled"
        )
        after = row(virtual_engine, job)
        assert (after.status, after.consecutive_failures, after.attempt) == ("PENDING", 2, 0)
        assert after.next_run_at == NOW + HOUR
        assert outcomes(virtual_engine, job) == ["canceled"]
