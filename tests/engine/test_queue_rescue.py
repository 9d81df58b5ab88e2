"""The queue route's rescue: what is lost is found and published once more, and what is only waiting is left alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from cronless_dagster.engine import queueing
from cronless_dagster.engine.queue_rescue import decide_queued, rescue_lapsed
from cronless_dagster.engine.rescue import MAX_CRASHES
from cronless_dagster.rabbitmq.confirms import Delivery
from cronless_dagster.scheduling.limits import Limits
from cronless_dagster.scheduling.shards import from_prefix
from cronless_dagster.store import executions
from cronless_dagster.store.claims import Claim, open_claims
from cronless_dagster.store.database import transaction
from cronless_dagster.store.outbox import QueuedClaim
from tests.engine.queues import FakeBroker, counters, finish, make_due, queue_types, start, work_off
from tests.engine.support import (
    NOON,
    World,
    after,
    claims,
    history,
    nothing,
    outcomes,
    row,
    sql,
    types_of,
)

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cronless_dagster.rabbitmq.messages import JobMessage

LEASE = timedelta(minutes=10)
SECOND = timedelta(seconds=1)
TOKEN = UUID(int=1)


@pytest.fixture
def queues() -> FakeBroker:
    """Queues in memory."""
    return FakeBroker()


@pytest.fixture
def world(virtual: Engine) -> World:
    """The job type "work" on the queue route, a lease of ten minutes."""
    return World(virtual, queue_types(lease=LEASE))


def a_claim(**values: object) -> Claim:
    """Return a claim whose messages were confirmed at noon."""
    made = Claim(
        id=TOKEN,
        job_type="work",
        route="queue",
        id_low=UUID(int=0),
        manual=False,
        job_count=10,
        done_count=0,
        failed_count=0,
        state="SUBMITTED",
        dispatches=0,
        run_id=None,
        execution_id=None,
        lease_seconds=600,
        lease_expires_at=NOON + LEASE,
        oldest_due_at=NOON,
        handed_over_at=None,
        created_at=NOON,
        started_at=None,
        parent_id=None,
    )
    return replace(made, **values)


def holds(**values: object) -> QueuedClaim:
    """Return what such a claim waits for: ten unstarted jobs, unless told otherwise."""
    return replace(QueuedClaim(TOKEN, NOON, queued=10, running=0, lapsed=0, overtaken=False), **values)


class TestDecide:
    """The rule, as a table."""

    @pytest.mark.parametrize(
        ("case", "claim", "held", "empty_since", "now", "action"),
        [
            ("nothing is left", {}, {"queued": 0}, None, NOON, "close"),
            ("nothing is left, unsent", {"state": "CLAIMED"}, {"queued": 0}, None, NOON, "close"),
            ("all of it runs", {}, {"queued": 0, "running": 3}, NOON, NOON + 9 * LEASE, "keep"),
            ("a backlog of a day", {}, {}, None, NOON + timedelta(days=1), "keep"),
            ("overtaken", {}, {"overtaken": True}, None, NOON + LEASE, "again"),
            ("overtaken, the rest runs", {}, {"overtaken": True, "running": 9}, None, NOON + LEASE, "again"),
            ("overtaken once more", {"dispatches": 1}, {"overtaken": True}, None, NOON + LEASE, "release"),
            ("unsent, although overtaken", {"state": "CLAIMED"}, {"overtaken": True}, None, NOON, "keep"),
            ("unsent for long", {"state": "CLAIMED"}, {"submitted_at": None}, NOON, NOON + 9 * LEASE, "keep"),
            ("the queue is empty", {}, {}, NOON, NOON + LEASE, "keep"),
            ("it has been for a lease", {}, {}, NOON, NOON + LEASE + SECOND, "again"),
            ("it had been before", {}, {}, NOON - 9 * LEASE, NOON + LEASE, "keep"),
            ("it is since lately", {}, {}, NOON + LEASE, NOON + 2 * LEASE, "keep"),
            ("emptied again", {"dispatches": 1}, {}, NOON, NOON + LEASE + SECOND, "release"),
        ],
    )
    def test_served(
        self,
        case: str,
        claim: dict[str, object],
        held: dict[str, object],
        empty_since: datetime | None,
        now: datetime,
        action: str,
    ) -> None:
        """Of a job type that is on the queue route."""
        assert decide_queued(a_claim(**claim), holds(**held), empty_since, now) == action, case

    @pytest.mark.parametrize(
        ("claim", "held", "now", "action"),
        [
            ({}, {}, NOON + LEASE, "keep"),
            ({}, {}, NOON + LEASE + SECOND, "release"),
            ({"state": "CLAIMED"}, {"submitted_at": None}, NOON + LEASE + SECOND, "release"),
            ({}, {"queued": 0, "running": 1}, NOON + 9 * LEASE, "keep"),
            ({}, {"queued": 0}, NOON, "close"),
        ],
    )
    def test_no_longer_served(
        self, claim: dict[str, object], held: dict[str, object], now: datetime, action: str
    ) -> None:
        """Of one that has left it: what nobody starts goes back after a lease, whatever its queue looks like."""
        assert decide_queued(a_claim(**claim), holds(**held), None, now, served=False) == action


def print_of_rows(engine: Engine) -> str:
    """Return what changes with each version of a row, be it the same as before."""
    [(found,)] = sql(
        engine,
        "SELECT md5(string_agg(ctid::text || xmin::text, ',' ORDER BY id)) FROM cronless.scheduled_job",
    )
    return found


class TestBacklog:
    """What waits in a queue is not lost, however long."""

    def test_a_backlog_costs_no_write(self, world: World, queues: FakeBroker) -> None:
        """20,000 jobs wait for many leases: no row and no claim is written, nothing is published anew."""
        world.types = queue_types(lease=LEASE, batch_size=1_000)
        make_due(world.engine, 20_000)
        assert world.tick(queue=queues).published == {"work": 20_000}
        rows, made = print_of_rows(world.engine), claims(world.engine)
        for minute in range(1, 92, 9):
            report = world.tick(after(minutes=minute), queue=queues)
            assert (report.errors, report.reconciled, report.published, report.claimed) == ([], {}, {}, {})
        assert print_of_rows(world.engine) == rows
        assert claims(world.engine) == made
        assert len(queues.sent) == 20_000

    def test_one_that_is_worked_off_slowly(self, world: World, queues: FakeBroker) -> None:
        """First in, first out, many leases behind: nothing is overtaken, though later claims come all the while."""
        world.types = queue_types(lease=LEASE, batch_size=50)
        make_due(world.engine, 100)
        world.tick(queue=queues)
        for minute in range(8, 168, 8):
            make_due(world.engine, 4, after(minutes=minute))
            report = world.tick(after(minutes=minute), queue=queues)
            assert report.reconciled.keys() <= {"closed"}
            jobs = start(world.engine, queues.take(count=4), world.at).jobs
            assert len(finish(world.engine, jobs, world.at)) == 4
        assert len(queues.sent_ids) == len(set(queues.sent_ids)) == 100 + 4 * 20
        assert counters(world.engine) == {(0, 0, 0)}


class Busy:
    """A queue that is never empty, whose workers start and finish whatever reaches them."""

    def __init__(self, world: World, queues: FakeBroker) -> None:
        self.world, self.queues = world, queues
        self.minute = 0
        self.last: list[JobMessage] = []

    def go(self, minutes: int) -> dict[str, int]:
        """Let so many minutes pass, a tick and a new job in each; returns what was reconciled."""
        happened: dict[str, int] = {}
        for _ in range(minutes):
            self.minute += 1
            make_due(self.world.engine, 1, after(minutes=self.minute))
            report = self.world.tick(after(minutes=self.minute), queue=self.queues)
            assert report.errors == []
            for what, number in report.reconciled.items():
                happened[what] = happened.get(what, 0) + number
            done = self.queues.take(count=max(len(self.queues.queues["work"]) - 1, 0))
            finish(self.world.engine, start(self.world.engine, done, self.world.at).jobs, self.world.at)
        return happened


class TestLostMessages:
    """What is lost on its way is found by what overtakes it, or by the queue's emptiness."""

    def test_one_on_a_busy_queue(self, world: World, queues: FakeBroker) -> None:
        """It is published once more, it alone, with the same token; once is enough, and nobody's counters move."""
        make_due(world.engine, 5)
        world.tick(queue=queues)
        [lost] = queues.take(count=1)
        busy = Busy(world, queues)
        assert busy.go(10) == {}
        assert busy.go(2) == {"again": 1}
        assert queues.sent_ids.count(lost.job_id) == 2
        assert [one.token for one in queues.sent if one.job_id == lost.job_id] == [lost.token] * 2
        assert len(queues.sent) == len(set(queues.sent_ids)) + 1
        assert "released" not in busy.go(15)
        assert outcomes(world.engine, lost.job_id) == ["success"]
        assert queues.sent_ids.count(lost.job_id) == 2
        assert counters(world.engine) == {(0, 0, 0)}

    def test_lost_once_more(self, world: World, queues: FakeBroker) -> None:
        """Then it goes back to be claimed anew, as it was: no try is counted, no failure."""
        [lost] = make_due(world.engine, 1)
        world.tick(queue=queues)
        queues.take()
        busy = Busy(world, queues)
        busy.go(1)
        queues.loses = lost
        assert busy.go(12)["again"] == 1
        released = 0
        while not released:
            assert busy.minute < 40, "never released"
            released = busy.go(1).get("released", 0)
        found = row(world.engine, lost)
        assert (found.attempt, found.crashes, found.consecutive_failures) == (0, 0, 0)
        assert history(world.engine, lost) == []
        first = claims(world.engine)[0]
        assert (first.state, first.close_reason, first.dispatches, first.job_count) == (
            "CLOSED",
            "released",
            1,
            0,
        )
        # The same tick has claimed it anew, under another token.
        assert (found.status, found.scheduled_for or found.serving_at) == ("QUEUED", NOON)
        assert found.claim_id != first.id

    def test_late_copies_are_stale(self, world: World, queues: FakeBroker) -> None:
        """A message that turns up after its job went back starts nothing."""
        [job] = make_due(world.engine, 1)
        world.tick(queue=queues)
        late = queues.take()
        world.tick(after(minutes=1), queue=queues)
        world.tick(after(minutes=12), queue=queues)
        late += queues.take()
        world.tick(after(minutes=13), queue=queues)
        assert world.tick(after(minutes=24), queue=queues).reconciled == {"released": 1}
        assert start(world.engine, late[:1], world.at).stale == {job}
        assert start(world.engine, late[1:], world.at).stale == {job}
        assert work_off(world.engine, queues, world.at) == {job}

    def test_a_queue_that_lost_everything(self, world: World, queues: FakeBroker) -> None:
        """Seen empty for a lease, nobody can hold a message of it: what it held is published once more."""
        ids = make_due(world.engine, 20)
        world.tick(queue=queues)
        started = start(world.engine, queues.take(count=3), NOON, lease_seconds=86_400).jobs
        world.tick(after(minutes=1), queue=queues)
        queues.queues.clear()
        for minute in range(2, 13):
            assert world.tick(after(minutes=minute), queue=queues).reconciled == {}
        report = world.tick(after(minutes=13), queue=queues)
        assert (report.reconciled, report.published) == ({"again": 1}, {"work": 17})
        finish(world.engine, started, world.at)
        assert len(work_off(world.engine, queues, world.at)) == 17
        assert sorted(line.job_id for line in history(world.engine)) == ids
        assert counters(world.engine) == {(0, 0, 0)}

    def test_what_was_published_lately_is_on_its_way(self, world: World, queues: FakeBroker) -> None:
        """A queue that has been empty for hours says nothing about what came into it a minute ago."""
        for minute in range(0, 60, 10):
            world.tick(after(minutes=minute), queue=queues)
        make_due(world.engine, 3, after(hours=1))
        world.tick(after(hours=1), queue=queues)
        held = queues.take()
        assert world.tick(after(hours=1, minutes=9), queue=queues).reconciled == {}
        assert len(start(world.engine, held, world.at).jobs) == 3

    def test_seen_by_no_tick(self, world: World, queues: FakeBroker) -> None:
        """A dispatcher away for hours finds the queue empty at last, and waits a lease before it believes it."""
        make_due(world.engine, 3)
        world.tick(queue=queues)
        world.tick(after(minutes=1), queue=queues)
        queues.take()
        assert world.tick(after(hours=5), queue=queues).reconciled == {}
        assert world.tick(after(hours=5, minutes=10), queue=queues).reconciled == {}
        assert world.tick(after(hours=5, minutes=11), queue=queues).reconciled == {"again": 1}


