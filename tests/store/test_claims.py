"""Claiming: each row once, fair among tenants, no neighbour's rows, no more than the limits."""

from __future__ import annotations

import sys
import textwrap
import threading
from collections import Counter
from uuid import UUID

import pytest
from sqlalchemy import text

from cronless_dagster.engine.claiming import claim_one
from cronless_dagster.engine.job_types import JobType
from cronless_dagster.engine.tick import tick as engine_tick
from cronless_dagster.scheduling.limits import Limits
from cronless_dagster.scheduling.shards import FULL, from_prefix, shard
from cronless_dagster.store import claims, fairness
from cronless_dagster.store.database import transaction
from cronless_dagster.store.fairness import Waiting, due_tenants, more_due_than, waiting_types
from cronless_dagster.store.planning import take_unplanned
from tests.store.rows import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    claim,
    claim_row,
    due_row,
    job_types,
    row,
    sql,
    start,
)

UNLIMITED = Limits(open_claims=None)


def many_due(engine, tenants, each, *, first=1, job_type="digest"):
    """Insert due rows of so many tenants, so many of each; ids are spread over the whole space."""
    sql(
        engine,
        "INSERT INTO cronless.scheduled_job (tenant_id, job_type, name, schedule, next_run_at, scheduled_for)"
        " SELECT 'tenant ' || to_char(tenant, 'FM00000'), :job_type, tenant || '/' || n, '0 * * * *', :due, :due"
        " FROM generate_series(CAST(:first AS integer), CAST(:last AS integer)) AS tenant,"
        " generate_series(1, CAST(:each AS integer)) AS n",
        job_type=job_type,
        first=first,
        last=first + tenants - 1,
        each=each,
        due=NOW,
    )


def make_claim(engine, job_type, ids=FULL):
    """Make one claim as a tick does; returns its id, or None."""
    return claim_one(engine, job_type, Waiting(NOW, None), route="run", ids=ids, now=NOW).claim_id


def tenants_of(engine, claim_id):
    """Count the claim's rows by tenant."""
    rows = sql(engine, "SELECT tenant_id FROM cronless.scheduled_job WHERE claim_id = :id", id=claim_id)
    return Counter(one.tenant_id for one in rows)


class TestClaim:
    def test_longest_due_first(self, virtual_engine):
        """A batch takes the rows that have waited longest, and says since when."""
        late, later = due_row(virtual_engine, NOW - 2 * HOUR), due_row(virtual_engine, NOW - HOUR)
        due_row(virtual_engine, NOW - MINUTE)
        claim_id = claim(virtual_engine, most=2)
        taken = sql(virtual_engine, "SELECT id FROM cronless.scheduled_job WHERE status = 'QUEUED'")
        assert {one.id for one in taken} == {late, later}
        made = claim_row(virtual_engine, claim_id)
        assert (made.job_count, made.oldest_due_at, made.state, made.id_low) == (
            2,
            NOW - 2 * HOUR,
            "CLAIMED",
            UUID(int=0),
        )

    def test_only_what_is_due(self, virtual_engine):
        """Neither what lies ahead nor other types, ended, paused or claimed rows are taken; due is inclusive."""
        due_row(virtual_engine, NOW + MINUTE)
        due_row(virtual_engine, job_type="other")
        due_row(virtual_engine, status="DONE")
        due_row(virtual_engine, paused_at=NOW)
        assert claim(virtual_engine) is None
        job = due_row(virtual_engine)
        claim(virtual_engine)
        assert row(virtual_engine, job).status == "QUEUED"
        assert claim(virtual_engine) is None
        assert sql(virtual_engine, "SELECT count(*) FROM cronless.job_claim") == [(1,)]

    def test_nothing_is_written_where_nothing_is_due(self, virtual_engine):
        """A claim of nothing leaves no claim behind."""
        assert claim(virtual_engine) is None
        assert sql(virtual_engine, "SELECT 1 FROM cronless.job_claim") == []

    def test_claim_and_rows_are_one_transaction(self, virtual_engine):
        """A dispatcher that dies before its commit leaves neither claimed rows nor a claim."""
        job = due_row(virtual_engine)
        with virtual_engine.connect() as connection:
            taken = claims.claim_due(
                connection, job_type="digest", route="run", batch_size=9, lease_seconds=9, now=NOW, ids=FULL
            )
            assert taken.count == 1
        assert row(virtual_engine, job).status == "PENDING"
        assert sql(virtual_engine, "SELECT 1 FROM cronless.job_claim") == []

    def test_rows_locked_by_others_are_passed_over(self, virtual_engine):
        """A second dispatcher takes the rest instead of waiting for the first one's rows."""
        due_row(virtual_engine)
        with transaction(virtual_engine) as connection:
            claims.claim_due(
                connection, job_type="digest", route="run", batch_size=9, lease_seconds=9, now=NOW, ids=FULL
            )
            other = due_row(virtual_engine)
            [taken] = start(virtual_engine, claim(virtual_engine)).jobs
            assert taken.id == other

    def test_nominal_instant_is_kept_apart_from_the_due_one(self, virtual_engine):
        """The occurrence served is the nominal one, never the jittered instant and never now."""
        due_row(virtual_engine, NOW - MINUTE, name="a")
        sql(
            virtual_engine,
            "UPDATE cronless.scheduled_job SET scheduled_for = :at, plan_count = 9",
            at=NOW - HOUR,
        )
        [job] = start(virtual_engine, claim(virtual_engine)).jobs
        assert (job.scheduled_for, job.due_at) == (NOW - HOUR, NOW - MINUTE)
        assert job.idempotency_key == f"{job.id}:{(NOW - HOUR).isoformat()}"


