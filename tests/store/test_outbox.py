"""The queue route's outbox: who sends a claim's messages, how far they are confirmed, what its jobs wait for."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

from cronless_dagster.store import claims, outbox
from cronless_dagster.store.database import transaction
from tests.store.queued import LEASE, begin, dispatched, finish, messages, queued, waiting, where
from tests.store.rows import HOUR, MINUTE, NOW, add_row, claim, claim_row, edit, exists, row, set_clock, sql

PATIENCE = timedelta(seconds=30)
NIL = UUID(int=0)


def take(engine, claim_id, now=NOW, dispatch=0):
    """Take a claim to send its messages."""
    with transaction(engine) as connection:
        return outbox.take_outgoing(connection, claim_id, dispatch, now, PATIENCE)


def page(engine, claim_id, after=NIL, most=100):
    """Return a page of the messages to send."""
    with transaction(engine) as connection:
        return outbox.outgoing(connection, claim_id, after, most)


def confirmed(engine, claim_id, last, now=NOW, dispatch=0):
    """Note how far the broker has confirmed."""
    with transaction(engine) as connection:
        return outbox.note_confirmed(connection, claim_id, dispatch, last, now)


def leave(engine, claim_id, dispatch=0):
    """Stop where one is."""
    with transaction(engine) as connection:
        outbox.leave_outgoing(connection, claim_id, dispatch)


def again(engine, claim_id):
    """Note that messages were lost."""
    with transaction(engine) as connection:
        outbox.publish_again(connection, claim_id)


def refuse(engine, claim_id, job):
    """Take a job out whose message can't be written."""
    with transaction(engine) as connection:
        outbox.refuse_outgoing(connection, claim_id, job, "it has no name")


def split(engine, claim_id, now):
    """Take the lapsed jobs of a claim."""
    with transaction(engine) as connection:
        return outbox.split_lapsed(connection, claim_id, 1, now)


class TestTaking:
    def test_one_dispatcher_at_a_time(self, virtual_engine):
        """The second one leaves the claim to the first, for as long as that one comes further now and then."""
        token, [job] = queued(virtual_engine)
        assert take(virtual_engine, token) == NIL
        assert take(virtual_engine, token, NOW + PATIENCE / 2) is None
        assert confirmed(virtual_engine, token, job, NOW + PATIENCE / 2)
        assert take(virtual_engine, token, NOW + PATIENCE) is None
        assert take(virtual_engine, token, NOW + PATIENCE * 3 / 2) == job

    def test_what_one_left_goes_on_at_once(self, virtual_engine):
        """It says where the last confirmed page ended, and nobody has to be patient."""
        token, ids = queued(virtual_engine, 3)
        take(virtual_engine, token)
        confirmed(virtual_engine, token, ids[1])
        leave(virtual_engine, token)
        assert take(virtual_engine, token) == ids[1]

    def test_what_needs_no_sending(self, virtual_engine):
        """Dispatched, handed over anew meanwhile, closed or unknown: nobody takes it."""
        token, [job] = queued(virtual_engine)
        assert take(virtual_engine, uuid4()) is None
        assert take(virtual_engine, token, dispatch=1) is None
        dispatched(virtual_engine, token)
        assert take(virtual_engine, token) is None
        again(virtual_engine, token)
        assert take(virtual_engine, token) is None
        assert take(virtual_engine, token, dispatch=1) == NIL
        finish(virtual_engine, begin(virtual_engine, messages(token, [job])).jobs)
        assert take(virtual_engine, token, NOW + HOUR, dispatch=1) is None

    def test_a_dispatcher_too_late(self, virtual_engine):
        """What it confirms of an older hand-over is noted nowhere."""
        token, [job] = queued(virtual_engine)
        take(virtual_engine, token)
        again(virtual_engine, token)
        take(virtual_engine, token, dispatch=1)
        assert not confirmed(virtual_engine, token, job)
        leave(virtual_engine, token)
        dispatched(virtual_engine, token)
        found = claim_row(virtual_engine, token)
        assert (found.state, found.published_to, found.handed_over_at) == ("CLAIMED", None, NOW)