class TestDeadWorkers:
    """What a worker had started when it died."""

    def test_each_alone(self, world: World, queues: FakeBroker) -> None:
        """Each started job gets a claim of its own and a message that says so; nobody bears a crash for it."""
        ids = make_due(world.engine, 5)
        world.tick(queue=queues)
        started = queues.take(count=3)
        start(world.engine, started, NOON)
        assert world.tick(NOON + LEASE, queue=queues).reconciled == {}
        report = world.tick(NOON + LEASE + SECOND, queue=queues)
        assert (report.errors, report.reconciled, report.published) == ([], {"split": 1}, {"work": 3})
        again = queues.sent[5:]
        assert sorted(one.job_id for one in again) == sorted(one.job_id for one in started)
        assert [one.alone for one in queues.sent] == [False] * 5 + [True] * 3
        assert len({one.token for one in again}) == 3
        assert counters(world.engine) == {(0, 0, 0), (1, 0, 0)}
        # What the dead worker would still say is not heard.
        assert len(start(world.engine, started, world.at).stale) == 3
        assert work_off(world.engine, queues, world.at) == set(ids)
        assert sorted(outcomes(world.engine)) == ["success"] * 5
        assert {one.state for one in claims(world.engine)} == {"CLOSED"}

    def test_a_living_worker_is_left_alone(self, world: World, queues: FakeBroker) -> None:
        """Whoever renews keeps its jobs for as long as they take."""
        make_due(world.engine, 2)
        world.tick(queue=queues)
        jobs = start(world.engine, queues.take(), NOON).jobs
        for minute in range(5, 100, 5):
            with transaction(world.engine) as connection:
                executions.renew_jobs(connection, jobs, 600, after(minutes=minute))
            assert world.tick(after(minutes=minute), queue=queues).reconciled == {}
        assert len(finish(world.engine, jobs, world.at)) == 2

    def test_one_that_renewed_after_all(self, world: World, queues: FakeBroker) -> None:
        """Between the tick's look and its rescue: the job stays where it is."""
        make_due(world.engine, 1)
        world.tick(queue=queues)
        jobs = start(world.engine, queues.take(), NOON).jobs
        for _ in range(2):
            with transaction(world.engine) as connection:
                [seen] = open_claims(connection)
                executions.renew_jobs(connection, jobs, 600, NOON + LEASE)
            assert rescue_lapsed(world.engine, seen, 1, NOON + LEASE + SECOND) is None
            # The second time with one that is alone.
            sql(world.engine, "UPDATE cronless.job_claim SET alone = true")
        assert len(finish(world.engine, jobs, world.at)) == 1

    def test_a_reported_outcome_is_safe(self, world: World, queues: FakeBroker) -> None:
        """A worker in another language that reported and died has finished: its outcome is taken."""
        [job] = make_due(world.engine, 1)
        world.tick(queue=queues)
        [message] = queues.take()
        start(world.engine, [message], NOON)
        found = row(world.engine, job)
        sql(
            world.engine,
            "SELECT cronless.cronless_finish(:job, :token, :me, 'success')",
            job=job,
            token=found.claim_id,
            me=found.execution_id,
        )
        report = world.tick(NOON + 5 * LEASE, queue=queues)
        assert (report.finished, report.reconciled) == (1, {})
        assert outcomes(world.engine, job) == ["success"]
        assert claims(world.engine)[0].state == "CLOSED"

    def test_a_job_that_kills_its_worker(self, world: World, queues: FakeBroker) -> None:
        """It dies in company once, which counts against nobody, then alone three times, and is INVALID."""
        ids = make_due(world.engine, 4)
        killer = ids[2]
        world.tick(queue=queues)
        deaths = 0
        for number in range(1, 9):
            messages = queues.take()
            mine = [one for one in messages if one.job_id == killer]
            if number == 1:
                start(world.engine, messages, world.at)
            else:
                jobs = start(world.engine, [one for one in messages if one.job_id != killer], world.at).jobs
                finish(world.engine, jobs, world.at)
                start(world.engine, mine, world.at)
            deaths += len(mine)
            world.tick(NOON + number * (LEASE + SECOND), queue=queues)
        assert deaths == 1 + MAX_CRASHES
        found = row(world.engine, killer)
        assert (found.status, found.crashes, found.claim_id) == ("INVALID", MAX_CRASHES, None)
        assert found.invalid_reason == "kills its worker: 3 holders died with this job alone"
        assert outcomes(world.engine, killer) == ["crashed"] * MAX_CRASHES
        assert [line.attempt for line in history(world.engine, killer)] == [2, 3, 4]
        for one in set(ids) - {killer}:
            assert outcomes(world.engine, one) == ["success"]
            assert row(world.engine, one).crashes == 0
        assert {one.state for one in claims(world.engine)} == {"CLOSED"}

    def test_a_lost_message_of_one_that_is_alone(self, world: World, queues: FakeBroker) -> None:
        """Nobody has started it: it comes once more, alone still, and bears nothing."""
        [job] = make_due(world.engine, 1)
        world.tick(queue=queues)
        start(world.engine, queues.take(), NOON)
        world.tick(NOON + LEASE + SECOND, queue=queues)
        queues.take()
        world.tick(NOON + LEASE + 2 * SECOND, queue=queues)
        assert world.tick(NOON + 3 * LEASE, queue=queues).reconciled == {"again": 1}
        [message] = queues.take()
        assert message.alone
        assert row(world.engine, job).crashes == 0
        assert len(start(world.engine, [message], world.at).jobs) == 1

    def test_both_in_one_claim(self, world: World, queues: FakeBroker) -> None:
        """Of one claim some died while they ran and some were lost: each is rescued in its way at one tick."""
        make_due(world.engine, 4)
        world.tick(queue=queues)
        start(world.engine, queues.take(count=1), NOON)
        finish(world.engine, start(world.engine, queues.take(count=1), NOON).jobs, NOON)
        queues.take()
        world.tick(after(minutes=1), queue=queues)
        report = world.tick(after(minutes=12), queue=queues)
        assert (report.reconciled, report.published) == ({"split": 1, "again": 1}, {"work": 3})
        assert sorted(one.alone for one in queues.sent[4:]) == [False, False, True]
        assert len(work_off(world.engine, queues, world.at)) == 3
        assert {one.state for one in claims(world.engine)} == {"CLOSED"}

    def test_many_that_died_together(self, world: World, queues: FakeBroker) -> None:
        """What a worker had started comes back in tenths, in company; who dies in such a tenth comes alone."""
        ids = make_due(world.engine, 30)
        world.tick(queue=queues)
        start(world.engine, queues.take(), NOON)
        world.tick(NOON + LEASE + SECOND, queue=queues)
        second = queues.take()
        assert Counter(Counter(one.token for one in second).values()) == {3: 10}
        assert not any(one.alone for one in second)
        unlucky = second[0].token
        mine = [one for one in second if one.token == unlucky]
        start(world.engine, mine, world.at)
        rest = start(world.engine, [one for one in second if one.token != unlucky], world.at).jobs
        finish(world.engine, rest, world.at)
        world.tick(NOON + 2 * (LEASE + SECOND), queue=queues)
        third = queues.take()
        assert {one.job_id for one in third} == {one.job_id for one in mine}
        assert len({one.token for one in third}) == 3
        assert all(one.alone for one in third)
        finish(world.engine, start(world.engine, third, world.at).jobs, world.at)
        assert all(outcomes(world.engine, one) == ["success"] for one in ids)
        assert {row(world.engine, one).crashes for one in ids} == {0}
        assert {one.state for one in claims(world.engine)} == {"CLOSED"}

    def test_the_last_of_a_group_was_in_company(self, world: World, queues: FakeBroker) -> None:
        """A job whose group has shrunk to it did not run alone, and bears no crash."""
        make_due(world.engine, 20)
        world.tick(queue=queues)
        start(world.engine, queues.take(), NOON)
        world.tick(NOON + LEASE + SECOND, queue=queues)
        messages = queues.take()
        pair = [one for one in messages if one.token == messages[0].token]
        assert len(pair) == 2
        start(world.engine, pair[:1], world.at)
        start(world.engine, pair[1:], world.at + LEASE)
        world.tick(world.at + LEASE + SECOND, queue=queues)
        world.tick(world.at + 2 * LEASE + 2 * SECOND, queue=queues)
        assert {row(world.engine, one.job_id).crashes for one in pair} == {0}

    def test_many_deaths_leave_room(self, world: World, queues: FakeBroker) -> None:
        """A worker that died with more jobs than claims may be open holds up new ones until those are done."""
        world.types = queue_types(lease=LEASE, batch_size=10, limits=Limits(open_claims=5))
        make_due(world.engine, 10)
        world.tick(queue=queues)
        start(world.engine, queues.take(), NOON)
        make_due(world.engine, 1)
        report = world.tick(NOON + LEASE + SECOND, queue=queues)
        assert (report.published, report.claimed) == ({"work": 10}, {})
        assert "claims" in report.left["work"]
        work_off(world.engine, queues, world.at)
        assert world.tick(NOON + LEASE + 2 * SECOND, queue=queues).claimed == {"work": 1}