class TestTwoDispatchers:
    PROCESS = textwrap.dedent("""
        import sys, time
        from sqlalchemy import text
        from cronless_dagster.engine.job_types import JobType, JobTypes
        from cronless_dagster.engine.local import tick_and_run
        from cronless_dagster.scheduling.limits import Limits
        from cronless_dagster.store.database import create_store_engine

        engine = create_store_engine(sys.argv[1])
        types = JobTypes((JobType(name="digest", handler=lambda _: None, concurrency=1, batch_size=250,
                                  limits=Limits(open_claims=None), claims_per_tick=2),))
        with engine.begin() as connection:
            connection.execute(text("INSERT INTO cronless.progress VALUES (:key, '0', now())"), {"key": sys.argv[2]})
        while True:
            with engine.begin() as connection:
                ready = connection.scalar(text("SELECT count(*) FROM cronless.progress WHERE key LIKE 'ready %'"))
            if ready == 2:
                break
            time.sleep(0.01)
        done = 0
        while True:
            report, ran = tick_and_run(engine, types)
            assert report.errors == [], report.errors
            done += sum(one.succeeded for one in ran)
            if not report.claimed:
                break
        print(done)
    """)

    def test_each_of_ten_thousand_rows_is_claimed_once(self, virtual_engine, spawn, tmp_path):
        """Two dispatchers in processes of their own share 10,000 due rows: none twice, none left."""
        many_due(virtual_engine, 100, 100)
        url = virtual_engine.url.render_as_string(hide_password=False)
        logs = [tmp_path / "a", tmp_path / "b"]
        processes = [
            spawn(sys.executable, "-c", self.PROCESS, url, f"ready {log.name}", output=log) for log in logs
        ]
        for process, log in zip(processes, logs, strict=True):
            assert process.wait(timeout=300) == 0, log.read_text()
        # Lines before the last may say that a row was locked for a moment by the other one.
        done = [int(log.read_text().splitlines()[-1]) for log in logs]
        assert sum(done) == 10_000
        assert all(done), f"one dispatcher did it all alone: {done}"
        served = sql(
            virtual_engine,
            "SELECT count(*) AS rows, count(DISTINCT job_id) AS jobs FROM cronless.job_execution"
            " WHERE outcome = 'success'",
        )
        assert served == [(10_000, 10_000)]
        claimed = sql(
            virtual_engine,
            "SELECT sum(job_count), sum(done_count), bool_and(state = 'CLOSED') FROM cronless.job_claim",
        )
        assert claimed == [(10_000, 10_000, True)]

    def test_threads_that_claim_at_the_same_moment(self, virtual_engine):
        """Claims made at the same moment hold different rows, and their counts are right."""
        many_due(virtual_engine, 4, 250)
        gate = threading.Barrier(4)

        def take() -> None:
            gate.wait(30)
            for _ in range(3):
                claim(virtual_engine, most=100)

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        held = sql(
            virtual_engine,
            "SELECT claim.job_count, count(*) FROM cronless.job_claim AS claim"
            " JOIN cronless.scheduled_job AS job ON job.claim_id = claim.id GROUP BY claim.id",
        )
        assert all(said == has for said, has in held)
        assert sum(said for said, _ in held) <= 1_000


