"""Executions of single jobs, many at a time: the start fence, leases, giving back, the finish, with others at work."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import pytest

from cronless_dagster.scheduling.models import Outcome, RetryPolicy
from cronless_dagster.store import claims, executions, outbox
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction
from tests.store.queued import (
    LEASE,
    begin,
    finish,
    give_back,
    messages,
    queued,
    renew,
    results_of,
    waiting,
    where,
)
from tests.store.rows import (
    FAILURE,
    HOUR,
    MINUTE,
    NOW,
    add_row,
    claim,
    claim_row,
    due_row,
    edit,
    exists,
    history,
    outcomes,
    row,
    set_clock,
    sql,
)

GUARD = 30
"""Seconds after which something hangs."""


@pytest.fixture
def locked(virtual_engine):
    """Lock a job's row as a person does in an open transaction; it ends with the test or by the call's answer."""
    opened = []

    def lock(job):
        connection = virtual_engine.connect()
        connection.begin()
        connection.exec_driver_sql(
            "SELECT 1 FROM cronless.scheduled_job WHERE id = %s FOR UPDATE", (str(job),)
        )
        opened.append(connection)
        return connection.close

    yield lock
    for connection in opened:
        connection.close()


def together(*calls):
    """Run calls at once, each in a thread; returns what they return, and raises what they raise."""
    ready = threading.Barrier(len(calls))

    def run(call):
        ready.wait(GUARD)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [one.result(GUARD) for one in [pool.submit(run, call) for call in calls]]


def wait_until_waiting(engine):
    """Wait until a transaction of this database waits for a lock."""
    deadline = time.monotonic() + GUARD
    while not sql(
        engine,
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    ):
        assert time.monotonic() < deadline, "nobody waits for a lock"
        time.sleep(0.02)


def counts(engine, claim_id):
    """Return a claim's counts and whether it is closed."""
    found = claim_row(engine, claim_id)
    return found.job_count, found.done_count, found.failed_count, found.state == "CLOSED"