class TestWhoseClaim:
    """Which claims a tick may rescue."""

    def lose(self, world: World, queues: FakeBroker, **options: object) -> UUID:
        """Publish a job whose message is lost; returns its id."""
        [job] = make_due(world.engine, 1)
        world.tick(queue=queues, **options)
        queues.take()
        world.tick(after(minutes=1), queue=queues, **options)
        return job

    def test_of_a_type_that_moved_to_the_run_route(self, world: World, queues: FakeBroker) -> None:
        """What nobody starts goes back after a lease, and a run takes it; what runs is left to its worker."""
        ids = make_due(world.engine, 3)
        world.tick(queue=queues)
        running = start(world.engine, queues.take(count=1), NOON, lease_seconds=86_400).jobs
        world.types = types_of(nothing, lease=LEASE)
        assert world.tick(NOON + LEASE, queue=queues).reconciled == {}
        report = world.tick(NOON + LEASE + SECOND, queue=queues)
        assert report.reconciled == {"released": 1}
        assert (report.claimed, report.published) == ({"work": 2}, {})
        assert [one.job_count for one in report.hand_over] == [2]
        assert len(finish(world.engine, running, world.at)) == 1
        assert len(start(world.engine, queues.take(), world.at).stale) == 2
        world.launch_and_run(report)
        assert sorted(line.job_id for line in history(world.engine)) == ids
        assert {one.state for one in claims(world.engine)} == {"CLOSED"}

    def test_what_waits_unsent_for_such_a_type(self, world: World, queues: FakeBroker) -> None:
        """It was never published, and isn't any more."""
        make_due(world.engine, 1)
        queues.verdict = lambda _: Delivery.UNKNOWN
        world.tick(queue=queues)
        world.types = types_of(nothing, lease=LEASE)
        report = world.tick(NOON + LEASE + SECOND, queue=queues)
        assert (report.reconciled, report.claimed) == ({"released": 1}, {"work": 1})

    def test_of_a_type_that_others_declare(self, world: World, queues: FakeBroker) -> None:
        """Another code location serves it: its claims are none of ours, until nobody has declared it for a day."""
        job = self.lose(world, queues)
        world.types = queue_types("other", lease=LEASE)
        for hour in (1, 12, 23):
            assert world.tick(after(hours=hour), queue=queues).reconciled == {}
        assert row(world.engine, job).status == "QUEUED"
        assert world.tick(after(hours=25), queue=queues).reconciled == {"released": 1}
        found = row(world.engine, job)
        assert (found.status, found.next_run_at, found.attempt) == ("PENDING", NOON, 0)

    def test_of_another_shard(self, world: World, queues: FakeBroker) -> None:
        """It is left to whoever's range holds its lower bound."""
        low, high = from_prefix("0"), from_prefix("8")
        sql(
            world.engine,
            "INSERT INTO cronless.scheduled_job (id, tenant_id, job_type, schedule, next_run_at, scheduled_for)"
            " VALUES ('80000000-0000-4000-8000-000000000000', 't', 'work', '@daily', :at, :at)",
            at=NOON,
        )
        world.tick(ids=high, queue=queues)
        start(world.engine, queues.take(), NOON)
        for minute in (1, 12, 30):
            assert world.tick(after(minutes=minute), ids=low, queue=queues).reconciled == {}
        assert world.tick(after(minutes=31), ids=high, queue=queues).reconciled == {"split": 1}

    def test_one_that_cannot_be_mended(
        self, world: World, queues: FakeBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is told of, and keeps no other from its rescue."""
        world.types = queue_types("a", "b", lease=LEASE)
        make_due(world.engine, 1, job_type="a")
        make_due(world.engine, 1, job_type="b")
        world.tick(queue=queues)
        for name in ("a", "b"):
            start(world.engine, queues.take(name), NOON)
        real = queueing.rescue_lapsed

        def broken(engine: Engine, claim: Claim, lapsed: int, now: datetime | None) -> str | None:
            if claim.job_type == "a":
                sql(engine, "SELECT 1/0")
            return real(engine, claim, lapsed, now)

        monkeypatch.setattr(queueing, "rescue_lapsed", broken)
        report = world.tick(NOON + LEASE + SECOND, queue=queues)
        assert report.reconciled == {"split": 1}
        assert len(report.errors) == 1
        assert "division by zero" in report.errors[0]