class TestPages:
    def test_in_the_order_of_the_ids(self, virtual_engine):
        """Each page begins after the last job of the one before."""
        token, ids = queued(virtual_engine, 5)
        first = page(virtual_engine, token, most=3)
        assert [one.job_id for one in first] == ids[:3]
        assert [one.job_id for one in page(virtual_engine, token, ids[2], 3)] == ids[3:]
        assert page(virtual_engine, token, ids[4]) == []

    def test_what_a_message_tells(self, virtual_engine):
        """The tenant, and the occurrence that is served: of a manual run the instant of the request."""
        _, [job] = queued(virtual_engine, tenant_id="globex")
        token = claim_row(virtual_engine, row(virtual_engine, job).claim_id).id
        assert page(virtual_engine, token) == [(job, "globex", NOW)]
        other = add_row(virtual_engine, next_run_at=NOW + HOUR, trigger_requested_at=NOW - MINUTE)
        manual = claim(virtual_engine, NOW, route="queue", triggered=True)
        assert page(virtual_engine, manual) == [(other, "acme", row(virtual_engine, other).serving_at)]

    def test_only_what_nobody_has_started(self, virtual_engine):
        """A hand-over anew leaves out what runs, and nobody else's rows come in."""
        token, ids = queued(virtual_engine, 3)
        queued(virtual_engine, 2)
        begin(virtual_engine, messages(token, ids[:2]))
        assert [one.job_id for one in page(virtual_engine, token)] == ids[2:]


class TestAgain:
    def test_from_the_beginning(self, virtual_engine):
        """A hand-over anew has its number, and no confirmed page."""
        token, [job] = queued(virtual_engine)
        take(virtual_engine, token)
        confirmed(virtual_engine, token, job)
        dispatched(virtual_engine, token)
        again(virtual_engine, token)
        found = claim_row(virtual_engine, token)
        assert (found.state, found.dispatches, found.published_to) == ("CLAIMED", 1, None)
        dispatched(virtual_engine, token, NOW + MINUTE, dispatch=1)
        assert claim_row(virtual_engine, token).submitted_at == NOW + MINUTE

    def test_not_once_it_is_closed(self, virtual_engine):
        """What has ended stays as it ended."""
        token, [job] = queued(virtual_engine)
        finish(virtual_engine, begin(virtual_engine, messages(token, [job])).jobs)
        again(virtual_engine, token)
        assert (claim_row(virtual_engine, token).state, claim_row(virtual_engine, token).dispatches) == (
            "CLOSED",
            0,
        )


class TestRefusing:
    def test_the_row_alone(self, virtual_engine):
        """It is INVALID with the reason and out of its claim; its neighbours go on, and an edit brings it back."""
        token, ids = queued(virtual_engine, 2)
        refuse(virtual_engine, token, ids[0])
        found = row(virtual_engine, ids[0])
        assert (found.status, found.claim_id, found.invalid_reason) == ("INVALID", None, "it has no name")
        assert claim_row(virtual_engine, token).job_count == 1
        assert where(virtual_engine, token) == {"QUEUED": 1}
        edit(virtual_engine, ids[0], payload='{"a": 1}')
        assert row(virtual_engine, ids[0]).status == "PENDING"

    def test_not_what_has_started_or_left(self, virtual_engine):
        """A message of an earlier hand-over may have been read after all."""
        token, ids = queued(virtual_engine, 2)
        begin(virtual_engine, messages(token, ids[:1]))
        refuse(virtual_engine, token, ids[0])
        refuse(virtual_engine, uuid4(), ids[1])
        assert where(virtual_engine, token) == {"QUEUED": 1, "RUNNING": 1}
        assert claim_row(virtual_engine, token).job_count == 2

    def test_a_removed_row(self, virtual_engine):
        """Its tombstone was kept for the claim alone."""
        token, [job] = queued(virtual_engine)
        sql(virtual_engine, "DELETE FROM cronless.scheduled_job WHERE id = :id", id=job)
        refuse(virtual_engine, token, job)
        assert not exists(virtual_engine, job)