class TestStart:
    def test_what_a_worker_gets(self, virtual_engine):
        """The row is RUNNING under the worker's own id, leased, its try counted, with its payload as it is now."""
        token, [job] = queued(virtual_engine, payload='{"a": 1}')
        edit(virtual_engine, job, payload='{"a": 2}')
        [asked] = messages(token, [job])
        [started] = begin(virtual_engine, [asked], lease=60).jobs
        assert (started.id, started.claim_id, started.execution_id) == asked
        assert (started.payload, started.tries, started.scheduled_for) == ({"a": 2}, 1, NOW)
        found = row(virtual_engine, job)
        assert (found.status, found.execution_id, found.attempt) == ("RUNNING", asked.execution_id, 1)
        assert found.lease_expires_at == NOW + timedelta(seconds=60)

    def test_nothing_asked(self, virtual_engine):
        """No messages are no statement."""
        assert begin(virtual_engine, []) == executions.Started([], set(), set(), set())

    def test_the_retry_policy_is_the_types_where_the_row_is_silent(self, virtual_engine):
        """A row's own column goes before the policy of its type."""
        token, ids = queued(virtual_engine, 2)
        edit(virtual_engine, ids[0], max_attempts=9)
        with transaction(virtual_engine) as connection:
            policy = RetryPolicy(max_attempts=4)
            started = executions.start_jobs(connection, messages(token, ids), LEASE, NOW, policy)
        found = {one.id: one.plan.retry.max_attempts for one in started.jobs}
        assert found == {ids[0]: 9, ids[1]: 4}

    def test_the_same_execution_asks_again(self, virtual_engine):
        """The COMMIT's answer was lost: the same answer again, and no second try is counted."""
        token, ids = queued(virtual_engine, 3)
        asked = messages(token, ids)
        first = begin(virtual_engine, asked)
        again = begin(virtual_engine, asked, NOW + MINUTE)
        assert sorted(first.jobs, key=lambda one: one.id) == sorted(again.jobs, key=lambda one: one.id)
        assert [row(virtual_engine, one).attempt for one in ids] == [1, 1, 1]

    def test_a_second_copy(self, virtual_engine):
        """A message delivered twice starts once; the other copy is told that it is one."""
        token, [job] = queued(virtual_engine)
        begin(virtual_engine, messages(token, [job]))
        before = row(virtual_engine, job)
        assert begin(virtual_engine, messages(token, [job])) == executions.Started([], set(), {job}, set())
        assert row(virtual_engine, job) == before

    def test_an_older_token(self, virtual_engine):
        """What ended, was claimed anew or never was is stale."""
        token, ids = queued(virtual_engine, 2)
        started = begin(virtual_engine, messages(token, ids)).jobs
        finish(virtual_engine, [one for one in started if one.id == ids[0]])
        give_back(virtual_engine, [one for one in started if one.id == ids[1]])
        newer = claim(virtual_engine, route="queue")
        assert newer is not None
        nobody = uuid4()
        asked = messages(token, [*ids, nobody])
        assert begin(virtual_engine, asked) == executions.Started([], set(), set(), {*ids, nobody})
        assert where(virtual_engine, newer) == {"QUEUED": 1}

    def test_one_that_has_reported(self, virtual_engine):
        """A job whose outcome waits for a tick isn't started by a late copy."""
        token, [job] = queued(virtual_engine)
        [asked] = messages(token, [job])
        begin(virtual_engine, [asked])
        [(said,)] = sql(
            virtual_engine,
            "SELECT cronless.cronless_finish(:job_id, :token, :execution_id, 'success')",
            **asked._asdict(),
        )
        assert said == "accepted"
        assert begin(virtual_engine, messages(token, [job])).doubled == {job}

    def test_a_persons_open_transaction_on_one_row(self, virtual_engine, locked):
        """Its neighbours start meanwhile; it is held, neither doubled nor stale, and starts afterwards."""
        token, ids = queued(virtual_engine, 3)
        release = locked(ids[1])
        asked = messages(token, ids)
        started = begin(virtual_engine, asked)
        assert {one.id for one in started.jobs} == {ids[0], ids[2]}
        assert (started.held, started.doubled, started.stale) == ({ids[1]}, set(), set())
        release()
        assert {one.id for one in begin(virtual_engine, [asked[1]]).jobs} == {ids[1]}

    def test_a_renewed_row_is_held_for_its_own_execution_only(self, virtual_engine, locked):
        """Started and locked: its holder is told to ask again, a copy of the message that it is one."""
        token, [job] = queued(virtual_engine)
        [asked] = messages(token, [job])
        begin(virtual_engine, [asked])
        locked(job)
        assert begin(virtual_engine, [asked]).held == {job}
        assert begin(virtual_engine, messages(token, [job])).doubled == {job}

    def test_two_workers_with_copies_of_the_same_messages(self, virtual_engine):
        """At once, in whatever order: each job starts once, the other copy is doubled, or held and doubled later."""
        token, ids = queued(virtual_engine, 200)
        asked = [messages(token, ids), messages(token, reversed(ids))]
        both = together(*[lambda one=one: begin(virtual_engine, one) for one in asked])
        started = [{job.id for job in one.jobs} for one in both]
        assert started[0] | started[1] == set(ids)
        assert not started[0] & started[1]
        for mine, asked_for, others in zip(both, asked, reversed(started), strict=True):
            again = begin(virtual_engine, [one for one in asked_for if one.job_id in mine.held])
            assert again.jobs == []
            assert mine.doubled | again.doubled == others
            assert mine.stale | again.stale == set()
        assert {one.attempt for one in sql(virtual_engine, "SELECT attempt FROM cronless.scheduled_job")} == {
            1
        }


