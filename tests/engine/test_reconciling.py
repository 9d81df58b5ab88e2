"""What becomes of an open claim, by its state and its runs; the order of hand-overs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from cronless_dagster.engine.reconciling import (
    by_claim,
    decide,
    decide_local,
    due_for_hand_over,
    group_size,
    hand_overs,
)
from cronless_dagster.engine.runs import RunState, RunView
from cronless_dagster.scheduling.shards import FULL, shard
from cronless_dagster.store.claims import Claim
from tests.engine.support import NOON, after

if TYPE_CHECKING:
    from datetime import datetime

ID = UUID(int=7)


def a_claim(**changes: Any) -> Claim:
    """Return a claim that was just made."""
    return replace(
        Claim(
            id=ID,
            job_type="work",
            route="run",
            id_low=UUID(int=0),
            manual=False,
            job_count=10,
            done_count=0,
            failed_count=0,
            state="CLAIMED",
            dispatches=0,
            run_id=None,
            execution_id=None,
            lease_seconds=600,
            lease_expires_at=after(minutes=10),
            oldest_due_at=NOON,
            handed_over_at=None,
            created_at=NOON,
            started_at=None,
            parent_id=None,
        ),
        **changes,
    )


def a_run(run_id: str, state: RunState, dispatch: int = 0) -> RunView:
    """Return a run of the claim."""
    return RunView(run_id, ID, dispatch, state)


class TestUnstarted:
    """Claims that no run has fenced: their lease says nothing, their runs everything."""

    @pytest.mark.parametrize(
        ("state", "runs", "expected"),
        [
            # no run: never made (the hand-over may have been lost), or deleted by a person
            ("CLAIMED", [], ("keep", None)),
            ("SUBMITTED", [], ("again", None)),
            # a run that may still come
            ("CLAIMED", [("a", "waiting", 0)], ("submitted", "a")),
            ("CLAIMED", [("a", "started", 0)], ("submitted", "a")),
            ("SUBMITTED", [("a", "waiting", 0)], ("keep", "a")),
            ("SUBMITTED", [("a", "started", 0)], ("keep", "a")),
            ("SUBMITTED", [("b", "waiting", 0)], ("submitted", "b")),
            # ended before it fenced the claim; a success is no proof either
            ("CLAIMED", [("a", "failure", 0)], ("again", None)),
            ("SUBMITTED", [("a", "failure", 0)], ("again", None)),
            ("CLAIMED", [("a", "success", 0)], ("again", None)),
            ("SUBMITTED", [("a", "success", 0)], ("again", None)),
            # a person canceled it before it started
            ("CLAIMED", [("a", "canceled", 0)], ("cancel", "a")),
            ("SUBMITTED", [("a", "canceled", 0)], ("cancel", "a")),
            # re-executed in the UI: the new run carries the same tags
            ("SUBMITTED", [("a", "failure", 0), ("b", "waiting", 0)], ("submitted", "b")),
            ("SUBMITTED", [("a", "canceled", 0), ("b", "waiting", 0)], ("submitted", "b")),
        ],
    )
    @pytest.mark.parametrize("now", [NOON, after(days=1)])
    def test_by_its_runs(
        self,
        state: str,
        runs: list[tuple[str, RunState, int]],
        expected: tuple[str, str | None],
        now: datetime,
    ) -> None:
        """A run that may still come is waited for, an ended one replaced, a canceled one obeyed."""
        assert decide(a_claim(state=state, run_id="a"), [a_run(*one) for one in runs], now) == expected

    @pytest.mark.parametrize(
        ("runs", "expected"),
        [
            # what earlier hand-overs became was dealt with then
            ([("a", "failure", 0)], ("keep", None)),
            ([("a", "success", 0)], ("keep", None)),
            ([("a", "canceled", 0)], ("keep", None)),
            # but one that is still alive may fence the claim first
            ([("a", "waiting", 0)], ("submitted", "a")),
            ([("a", "failure", 0), ("b", "failure", 1)], ("again", None)),
            ([("a", "failure", 0), ("b", "canceled", 1)], ("cancel", "b")),
            ([("a", "canceled", 0), ("b", "failure", 1)], ("again", None)),
        ],
    )
    def test_only_the_latest_hand_over_counts(
        self, runs: list[tuple[str, RunState, int]], expected: tuple[str, str | None]
    ) -> None:
        """A run of an earlier hand-over that has ended must not end the present one."""
        claim = a_claim(dispatches=1)
        assert decide(claim, [a_run(*one) for one in runs], NOON) == expected


class TestRunning:
    """Claims that a run has fenced."""

    @pytest.mark.parametrize(
        ("runs", "in_time", "too_late"),
        [
            ([("a", "started", 0)], "keep", "died"),
            ([("a", "waiting", 0)], "keep", "died"),
            ([("a", "failure", 0)], "died", "died"),
            # it ended, but the claim isn't closed: what it left must run
            ([("a", "success", 0)], "died", "died"),
            ([("a", "canceled", 0)], "cancel", "cancel"),
            # deleted in the UI: its process may still be at work
            ([], "keep", "died"),
            # others' ends say nothing about the holder
            ([("a", "started", 0), ("b", "failure", 0), ("c", "canceled", 0)], "keep", "died"),
            ([("b", "failure", 0)], "keep", "died"),
        ],
    )
    def test_by_its_holder(self, runs: list[tuple[str, RunState, int]], in_time: str, too_late: str) -> None:
        """The holder's end decides at once; without it, the lease alone."""
        claim = a_claim(state="RUNNING", run_id="a", execution_id=UUID(int=1))
        seen = [a_run(*one) for one in runs]
        assert decide(claim, seen, after(minutes=10)) == (in_time, "a")
        assert decide(claim, seen, after(minutes=10, seconds=1)) == (too_late, "a")