class TestWaiting:
    def test_what_claims_wait_for(self, virtual_engine):
        """Unstarted, started, and started with a lease that ran out; an outcome that waits for a tick is none."""
        token, ids = queued(virtual_engine, 5)
        dispatched(virtual_engine, token, NOW + MINUTE)
        begin(virtual_engine, messages(token, ids[:2]), lease=60)
        begin(virtual_engine, messages(token, ids[2:3]), lease=3_600)
        sql(
            virtual_engine,
            "UPDATE cronless.scheduled_job SET report = '{}', plan_count = plan_count + 1 WHERE id = :id",
            id=ids[0],
        )
        assert waiting(virtual_engine, token, NOW + 2 * MINUTE) == outbox.QueuedClaim(
            token, NOW + MINUTE, queued=2, running=3, lapsed=1, overtaken=False
        )

    def test_other_routes_and_closed_claims(self, virtual_engine):
        """They wait for nothing of this route."""
        _, [job] = queued(virtual_engine)
        token = row(virtual_engine, job).claim_id
        finish(virtual_engine, begin(virtual_engine, messages(token, [job])).jobs)
        queued_elsewhere = add_row(virtual_engine, next_run_at=NOW)
        assert claim(virtual_engine) == row(virtual_engine, queued_elsewhere).claim_id
        with transaction(virtual_engine) as connection:
            assert outbox.queued_claims(connection, NOW) == {}


class TestOvertaking:
    """Queues are first in, first out: what was published a lease later and has started has overtaken the rest."""

    LATER = NOW + timedelta(seconds=LEASE)

    def lagging(self, engine):
        """Return a claim whose only job nobody starts."""
        token, _ = queued(engine)
        dispatched(engine, token)
        return token

    def test_a_start_a_lease_later(self, virtual_engine):
        """Neither that the later claim was published nor a start less than a lease later says anything."""
        token = self.lagging(virtual_engine)
        soon, [early] = queued(virtual_engine, now=self.LATER - MINUTE)
        dispatched(virtual_engine, soon, self.LATER - MINUTE)
        begin(virtual_engine, messages(soon, [early]), self.LATER)
        later, [job] = queued(virtual_engine, now=self.LATER)
        dispatched(virtual_engine, later, self.LATER)
        assert not waiting(virtual_engine, token, self.LATER).overtaken
        begin(virtual_engine, messages(later, [job]), self.LATER)
        assert waiting(virtual_engine, token, self.LATER).overtaken
        assert not waiting(virtual_engine, soon, self.LATER).overtaken

    def test_a_start_before_the_last_confirm(self, virtual_engine):
        """Workers may be faster than the publishing of the rest: it is a start of what was published later."""
        token = self.lagging(virtual_engine)
        later, [job, _] = queued(virtual_engine, 2, now=self.LATER)
        begin(virtual_engine, messages(later, [job]), self.LATER)
        assert claim_row(virtual_engine, later).state == "CLAIMED"
        assert waiting(virtual_engine, token, self.LATER).overtaken

    def test_an_early_start_of_what_was_published_twice(self, virtual_engine):
        """Its second copies are new, its noted start is old: nothing that lies before them was overtaken."""
        first, ids = queued(virtual_engine, 2)
        dispatched(virtual_engine, first)
        begin(virtual_engine, messages(first, ids[:1]))
        backlog, _ = queued(virtual_engine, now=NOW + MINUTE)
        dispatched(virtual_engine, backlog, NOW + MINUTE)
        again(virtual_engine, first)
        dispatched(virtual_engine, first, NOW + 2 * HOUR, dispatch=1)
        assert not waiting(virtual_engine, backlog, NOW + 2 * HOUR).overtaken

    def test_a_claim_that_took_long_to_publish(self, virtual_engine):
        """Its first page has started long before its last was confirmed: that overtakes nothing between them."""
        slow, ids = queued(virtual_engine, 2)
        begin(virtual_engine, messages(slow, ids[:1]))
        backlog, _ = queued(virtual_engine, now=NOW + MINUTE)
        dispatched(virtual_engine, backlog, NOW + MINUTE)
        dispatched(virtual_engine, slow, NOW + 2 * HOUR)
        assert not waiting(virtual_engine, backlog, NOW + 2 * HOUR).overtaken

    def test_another_queue(self, virtual_engine):
        """Each job type has a queue of its own."""
        token = self.lagging(virtual_engine)
        other, [job] = queued(virtual_engine, now=self.LATER, job_type="renewal")
        begin(virtual_engine, messages(other, [job]), self.LATER)
        assert not waiting(virtual_engine, token, self.LATER).overtaken

    def test_a_closed_claim_counts(self, virtual_engine):
        """What has long been done was started as well."""
        token = self.lagging(virtual_engine)
        later, [job] = queued(virtual_engine, now=self.LATER)
        finish(virtual_engine, begin(virtual_engine, messages(later, [job]), self.LATER).jobs, now=self.LATER)
        assert claim_row(virtual_engine, later).state == "CLOSED"
        assert waiting(virtual_engine, token, self.LATER).overtaken