class TestNotedStart:
    def test_the_first_start_is_noted(self, virtual_engine):
        """Once, whoever starts; the instant stays that of the first."""
        token, ids = queued(virtual_engine, 2)
        begin(virtual_engine, messages(token, ids[:1]))
        begin(virtual_engine, messages(token, ids[1:]), NOW + MINUTE)
        assert claim_row(virtual_engine, token).started_at == NOW

    def test_each_of_several_claims(self, virtual_engine):
        """A batch may hold messages of many claims; one of which nothing started stays as it was."""
        one, [first] = queued(virtual_engine)
        other, [second] = queued(virtual_engine)
        untouched, [third] = queued(virtual_engine)
        begin(virtual_engine, [*messages(one, [first]), *messages(other, [second]), *messages(one, [third])])
        found = [claim_row(virtual_engine, each).started_at for each in (one, other, untouched)]
        assert found == [NOW, NOW, None]

    def test_a_claim_of_the_run_route_is_left_alone(self, virtual_engine):
        """Its start has another meaning, and another holder."""
        due_row(virtual_engine)
        token = claim(virtual_engine)
        [job] = sql(virtual_engine, "SELECT id FROM cronless.scheduled_job")
        begin(virtual_engine, messages(token, [job.id]))
        assert claim_row(virtual_engine, token).started_at is None

    @pytest.mark.parametrize("by_function", [False, True])
    def test_no_start_waits_for_a_claim(self, virtual_engine, by_function):
        """A tick that has locked a claim may be waiting for the row: the start goes on, and the next one notes it."""
        token, [job, other] = queued(virtual_engine, 2)
        with transaction(virtual_engine) as ticking:
            assert claims.lock_claim(ticking, token) is not None
            if by_function:
                start_by_function(virtual_engine, job, token)
            else:
                assert len(begin(virtual_engine, messages(token, [job])).jobs) == 1
            # Still in the same transaction: only what nobody has started goes back.
            assert claims.release_rows(ticking, token) == 1
        assert claim_row(virtual_engine, token).started_at is None
        assert (row(virtual_engine, job).status, row(virtual_engine, other).status) == ("RUNNING", "PENDING")

    def test_workers_note_the_same_claims_at_once(self, virtual_engine):
        """In whatever order their messages came: nobody waits for another, all claims are noted."""
        tokens, first, second = [], [], []
        for _ in range(20):
            token, [one, other] = queued(virtual_engine, 2)
            tokens.append(token)
            first += messages(token, [one])
            second += messages(token, [other])
        together(
            lambda: begin(virtual_engine, first),
            lambda: begin(virtual_engine, list(reversed(second))),
        )
        assert {claim_row(virtual_engine, one).started_at for one in tokens} == {NOW}


def start_by_function(engine, job, token):
    """Start a job as a worker in another language does."""
    with transaction(engine) as connection:
        connection.exec_driver_sql(
            "SELECT * FROM cronless.cronless_start(%s, %s, %s)", (str(job), str(token), str(uuid4()))
        )


class TestRenewal:
    def test_only_what_is_still_ours(self, virtual_engine):
        """Finished, given back and taken jobs are missing from the answer; the others' leases run on."""
        token, ids = queued(virtual_engine, 4)
        jobs = sorted(begin(virtual_engine, messages(token, ids), lease=60).jobs, key=lambda one: one.id)
        finish(virtual_engine, jobs[:1])
        give_back(virtual_engine, jobs[1:2])
        later = set_clock(virtual_engine, NOW + 2 * MINUTE)
        sql(
            virtual_engine,
            "UPDATE cronless.scheduled_job SET lease_expires_at = :at WHERE id = :id",
            at=later + HOUR,
            id=ids[3],
        )
        with transaction(virtual_engine) as connection:
            assert outbox.split_lapsed(connection, token, 1, later) == 1
        assert renew(virtual_engine, jobs, later) == {ids[3]}
        assert row(virtual_engine, ids[3]).lease_expires_at == later + timedelta(seconds=LEASE)
        assert row(virtual_engine, ids[2]).lease_expires_at is None

    def test_a_locked_row_waits_for_the_next_renewal(self, virtual_engine, locked):
        """It is ours, keeps the lease that it has, and holds up nobody else's renewal."""
        token, ids = queued(virtual_engine, 2)
        jobs = begin(virtual_engine, messages(token, ids), lease=60).jobs
        locked(ids[0])
        assert renew(virtual_engine, jobs, NOW + MINUTE) == set(ids)
        leases = [row(virtual_engine, one).lease_expires_at for one in ids]
        assert leases == [NOW + MINUTE, NOW + MINUTE + timedelta(seconds=LEASE)]

    def test_another_execution_of_the_same_claim(self, virtual_engine):
        """Whoever lost the row to it renews nothing, and learns of it."""
        token, [job] = queued(virtual_engine)
        jobs = begin(virtual_engine, messages(token, [job]), lease=60).jobs
        sql(
            virtual_engine,
            "UPDATE cronless.scheduled_job SET execution_id = gen_random_uuid(), plan_count = plan_count + 1",
        )
        assert renew(virtual_engine, jobs, NOW + MINUTE) == set()
        assert row(virtual_engine, job).lease_expires_at == NOW + MINUTE

    def test_nothing_to_renew(self, virtual_engine):
        """No jobs, nothing asked."""
        assert renew(virtual_engine, [], NOW) == set()