@pytest.mark.parametrize(
    ("state", "too_late"), [("CLAIMED", "release"), ("SUBMITTED", "release"), ("RUNNING", "died")]
)
def test_local_claims_are_judged_by_their_lease(state: str, too_late: str) -> None:
    """Nobody can be asked about a process of the command line."""
    claim = a_claim(route="local", state=state)
    assert decide_local(claim, after(minutes=10)) == "keep"
    assert decide_local(claim, after(minutes=10, seconds=1)) == too_late


class TestHandOver:
    """Which claims are handed over, and when."""

    @pytest.mark.parametrize("state", ["SUBMITTED", "RUNNING"])
    def test_a_claim_with_a_run_is_not(self, state: str) -> None:
        """What has a run needs none."""
        assert not due_for_hand_over(a_claim(state=state), after(days=1))

    def test_one_without_a_run_is_at_every_tick(self) -> None:
        """A lost request is made again at once: the run key keeps a second run away."""
        assert due_for_hand_over(a_claim(), NOON)
        assert due_for_hand_over(a_claim(handed_over_at=NOON), NOON)

    @pytest.mark.parametrize(
        ("dispatches", "seconds"), [(1, 30), (2, 90), (3, 210), (4, 450), (5, 930), (6, 1800), (60, 1800)]
    )
    def test_one_whose_runs_keep_ending_waits_longer(self, dispatches: int, seconds: int) -> None:
        """The wait doubles up to half an hour, each a little short of a minute's tick."""
        claim = a_claim(dispatches=dispatches, handed_over_at=NOON)
        assert not due_for_hand_over(claim, after(seconds=seconds - 1))
        assert due_for_hand_over(claim, after(seconds=seconds))

    def test_never_handed_over_goes_first_then_the_longest_waiting(self) -> None:
        """New claims aren't starved by 200 old ones that come back tick after tick."""
        old = [
            a_claim(id=UUID(int=n), handed_over_at=after(minutes=-n), created_at=after(minutes=-n))
            for n in range(1, 201)
        ]
        new = [a_claim(id=UUID(int=1000 + n), created_at=after(seconds=n)) for n in range(3)]
        chosen = [one.claim_id.int for one in hand_overs([*old, *reversed(new)], FULL, NOON, most=20)]
        assert chosen == [1000, 1001, 1002, *range(200, 183, -1)]

    def test_all_come_in_turn(self) -> None:
        """With more open claims than one tick hands over, each is handed over within a bounded time."""
        claims = {n: a_claim(id=UUID(int=n)) for n in range(200)}
        seen: set[int] = set()
        for minute in range(10):
            for one in hand_overs(list(claims.values()), FULL, after(minutes=minute), most=20):
                seen.add(one.claim_id.int)
                claims[one.claim_id.int] = replace(
                    claims[one.claim_id.int], handed_over_at=after(minutes=minute)
                )
        assert seen == set(range(200))

    @pytest.mark.parametrize("shards", [1, 2, 3, 7, 16])
    def test_each_claim_has_one_owner_however_the_shards_are_cut(self, shards: int) -> None:
        """A claim belongs to the shard that holds its lower bound, even one made under another cut."""
        claims = [
            a_claim(id=UUID(int=n), id_low=shard(n, parts).low)
            for parts in (1, 2, 5, 16)
            for n in range(parts)
        ]
        owners = [hand_overs(claims, shard(part, shards), NOON, most=100) for part in range(shards)]
        assert sorted(one.claim_id.int for owner in owners for one in owner) == sorted(
            one.id.int for one in claims
        )

    def test_a_shard_hands_over_what_it_claimed(self) -> None:
        """The owner is who made the claim, whatever id the claim happened to get."""
        made_by_the_upper = a_claim(id=UUID(int=7), id_low=shard(1, 2).low)
        assert hand_overs([made_by_the_upper], shard(0, 2), NOON, most=1) == []
        assert len(hand_overs([made_by_the_upper], shard(1, 2), NOON, most=1)) == 1

    def test_the_run_key_changes_with_the_hand_over_alone(self) -> None:
        """The same hand-over asked for twice is one run; the next one is another."""
        [first] = hand_overs([a_claim()], FULL, NOON, most=1)
        [same] = hand_overs([a_claim(handed_over_at=NOON)], FULL, after(minutes=1), most=1)
        [other] = hand_overs([a_claim(dispatches=1)], FULL, NOON, most=1)
        assert first.run_key == same.run_key == f"{ID}:0"
        assert other.run_key == f"{ID}:1"


@pytest.mark.parametrize(
    ("unfinished", "size"), [(1, 1), (9, 1), (10, 1), (11, 2), (100, 10), (101, 11), (2000, 200)]
)
def test_a_dead_claim_is_cut_in_tenths_then_singly(unfinished: int, size: int) -> None:
    """At most ten groups; below eleven jobs each is alone."""
    assert group_size(unfinished) == size
    assert -(-unfinished // size) <= 10


def test_runs_are_grouped_by_claim_the_latest_hand_over_first() -> None:
    """The run of the latest hand-over is the one to look at first."""
    runs = [a_run("a", "failure", 0), a_run("b", "waiting", 2), RunView("c", UUID(int=8), 0, "started")]
    grouped = by_claim([*runs, a_run("d", "failure", 1)])
    assert [run.run_id for run in grouped[ID]] == ["b", "d", "a"]
    assert [run.run_id for run in grouped[UUID(int=8)]] == ["c"]
