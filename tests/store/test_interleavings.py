"""A few rows under a random interleaving of everything that can happen to them."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from sqlalchemy import text

from cronless_dagster.engine.planning import finish_reported
from cronless_dagster.engine.queue_rescue import carry_out_queued, rescue_lapsed
from cronless_dagster.engine.report import TickReport
from cronless_dagster.engine.rescue import carry_out
from cronless_dagster.scheduling.models import Outcome, RetryPolicy
from cronless_dagster.scheduling.planner import plan_next
from cronless_dagster.scheduling.shards import FULL
from cronless_dagster.store import claims, executions
from cronless_dagster.store.database import transaction
from cronless_dagster.store.errors import ClaimLost
from cronless_dagster.store.executions import Start
from cronless_dagster.store.history import ensure_partitions
from cronless_dagster.store.results import Result
from tests.store.rows import (
    FAILURE,
    MINUTE,
    NOW,
    SUCCESS,
    add_row,
    claim,
    edit,
    job_types,
    plan,
    set_clock,
    sql,
    start,
)

ROWS = [UUID(int=n << 124) for n in (1, 2, 3)]
SCHEDULES = [
    "*/5 * * * *",
    "0 * * * *",
    "@every 7m",
    "@once 2026-03-02T12:10",
    "@handler fallback=20m",
    "nonsense",
]
OUTCOMES = [
    SUCCESS,
    FAILURE,
    Outcome("failure", error="never", retry=False),
    Outcome("canceled", error="stopped"),
]
EDITS = st.one_of(
    st.sampled_from(SCHEDULES).map(lambda text_: {"schedule": text_}),
    st.sampled_from(["UTC", "Asia/Kathmandu", "Mars/Olympus"]).map(lambda zone: {"timezone": zone}),
    st.sampled_from([0, 90]).map(lambda seconds: {"jitter_seconds": seconds}),
    st.sampled_from([None, NOW + 30 * MINUTE]).map(lambda end: {"ends_at": end}),
    st.sampled_from([None, NOW - MINUTE, NOW + 15 * MINUTE]).map(lambda at: {"next_run_at": at}),
    st.sampled_from(["latest", "skip", "all"]).map(lambda policy: {"misfire_policy": policy}),
    st.just({"payload": "{}"}),
)


class Rows(RuleBasedStateMachine):
    """The rows of the database `engine`, which each example empties."""

    engine = None

    @initialize(schedules=st.tuples(*[st.sampled_from(SCHEDULES[:5])] * 3))
    def fill(self, schedules):
        """Begin with three jobs and nobody at work."""
        engine = self.engine
        self.now, self.holders, self.workers, self.started = NOW, [], [], []
        # Where people write instants, or a handler begins "now", an instant may rightly come twice.
        self.loose = {
            id_ for id_, schedule in zip(ROWS, schedules, strict=True) if schedule.startswith("@handler")
        }
        with engine.begin() as connection:
            connection.execute(text("TRUNCATE cronless.scheduled_job, cronless.job_claim"))
            connection.execute(text("DELETE FROM cronless.job_execution"))
            ensure_partitions(connection, NOW, ahead=2)
        set_clock(engine, NOW)
        for id_, schedule in zip(ROWS, schedules, strict=True):
            add_row(engine, id=id_, schedule=schedule, name=str(id_), max_attempts=2, pause_after=3)

    @rule(minutes=st.integers(1, 25))
    def pass_time(self, minutes):
        """Let the clock go on."""
        self.now = set_clock(self.engine, self.now + timedelta(minutes=minutes))

    @rule()
    def plan(self):
        """Do the planning steps of a tick."""
        finish_reported(self.engine, TickReport(now=self.now), job_types(), FULL, self.now, lambda: True)
        plan(self.engine, self.now)

    @rule(most=st.integers(1, 3), triggered=st.booleans(), route=st.sampled_from(["run", "queue"]))
    def claim(self, most, triggered, route):
        """Claim what is due, for a run that starts at once or for workers."""
        claim_id = claim(self.engine, self.now, most=most, triggered=triggered, route=route)
        if claim_id is not None and route == "run":
            self.holders.append(start(self.engine, claim_id, self.now))
        elif claim_id is not None:
            rows = sql(self.engine, "SELECT id FROM cronless.scheduled_job WHERE claim_id = :id", id=claim_id)
            self.workers += [(row.id, claim_id, uuid4()) for row in rows]

    @rule(outcome=st.sampled_from(OUTCOMES), which=st.integers(0, 9), part=st.booleans())
    def finish(self, outcome, which, part):
        """Let a run finish all or some of its jobs, perhaps again, perhaps too late."""
        if self.holders:
            holder = self.holders[which % len(self.holders)]
            try:
                holder.finish(outcome, self.now, holder.jobs[:1] if part else None)
            except ClaimLost:
                self.holders.remove(holder)

    @rule(outcome=st.sampled_from(["success", "failure"]), which=st.integers(0, 9), begin=st.booleans())
    def work(self, outcome, which, begin):
        """Let a worker start or finish a job through the functions, perhaps again, perhaps too late."""
        if self.workers:
            job, token, me = self.workers[which % len(self.workers)]
            values = {"job": job, "token": token, "me": me}
            if begin:
                sql(self.engine, "SELECT cronless.cronless_start(:job, :token, :me)", **values)
            else:
                sql(
                    self.engine,
                    "SELECT cronless.cronless_finish(:job, :token, :me, :how)",
                    **values,
                    how=outcome,
                )

    @rule(lease=st.sampled_from([60, 3_600]))
    def begin(self, lease):
        """Let a worker of ours start all that the messages of any claim ever asked for, many of them too late."""
        asked = {job: Start(job, token, me) for job, token, me in self.workers}
        with transaction(self.engine) as connection:
            started = executions.start_jobs(connection, list(asked.values()), lease, self.now, RetryPolicy())
        assert not started.held
        self.started += started.jobs

    @rule(outcome=st.sampled_from(OUTCOMES), how=st.sampled_from(["finish", "give back", "renew"]))
    def end(self, outcome, how):
        """Let it finish, give back or keep all that it ever started, some of it again, some too late."""
        with transaction(self.engine) as connection:
            mine = {job.id: job for job in self.started}.values()
            if how == "finish":
                results = [
                    Result(job, plan_next(job.plan, outcome, self.now), outcome.error, self.now)
                    for job in mine
                ]
                executions.finish_started(connection, results, self.now)
            elif how == "give back":
                executions.give_back(connection, list(mine), self.now)
            else:
                executions.renew_jobs(connection, list(mine), 600, self.now)

    @rule(action=st.sampled_from(["lapsed", "again", "release", "close"]), which=st.integers(0, 9))
    def rescue_queued(self, action, which):
        """Rescue a claim of the queue route, and let its messages reach workers again."""
        with transaction(self.engine) as connection:
            found = [one for one in claims.open_claims(connection) if one.route == "queue"]
        if not found:
            return
        one = found[which % len(found)]
        if action == "lapsed":
            rescue_lapsed(self.engine, one, 20, self.now)
        else:
            carry_out_queued(self.engine, one, action, self.now)
        rows = sql(
            self.engine,
            "SELECT job.id, job.claim_id FROM cronless.scheduled_job AS job JOIN cronless.job_claim AS claim"
            " ON claim.id = job.claim_id WHERE job.status = 'QUEUED' AND claim.route = 'queue'",
        )
        self.workers += [(row.id, row.claim_id, uuid4()) for row in rows]

    @rule(action=st.sampled_from(["release", "died", "cancel"]), which=st.integers(0, 9))
    def rescue(self, action, which):
        """Take a claim of the run route from its holder."""
        with transaction(self.engine) as connection:
            found = [one for one in claims.open_claims(connection) if one.route == "run"]
        if found:
            carry_out(self.engine, found[which % len(found)], action, None, job_types(), self.now)

    @rule(which=st.sampled_from(ROWS), changes=EDITS)
    def edit(self, which, changes):
        """Edit a row by plain SQL."""
        self.loosen([which], changes)
        edit(self.engine, which, **changes)

    @rule(changes=EDITS)
    def edit_all(self, changes):
        """Edit all rows in one statement."""
        self.loosen(ROWS, changes)
        [(name, value)] = changes.items()
        sql(self.engine, f"UPDATE cronless.scheduled_job SET {name} = :value", value=value)

    def loosen(self, which, changes):
        """Note whose instants may come twice from now on."""
        if "next_run_at" in changes or changes.get("schedule", "").startswith("@handler"):
            self.loose.update(which)

    @rule(which=st.sampled_from(ROWS), on=st.booleans())
    def pause(self, which, on):
        """Pause or resume a row."""
        edit(self.engine, which, paused_at=self.now if on else None)

    @rule(which=st.sampled_from(ROWS))
    def trigger(self, which):
        """Ask for a manual run."""
        edit(self.engine, which, trigger_requested_at=self.now)

    @rule(which=st.sampled_from(ROWS))
    def remove(self, which):
        """Delete a row."""
        sql(self.engine, "DELETE FROM cronless.scheduled_job WHERE id = :id", id=which)

    @invariant()
    def rows_are_possible(self):
        """Each row is in a state that somebody will take it out of, or that says that it has ended."""
        for row in sql(self.engine, "SELECT * FROM cronless.scheduled_job"):
            claimed = row.status in ("QUEUED", "RUNNING")
            assert claimed == (row.claim_id is not None), row
            assert (row.execution_id is not None) == (row.status == "RUNNING"), row
            assert row.report is None or row.status == "RUNNING", row
            assert not claimed or (row.serving_at is not None and row.due_at is not None), row
            assert row.attempt >= 0, row
            assert row.status == "PENDING" or claimed or row.next_run_at is None or row.status == "INVALID", (
                row
            )
            assert (row.status == "INVALID") == (row.invalid_reason is not None), row
            assert row.removed_at is None or claimed, row

    @invariant()
    def claimed_rows_have_an_open_claim(self):
        """No row waits for a claim that has ended, and no open claim counts less than it holds."""
        orphans = sql(
            self.engine,
            "SELECT job.id FROM cronless.scheduled_job AS job LEFT JOIN cronless.job_claim AS claim"
            " ON claim.id = job.claim_id AND claim.state <> 'CLOSED'"
            " WHERE job.claim_id IS NOT NULL AND claim.id IS NULL",
        )
        assert orphans == []

    @invariant()
    def queues_count_what_they_hold(self):
        """Limits go by a claim's counts: on the queue route they are exact, whoever takes jobs out of it."""
        wrong = sql(
            self.engine,
            "SELECT claim.id, claim.job_count - claim.done_count - claim.failed_count AS counted, count(job.id) AS held"
            " FROM cronless.job_claim AS claim LEFT JOIN cronless.scheduled_job AS job ON job.claim_id = claim.id"
            " WHERE claim.route = 'queue' AND claim.state <> 'CLOSED' GROUP BY claim.id"
            " HAVING count(job.id) <> claim.job_count - claim.done_count - claim.failed_count",
        )
        assert wrong == []

    @invariant()
    def no_result_is_accepted_twice(self):
        """A claim's token accepts one result of a job, and a planned occurrence succeeds once."""
        done = sql(
            self.engine,
            "SELECT job_id, claim_id, scheduled_for, outcome, manual FROM cronless.job_execution"
            " WHERE outcome NOT IN ('missed', 'crashed')",
        )
        by_token = Counter((one.job_id, one.claim_id) for one in done)
        assert [key for key, number in by_token.items() if number > 1] == []
        by_occurrence = Counter(
            (one.job_id, one.scheduled_for)
            for one in done
            if one.outcome == "success" and not one.manual and one.job_id not in self.loose
        )
        assert [key for key, number in by_occurrence.items() if number > 1] == []

    def teardown(self):
        """Whatever happened, a tick plans every pending row that isn't paused and waits for nobody's request."""
        if self.engine is None or not hasattr(self, "now"):
            return
        self.plan()
        left = sql(
            self.engine,
            "SELECT * FROM cronless.scheduled_job WHERE status = 'PENDING' AND paused_at IS NULL"
            " AND next_run_at IS NULL AND trigger_requested_at IS NULL",
        )
        assert left == []


@pytest.mark.slow
def test_no_interleaving_breaks_a_row(virtual_engine):
    """Edits, claims, finishes, rescues, pauses, requests and removals in any order leave possible rows."""

    class Machine(Rows):
        engine = virtual_engine

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=15,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