class TestGivingBack:
    def test_as_it_was(self, virtual_engine):
        """Due at the same instant, for the same occurrence, with no try counted; the claim holds one job less."""
        token, ids = queued(virtual_engine, 2)
        jobs = begin(virtual_engine, messages(token, ids)).jobs
        given = next(one for one in jobs if one.id == ids[0])
        assert give_back(virtual_engine, [given]) == {ids[0]}
        found = row(virtual_engine, ids[0])
        assert (found.status, found.next_run_at, found.scheduled_for) == ("PENDING", NOW, NOW)
        assert (found.attempt, found.consecutive_failures, found.crashes) == (0, 0, 0)
        assert (found.claim_id, found.execution_id, found.lease_expires_at) == (None, None, None)
        assert history(virtual_engine, ids[0]) == []
        assert counts(virtual_engine, token) == (1, 0, 0, False)

    def test_the_last_one_closes_the_claim(self, virtual_engine):
        """Nothing is left that anybody could wait for."""
        token, ids = queued(virtual_engine, 2)
        jobs = begin(virtual_engine, messages(token, ids)).jobs
        finish(virtual_engine, jobs[:1])
        give_back(virtual_engine, jobs[1:])
        assert counts(virtual_engine, token) == (1, 1, 0, True)

    def test_a_retry_keeps_its_tries(self, virtual_engine):
        """The third try of an occurrence that never began is the third one again."""
        token, [job] = queued(virtual_engine, attempt=2)
        [started] = begin(virtual_engine, messages(token, [job])).jobs
        assert started.tries == 3
        give_back(virtual_engine, [started])
        assert row(virtual_engine, job).attempt == 2

    def test_an_edit_wins(self, virtual_engine):
        """A direct write of the instant stays; another schedule leaves what is due as due as it was."""
        token, ids = queued(virtual_engine, 2)
        jobs = begin(virtual_engine, messages(token, ids)).jobs
        edit(virtual_engine, ids[0], next_run_at=NOW + HOUR)
        edit(virtual_engine, ids[1], schedule="30 * * * *")
        give_back(virtual_engine, jobs)
        found = [row(virtual_engine, one) for one in ids]
        assert [(one.next_run_at, one.scheduled_for) for one in found] == [
            (NOW + HOUR, NOW + HOUR),
            (NOW, NOW),
        ]

    def test_a_manual_run_is_asked_for_again(self, virtual_engine):
        """The request stands, the plan beside it is untouched."""
        job = add_row(
            virtual_engine,
            next_run_at=NOW + HOUR,
            scheduled_for=NOW + HOUR,
            trigger_requested_at=NOW - MINUTE,
            attempt=1,
        )
        token = claim(virtual_engine, route="queue", triggered=True)
        [started] = begin(virtual_engine, messages(token, [job])).jobs
        assert (started.manual, started.tries) == (True, 1)
        give_back(virtual_engine, [started])
        found = row(virtual_engine, job)
        assert (found.status, found.next_run_at, found.scheduled_for) == ("PENDING", NOW + HOUR, NOW + HOUR)
        assert found.trigger_requested_at == NOW - MINUTE
        assert found.attempt == 1

    def test_a_removed_row_is_gone(self, virtual_engine):
        """Its tombstone was kept for the claim alone."""
        token, ids = queued(virtual_engine, 2)
        jobs = begin(virtual_engine, messages(token, ids)).jobs
        sql(virtual_engine, "DELETE FROM cronless.scheduled_job WHERE id = :id", id=ids[0])
        assert exists(virtual_engine, ids[0])
        assert give_back(virtual_engine, jobs) == set(ids)
        assert [exists(virtual_engine, one) for one in ids] == [False, True]
        assert counts(virtual_engine, token) == (0, 0, 0, True)

    def test_what_isnt_ours_is_left(self, virtual_engine, locked):
        """Finished, reported, locked: none of them is counted off the claim."""
        token, ids = queued(virtual_engine, 3)
        jobs = sorted(begin(virtual_engine, messages(token, ids)).jobs, key=lambda one: one.id)
        finish(virtual_engine, jobs[:1])
        sql(
            virtual_engine,
            """UPDATE cronless.scheduled_job SET report = '{}', plan_count = plan_count + 1 WHERE id = :id""",
            id=ids[1],
        )
        locked(ids[2])
        assert give_back(virtual_engine, jobs) == set()
        assert counts(virtual_engine, token) == (3, 1, 0, False)
        assert where(virtual_engine, token) == {"RUNNING": 2}