class TestFairness:
    @pytest.mark.slow
    def test_one_large_tenant_and_many_small_ones(self, virtual_engine):
        """Beside a tenant with 100,000 due rows each of 499 others is served by every claim until it has no more."""
        many_due(virtual_engine, 1, 100_000, first=250)
        many_due(virtual_engine, 249, 10)
        many_due(virtual_engine, 250, 10, first=251)
        sql(virtual_engine, "ANALYZE cronless.scheduled_job")
        digest = JobType(name="digest", handler=print, batch_size=1_000, limits=UNLIMITED)
        for _ in range(5):
            counts = tenants_of(virtual_engine, make_claim(virtual_engine, digest))
            assert counts == {f"tenant {n:05}": 2 for n in range(1, 501)}
        assert tenants_of(virtual_engine, make_claim(virtual_engine, digest)) == {"tenant 00250": 1_000}

    @pytest.mark.parametrize(
        ("tenants", "batch", "bound"), [(500, 700, 1), (500, 300, 2), (2_500, 1_000, 3), (7, 3, 3)]
    )
    def test_bound(self, virtual_engine, tenants, batch, bound):
        """Each due tenant is served within so many claims as its type needs to name all tenants, again and again."""
        many_due(virtual_engine, tenants, 2 * bound * (batch // tenants + 1) + 1)
        digest = JobType(name="digest", handler=print, batch_size=batch, limits=UNLIMITED)
        for _ in range(2):
            served = Counter()
            for _ in range(bound):
                counts = tenants_of(virtual_engine, make_claim(virtual_engine, digest))
                assert sum(counts.values()) == batch
                served += counts
            assert len(served) == tenants

    def test_shards_that_take_turns(self, virtual_engine):
        """Two dispatchers with a shard each serve every tenant of their shard, though they take turns."""
        many_due(virtual_engine, 40, 60)
        digest = JobType(name="digest", handler=print, batch_size=20, limits=UNLIMITED)
        halves = [shard(0, 2), shard(1, 2)]
        served = [Counter(), Counter()]
        for _ in range(2):
            for place, ids in enumerate(halves):
                served[place] += tenants_of(virtual_engine, make_claim(virtual_engine, digest, ids))
        assert [len(one) for one in served] == [40, 40]

    def test_shard_without_rows_of_the_first_tenants(self, virtual_engine):
        """A shard isn't kept waiting by tenants whose due rows are all in other shards."""
        many_due(virtual_engine, 30, 1)
        sql(
            virtual_engine,
            "UPDATE cronless.scheduled_job SET id = CAST('0' || substr(id::text, 2) AS uuid), plan_count = 1",
        )
        for n in range(4):
            due_row(virtual_engine, tenant_id="zoe", id=UUID(int=(0xF << 124) + n))
        digest = JobType(name="digest", handler=print, batch_size=3, limits=UNLIMITED)
        assert tenants_of(virtual_engine, make_claim(virtual_engine, digest, from_prefix("f"))) == {"zoe": 3}

    @pytest.fixture
    def few_due(self, virtual_engine, monkeypatch):
        """Many tenants for scans of ten, of which only the 24th of 25 has anything due: two rows."""
        monkeypatch.setattr(fairness, "TENANTS_SCANNED", 10)
        many_due(virtual_engine, 25, 2)
        sql(
            virtual_engine,
            "UPDATE cronless.scheduled_job SET next_run_at = :later, plan_count = 1 WHERE tenant_id <> 'tenant 00024'",
            later=NOW + HOUR,
        )
        return virtual_engine

    def test_scans_are_bounded_and_go_on(self, few_due, monkeypatch):
        """With more tenants than one claim looks at, of which few are due, the next claim goes on from there."""
        monkeypatch.setattr(fairness, "SCANS", 1)
        found = []
        for _ in range(3):
            with transaction(few_due) as connection:
                found.append(due_tenants(connection, "digest", 5, NOW))
        assert [one.tenants for one in found] == [[], [], ["tenant 00024"]]
        assert not any(one.whole for one in found)

    @pytest.mark.parametrize("limits", [UNLIMITED, Limits(open_claims=None, per_tenant=5)])
    def test_one_claim_finds_the_only_due_tenant(self, few_due, limits):
        """However many tenants have nothing due, one claim looks further until it finds who has."""
        digest = JobType(name="digest", handler=print, batch_size=1, limits=limits)
        assert tenants_of(few_due, make_claim(few_due, digest)) == {"tenant 00024": 1}

    def test_out_of_time_for_another_scan(self, few_due):
        """No scan begins after the tick's time; a type with a limit a tenant says that it goes on."""
        digest = JobType(
            name="digest", handler=print, batch_size=1, limits=Limits(open_claims=None, per_tenant=5)
        )
        options = {"route": "run", "ids": FULL, "now": NOW, "more": lambda: False}
        said = [claim_one(few_due, digest, Waiting(NOW, None), **options).reason for _ in range(2)]
        assert said == ["not all of its tenants could be looked at"] * 2
        assert claim_one(few_due, digest, Waiting(NOW, None), **options).rows == 1

    def test_without_a_limit_a_tenant_what_is_due_is_taken_unfairly_rather_than_not(
        self, few_due, monkeypatch
    ):
        """Where the scans find nobody, the longest due rows are claimed, whoever's they are."""
        monkeypatch.setattr(fairness, "SCANS", 1)
        digest = JobType(name="digest", handler=print, batch_size=1, limits=UNLIMITED)
        assert tenants_of(few_due, make_claim(few_due, digest)) == {"tenant 00024": 1}

    def test_tenants_at_their_limit_are_passed_over(self, virtual_engine):
        """A batch as small as one reaches the tenant behind those at their limit; else the reason is said."""
        many_due(virtual_engine, 9, 3)
        digest = JobType(
            name="digest", handler=print, batch_size=1, limits=Limits(open_claims=None, per_tenant=1)
        )
        served = Counter()
        for _ in range(9):
            served += tenants_of(virtual_engine, make_claim(virtual_engine, digest))
        assert served == {f"tenant {n:05}": 1 for n in range(1, 10)}
        result = claim_one(virtual_engine, digest, Waiting(NOW, None), route="run", ids=FULL, now=NOW)
        assert (result.rows, result.reason) == (
            0,
            "its due tenants have reached their limit of 1 jobs in flight",
        )

    @pytest.mark.parametrize("cursor", ["", "B", "a", "bb", "zz"])
    def test_a_round_names_each_tenant_once(self, virtual_engine, monkeypatch, cursor):
        """From wherever the cursor stands, all are seen once: names are ordered by the database alone."""
        monkeypatch.setattr(fairness, "TENANTS_SCANNED", 3)
        names = ["a", "A", "b", "B", "bb", "Bb", "ä", "Ä", "z", "Z", "-", "_a"]
        for name in names:
            due_row(virtual_engine, tenant_id=name)
        with transaction(virtual_engine) as connection:
            fairness.write_progress(connection, f"tenants:digest:{FULL.low}", cursor, NOW)
            refused = due_tenants(connection, "digest", 2, NOW, accepts=lambda _: False)
        assert (refused.tenants, refused.passed_over, refused.whole) == ([], len(names), True)
        monkeypatch.setattr(fairness, "TENANTS_SCANNED", 99)
        with transaction(virtual_engine) as connection:
            fairness.write_progress(connection, f"tenants:digest:{FULL.low}", cursor, NOW)
            found = due_tenants(connection, "digest", 99, NOW)
        assert sorted(found.tenants) == sorted(names)

    @pytest.mark.parametrize("limit", [None, 250])
    def test_batch_is_filled_up(self, virtual_engine, limit):
        """What many small tenants have not due goes to those that have more, within the limit of each."""
        many_due(virtual_engine, 60, 1)
        many_due(virtual_engine, 1, 900, first=99)
        limits = Limits(open_claims=None, per_tenant=limit)
        digest = JobType(name="digest", handler=print, batch_size=400, limits=limits)
        counts = tenants_of(virtual_engine, make_claim(virtual_engine, digest))
        assert counts.pop("tenant 00099") == (limit or 340)
        assert counts == {f"tenant {n:05}": 1 for n in range(1, 61)}

    def test_filling_up_reads_no_more_than_some_batches(self, virtual_engine):
        """Tenants' due rows are counted as far as their shares go, not to their end."""
        many_due(virtual_engine, 5, 2_000)
        bounds = {f"tenant {n:05}": 7 for n in range(1, 7)}
        with transaction(virtual_engine) as connection:
            counted = fairness.due_by_tenant(connection, "digest", bounds, NOW, FULL)
        assert counted == {**dict.fromkeys(bounds, 7), "tenant 00006": 0}

    def test_hostile_tenant_names(self, virtual_engine):
        """Tenants are told apart whatever their names hold."""
        names = [
            "",
            " ",
            "'; DROP TABLE x; --",
            "ä",
            "a",
            "A",
            "\\",
            "\U0001f600",
            "a" * 200,
            "%s",
            ":name",
            "{}",
        ][1:]
        for name in names:
            due_row(virtual_engine, tenant_id=name)
            due_row(virtual_engine, tenant_id=name)
        digest = JobType(name="digest", handler=print, batch_size=len(names), limits=UNLIMITED)
        assert tenants_of(virtual_engine, make_claim(virtual_engine, digest)) == dict.fromkeys(names, 1)


class TestShards:
    MINE = from_prefix("f")
    VISITED = text(
        "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_xact_user_tables"
        " WHERE relid = 'cronless.scheduled_job'::regclass"
    )

    @pytest.fixture
    def crowded(self, virtual_engine):
        """Four rows of shard f, due after thousands of its neighbours' rows."""
        many_due(virtual_engine, 20, 200)
        sql(
            virtual_engine,
            "UPDATE cronless.scheduled_job SET id = CAST('0' || substr(id::text, 2) AS uuid), plan_count = 1,"
            " trigger_requested_at = CASE WHEN name LIKE '1/%' THEN :now END,"
            " next_run_at = CASE WHEN name LIKE '2/%' THEN NULL ELSE next_run_at END",
            now=NOW,
        )
        for n in range(4):
            due_row(virtual_engine, NOW, tenant_id=f"tenant {n:05}", id=UUID(int=(0xF << 124) + n))
        due_row(virtual_engine, NOW + DAY, trigger_requested_at=NOW, id=UUID(int=(0xF << 124) + 9))
        sql(virtual_engine, "ANALYZE cronless.scheduled_job")
        return virtual_engine

    @pytest.mark.parametrize(
        ("what", "rows"),
        [
            ("claim_due", 4),
            ("claim_shares", 4),
            ("claim_triggered", 1),
            ("due_tenants", 4),
            ("due_by_tenant", 4),
            ("more_due_than", 4),
            ("waiting_types", 2),
            ("take_unplanned", 0),
        ],
    )
    def test_neighbours_rows_are_not_visited(self, crowded, what, rows):
        """A shard's statements fetch its own rows from the table and pass over its neighbours' index entries."""
        options = {"job_type": "digest", "route": "run", "batch_size": 100, "lease_seconds": 9, "now": NOW}
        shares = {f"tenant {n:05}": 9 for n in range(20)}
        calls = {
            "claim_due": lambda it: claims.claim_due(it, ids=self.MINE, **options).count,
            "claim_shares": lambda it: claims.claim_shares(it, shares, ids=self.MINE, **options).count,
            "claim_triggered": lambda it: claims.claim_triggered(it, ids=self.MINE, **options).count,
            "due_tenants": lambda it: len(due_tenants(it, "digest", 50, NOW, self.MINE).tenants),
            "due_by_tenant": lambda it: sum(
                fairness.due_by_tenant(it, "digest", shares, NOW, self.MINE).values()
            ),
            "more_due_than": lambda it: more_due_than(it, "digest", 100, NOW, self.MINE) or 4,
            "waiting_types": lambda it: len(waiting_types(it, {"digest": 10}, NOW, self.MINE)) * 2,
            "take_unplanned": lambda it: len(take_unplanned(it, self.MINE, 100)),
        }
        with transaction(crowded) as connection:
            connection.execute(text("SET LOCAL enable_seqscan = off"))
            # What the session has not reported yet is counted too, of earlier transactions as well.
            before = connection.scalar(self.VISITED)
            assert calls[what](connection) == rows
            visited = connection.scalar(self.VISITED) - before
        # The shard's own five rows may be fetched, a claimed one again to be locked and by its id; of the
        # thousands beside them none.
        assert visited <= 3 * 5

    def test_shards_are_disjoint_and_whole(self, virtual_engine):
        """Any cut of the id space claims each row by one shard."""
        many_due(virtual_engine, 10, 10)
        taken = [claim(virtual_engine, ids=shard(n, 7)) for n in range(7)]
        assert sum(claim_row(virtual_engine, one).job_count for one in taken if one) == 100
        assert [claim_row(virtual_engine, one).id_low for one in taken if one] == [
            shard(n, 7).low for n in range(7) if taken[n]
        ]

    def test_a_whole_id_is_a_shard(self, virtual_engine):
        """A prefix as long as the id claims this one row."""
        job, _ = due_row(virtual_engine), due_row(virtual_engine)
        [taken] = start(virtual_engine, claim(virtual_engine, ids=from_prefix(str(job)))).jobs
        assert taken.id == job


class TestLimits:
    def in_flight(self, engine):
        """Count the claimed rows."""
        return sql(engine, "SELECT count(*) FROM cronless.scheduled_job WHERE status = 'QUEUED'")[0][0]

    @pytest.mark.parametrize(
        ("limits", "rows"),
        [
            (Limits(open_claims=2), 100),
            (Limits(open_claims=None, in_flight=130), 130),
            (Limits(open_claims=None, per_tenant=3), 30),
        ],
    )
    def test_one_dispatcher_keeps_them(self, virtual_engine, limits, rows):
        """A dispatcher alone never goes over a limit, and says why it stopped."""
        many_due(virtual_engine, 10, 50)
        types = job_types(batch_size=50, claims_per_tick=9, limits=limits)

        class NoRuns:
            def of_claims(self, claim_ids):
                return []

        for _ in range(2):
            report = engine_tick(virtual_engine, types, now=NOW, runs=NoRuns())
            assert report.errors == []
        assert self.in_flight(virtual_engine) == rows

    def test_two_dispatchers_exceed_by_a_batch_each(self, virtual_engine, monkeypatch):
        """Dispatchers that read the same counts go over a limit by one batch each, and no further."""
        many_due(virtual_engine, 10, 100)
        digest = JobType(
            name="digest", handler=print, batch_size=50, limits=Limits(open_claims=None, in_flight=90)
        )
        gate = threading.Barrier(2)
        real = claims.load_of_type

        def together(connection, name):
            counts = real(connection, name)
            gate.wait(20)
            return counts

        monkeypatch.setattr(claims, "load_of_type", together)

        def dispatch() -> None:
            for _ in range(6):
                make_claim(virtual_engine, digest)

        threads = [threading.Thread(target=dispatch) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert 90 <= self.in_flight(virtual_engine) <= 90 + 2 * 50

    def test_counts_are_read_anew_for_each_claim(self, virtual_engine, monkeypatch):
        """A dispatcher in the middle of many claims sees what another one claimed meanwhile."""
        many_due(virtual_engine, 10, 100)
        limits = Limits(open_claims=None, in_flight=200)
        types = job_types(batch_size=50, claims_per_tick=9, limits=limits)
        real = claims.load_of_type
        calls = []

        def another_first(connection, name):
            calls.append(name)
            if len(calls) == 2:
                for _ in range(3):
                    claim(virtual_engine, most=50)
            return real(connection, name)

        monkeypatch.setattr(claims, "load_of_type", another_first)

        class NoRuns:
            def of_claims(self, claim_ids):
                return []

        engine_tick(virtual_engine, types, now=None, runs=NoRuns())
        assert self.in_flight(virtual_engine) == 200

    def test_finished_rows_count_no_more(self, virtual_engine):
        """What a claim has finished is no longer in flight."""
        many_due(virtual_engine, 2, 100)
        digest = JobType(
            name="digest", handler=print, batch_size=100, limits=Limits(open_claims=None, in_flight=100)
        )
        first = make_claim(virtual_engine, digest)
        assert make_claim(virtual_engine, digest) is None
        holder = start(virtual_engine, first)
        holder.finish(jobs=holder.jobs[:60])
        with transaction(virtual_engine) as connection:
            claims.correct_counts(connection, first, done=60)
        assert claim_row(virtual_engine, make_claim(virtual_engine, digest)).job_count == 60