class TestSplitting:
    def test_each_into_a_claim_of_its_own(self, virtual_engine):
        """Published anew under a token of its own; what nobody started, and what runs on, stays where it is."""
        token, ids = queued(virtual_engine, 5)
        dispatched(virtual_engine, token)
        begin(virtual_engine, messages(token, ids[:2]), lease=60)
        begin(virtual_engine, messages(token, ids[2:3]), lease=3_600)
        later = set_clock(virtual_engine, NOW + 2 * MINUTE)
        assert split(virtual_engine, token, later) == 2
        found = [row(virtual_engine, one) for one in ids]
        assert [one.status for one in found] == ["QUEUED", "QUEUED", "RUNNING", "QUEUED", "QUEUED"]
        assert len({one.claim_id for one in found}) == 3
        assert [(one.execution_id, one.lease_expires_at) for one in found[:2]] == [(None, None)] * 2
        # The try was made; nothing else is counted of a job that may be innocent.
        assert [(one.attempt, one.crashes, one.consecutive_failures) for one in found[:2]] == [(1, 0, 0)] * 2
        for one in found[:2]:
            child = claim_row(virtual_engine, one.claim_id)
            assert (child.parent_id, child.route, child.job_count, child.state) == (
                token,
                "queue",
                1,
                "CLAIMED",
            )
        assert claim_row(virtual_engine, token).job_count == 3
        assert split(virtual_engine, token, later) == 0

    def test_a_locked_row_is_left(self, virtual_engine):
        """Its holder may be finishing it this very moment."""
        token, ids = queued(virtual_engine, 2)
        begin(virtual_engine, messages(token, ids), lease=60)
        later = set_clock(virtual_engine, NOW + 2 * MINUTE)
        with virtual_engine.begin() as other:
            other.exec_driver_sql(
                "SELECT 1 FROM cronless.scheduled_job WHERE id = %s FOR UPDATE", (str(ids[0]),)
            )
            assert split(virtual_engine, token, later) == 1
        assert split(virtual_engine, token, later) == 1
        assert claim_row(virtual_engine, token).job_count == 0

    def test_alone_again_after_a_crash(self, virtual_engine):
        """A job that died alone keeps its try as its start counted it, and gets a token of its own anew."""
        token, [job] = queued(virtual_engine)
        begin(virtual_engine, messages(token, [job]), lease=60)
        later = set_clock(virtual_engine, NOW + 2 * MINUTE)
        with transaction(virtual_engine) as connection:
            locked = claims.lock_claim(connection, token)
            assert not claims.requeue_lapsed_jobs(connection, token, later)
            assert not claims.crash_alone(connection, locked, 3, "died", later)
            claims.split_claim(connection, token, 1, later)
        found = row(virtual_engine, job)
        assert (found.attempt, found.crashes, found.status) == (1, 1, "QUEUED")
        assert found.claim_id != token