class TestFinish:
    def test_outcomes_and_counts(self, virtual_engine):
        """Each row waits for its next occurrence or its retry; the claim counts both and closes with the last."""
        token, ids = queued(virtual_engine, 3)
        jobs = sorted(begin(virtual_engine, messages(token, ids)).jobs, key=lambda one: one.id)
        assert finish(virtual_engine, jobs[:2], now=NOW + MINUTE) == (set(ids[:2]), [])
        assert counts(virtual_engine, token) == (3, 2, 0, False)
        assert finish(virtual_engine, jobs[2:], FAILURE, NOW + MINUTE) == ({ids[2]}, [])
        assert counts(virtual_engine, token) == (3, 2, 1, True)
        found = [row(virtual_engine, one) for one in ids]
        assert [(one.status, one.attempt) for one in found] == [
            ("PENDING", 0),
            ("PENDING", 0),
            ("PENDING", 1),
        ]
        assert [one.next_run_at for one in found[:2]] == [NOW + HOUR] * 2
        [line] = history(virtual_engine, ids[2])
        assert (line.outcome, line.attempt, line.claim_id, line.execution_id) == (
            "failure",
            1,
            token,
            jobs[2].execution_id,
        )

    def test_jobs_of_many_claims(self, virtual_engine):
        """One batch, each claim counted apart."""
        made = [queued(virtual_engine, count) for count in (1, 2, 3)]
        jobs = begin(virtual_engine, [one for token, ids in made for one in messages(token, ids)]).jobs
        last = max(made[2][1])
        finish(virtual_engine, [job for job in jobs if job.id != last])
        assert [counts(virtual_engine, token) for token, _ in made] == [
            (1, 1, 0, True),
            (2, 2, 0, True),
            (3, 2, 0, False),
        ]

    def test_after_the_lease_was_taken(self, virtual_engine):
        """The job belongs to another claim: the late outcome is discarded and counted nowhere."""
        token, [job] = queued(virtual_engine)
        late = begin(virtual_engine, messages(token, [job]), lease=60).jobs
        later = set_clock(virtual_engine, NOW + 2 * MINUTE)
        with transaction(virtual_engine) as connection:
            outbox.split_lapsed(connection, token, 1, later)
        [child] = sql(virtual_engine, "SELECT * FROM cronless.job_claim WHERE parent_id = :id", id=token)
        assert finish(virtual_engine, late, now=later) == (set(), [])
        assert history(virtual_engine, job) == []
        assert counts(virtual_engine, token) == (0, 0, 0, False)
        [again] = begin(virtual_engine, messages(child.id, [job]), later).jobs
        assert finish(virtual_engine, late, now=later) == (set(), [])
        assert finish(virtual_engine, [again], now=later) == ({job}, [])
        assert finish(virtual_engine, [again], now=later) == (set(), [])
        assert outcomes(virtual_engine, job) == ["success"]

    def test_another_executions_result(self, virtual_engine):
        """Of the same claim, but not the one that started it: discarded."""
        token, [job] = queued(virtual_engine)
        [mine] = begin(virtual_engine, messages(token, [job])).jobs
        sql(
            virtual_engine,
            "UPDATE cronless.scheduled_job SET execution_id = gen_random_uuid(), plan_count = plan_count + 1",
        )
        assert finish(virtual_engine, [mine]) == (set(), [])
        assert counts(virtual_engine, token) == (1, 0, 0, False)

    def test_one_locked_row(self, virtual_engine, locked):
        """Its neighbours are written; its own result comes back to be asked again, and is counted then."""
        token, ids = queued(virtual_engine, 3)
        jobs = begin(virtual_engine, messages(token, ids)).jobs
        release = locked(ids[1])
        accepted, held = finish(virtual_engine, jobs)
        assert (accepted, [one.job.id for one in held]) == ({ids[0], ids[2]}, [ids[1]])
        assert counts(virtual_engine, token) == (3, 2, 0, False)
        release()
        assert finish(virtual_engine, [one.job for one in held]) == ({ids[1]}, [])
        assert counts(virtual_engine, token) == (3, 3, 0, True)

    def test_a_locked_row_that_is_anothers_by_now(self, virtual_engine, locked):
        """It is discarded at once: nobody asks again for ever."""
        token, [job] = queued(virtual_engine)
        jobs = begin(virtual_engine, messages(token, [job])).jobs
        give_back(virtual_engine, jobs)
        locked(job)
        assert finish(virtual_engine, jobs) == (set(), [])

    def test_a_removed_row(self, virtual_engine):
        """Its outcome is recorded, and it is gone."""
        token, [job] = queued(virtual_engine)
        jobs = begin(virtual_engine, messages(token, [job])).jobs
        sql(virtual_engine, "DELETE FROM cronless.scheduled_job WHERE id = :id", id=job)
        assert finish(virtual_engine, jobs) == ({job}, [])
        assert not exists(virtual_engine, job)
        assert outcomes(virtual_engine, job) == ["success"]
        assert counts(virtual_engine, token) == (1, 1, 0, True)

    def test_workers_that_finish_jobs_of_the_same_claims(self, virtual_engine):
        """At once and in opposite orders: no ring of waiting, no count lost, each claim closed once."""
        made = [queued(virtual_engine, 4) for _ in range(25)]
        jobs = begin(virtual_engine, [one for token, ids in made for one in messages(token, ids)]).jobs
        place = {id_: n % 4 for _, ids in made for n, id_ in enumerate(ids)}
        token_order = sorted(jobs, key=lambda job: job.claim_id)
        shares = [[job for job in token_order if place[job.id] == n] for n in range(4)]
        shares[1].reverse()
        shares[3].reverse()
        outcomes_ = [Outcome("success"), FAILURE, Outcome("success"), FAILURE]
        both = together(
            *[lambda n=n: finish(virtual_engine, shares[n], outcomes_[n], NOW + n * MINUTE) for n in range(4)]
        )
        assert [len(accepted) for accepted, _ in both] == [25] * 4
        assert {counts(virtual_engine, token) for token, _ in made} == {(4, 2, 2, True)}

    def test_the_last_two_of_a_claim_at_once(self, virtual_engine):
        """Each sees the other's row as unfinished until it waits for the claim: the later one closes it."""
        token, ids = queued(virtual_engine, 2)
        jobs = begin(virtual_engine, messages(token, ids)).jobs
        with transaction(virtual_engine) as first:
            executions.finish_started(first, results_of(jobs[:1]), NOW)
            with ThreadPoolExecutor(1) as pool:
                second = pool.submit(finish, virtual_engine, jobs[1:])
                wait_until_waiting(virtual_engine)
                first.commit()
                assert second.result(GUARD) == ({jobs[1].id}, [])
        assert counts(virtual_engine, token) == (2, 2, 0, True)

    def test_a_finish_beside_a_rescue(self, virtual_engine):
        """A tick that has locked the claim leaves the row that is being finished: neither waits in a ring."""
        token, [job] = queued(virtual_engine)
        jobs = begin(virtual_engine, messages(token, [job]), lease=60).jobs
        later = set_clock(virtual_engine, NOW + 2 * MINUTE)
        with transaction(virtual_engine) as ticking, ThreadPoolExecutor(1) as pool:
            current_time(ticking, later)
            assert claims.lock_claim(ticking, token) is not None
            finished = pool.submit(finish, virtual_engine, jobs, now=later)
            wait_until_waiting(virtual_engine)
            assert outbox.split_lapsed(ticking, token, 1, later) == 0
            assert claims.requeue_lapsed_jobs(ticking, token, later)
            ticking.commit()
            assert finished.result(GUARD) == ({job}, [])
        assert counts(virtual_engine, token) == (1, 1, 0, True)


class TestHolders:
    """What the run route must not lose by it: its claims close by their own fence."""

    def test_a_run_is_not_closed_by_a_count(self, virtual_engine):
        """A claim's counts say that it may be done; its rows say whether it is."""
        token, ids = queued(virtual_engine, 2)
        jobs = begin(virtual_engine, messages(token, ids[:1])).jobs
        sql(virtual_engine, "UPDATE cronless.job_claim SET job_count = 1")
        finish(virtual_engine, jobs)
        assert counts(virtual_engine, token) == (1, 1, 0, False)
        assert waiting(virtual_engine, token).queued == 1
