from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronless_dagster.scheduling import cron
from cronless_dagster.scheduling.base import COUNT_BOUND, WALK_BOUND
from cronless_dagster.scheduling.misfires import ALL_LIMIT, Replan, ServeOccurrence, decide_misfire
from cronless_dagster.scheduling.models import MissedStretch, PlannedJob, RetryPolicy
from cronless_dagster.scheduling.occurrences import Occurrences
from tests.scheduling.jobs import at, job

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
POLICIES = ["latest", "skip", "all"]


def due(schedule: str = "@hourly", **changes: Any) -> PlannedJob:
    """Return a job that was planned for 2 March, 09:00 and has not been served."""
    return job(
        schedule, **{"scheduled_for": "2026-03-02T09:00", "next_run_at": "2026-03-02T09:00", **changes}
    )


def missed(first: str, last: str, count: int, reason: Any = "misfire") -> MissedStretch:
    """Return a counted stretch."""
    return MissedStretch(at(first), at(last), count, False, reason)


class TestWithinGrace:
    @pytest.mark.parametrize("policy", POLICIES)
    @pytest.mark.parametrize("now", ["2026-03-02T09:00", "2026-03-02T09:05"])
    def test_served_late(self, policy: str, now: str) -> None:
        """Within its grace, the edge included, an occurrence is served as planned."""
        decision = decide_misfire(due(misfire_policy=policy), at(now))
        assert decision == ServeOccurrence(at("2026-03-02T09:00"), 0, None)

    @pytest.mark.parametrize("now", ["2026-03-02T11:30", "2026-03-02T12:00"])
    def test_long_grace_serves_the_planned_one(self, now: str) -> None:
        """A grace beyond the next occurrence keeps the planned one."""
        decision = decide_misfire(due(misfire_grace=3 * HOUR), at(now))
        assert decision == ServeOccurrence(at("2026-03-02T09:00"), 0, None)

    def test_counts_from_the_planned_moment(self) -> None:
        """Grace begins when the row becomes due, so a jittered occurrence isn't missed before its turn."""
        row = due(next_run_at="2026-03-02T10:30", misfire_policy="skip")
        assert decide_misfire(row, at("2026-03-02T10:34")) == ServeOccurrence(at("2026-03-02T09:00"), 0, None)

    def test_without_a_planned_moment(self) -> None:
        """A row that lost its due moment has that of its occurrence."""
        row = due("0 9 * * *", next_run_at=None, jitter=HOUR, id=UUID(int=5))
        assert decide_misfire(row, at("2026-03-02T09:00")) == ServeOccurrence(at("2026-03-02T09:00"), 0, None)

    def test_moment_set_by_hand(self) -> None:
        """A row whose due moment was set in SQL before it had a plan serves that moment."""
        row = due(scheduled_for=None, next_run_at="2026-03-02T08:17")
        assert decide_misfire(row, at("2026-03-02T08:18")) == ServeOccurrence(at("2026-03-02T08:17"), 0, None)

    def test_without_any_plan(self) -> None:
        """A row without a plan gets one."""
        decision = decide_misfire(due(scheduled_for=None, next_run_at=None), at("2026-03-02T08:18"))
        assert isinstance(decision, Replan)
        assert decision.plan.scheduled_for == at("2026-03-02T09:00")


class TestLatest:
    def test_last_of_several(self) -> None:
        """The newest occurrence is served and those before it are missed."""
        decision = decide_misfire(due(), at("2026-03-02T12:07"))
        assert decision == ServeOccurrence(
            at("2026-03-02T12:00"), 0, missed("2026-03-02T09:00", "2026-03-02T11:00", 3)
        )

    def test_an_occurrence_now(self) -> None:
        """An occurrence at this very instant is the newest."""
        decision = decide_misfire(due(), at("2026-03-02T10:00"))
        assert decision == ServeOccurrence(
            at("2026-03-02T10:00"), 0, missed("2026-03-02T09:00", "2026-03-02T09:00", 1)
        )

    def test_only_one(self) -> None:
        """With none after it, the planned one is served however late, and nothing is missed."""
        decision = decide_misfire(due("0 9 * * *"), at("2026-03-02T23:00"))
        assert decision == ServeOccurrence(at("2026-03-02T09:00"), 0, None)

    def test_up_to_the_end(self) -> None:
        """Instants behind the job's end are no occurrences."""
        decision = decide_misfire(due(ends_at="2026-03-02T10:00"), at("2026-03-02T12:07"))
        assert decision == ServeOccurrence(
            at("2026-03-02T10:00"), 0, missed("2026-03-02T09:00", "2026-03-02T09:00", 1)
        )

    def test_years(self) -> None:
        """A decade of minutes is decided at once; the count is cut, the instants are right."""
        decision = decide_misfire(due("* * * * *"), at("2036-03-02T09:00:30"))
        assert isinstance(decision, ServeOccurrence)
        assert decision.scheduled_for == at("2036-03-02T09:00")
        assert decision.missed is not None
        assert decision.missed.cut
        assert decision.missed.last == at("2036-03-02T08:59")


class TestCounting:
    WEEK_LATER = "2026-03-09T09:00:30"

    @pytest.mark.parametrize(
        ("schedule", "instants"),
        [
            ("* * * * *", 10_081),
            ("*/5 * * * *", 2_017),
            ("* 9-17 * * 1-5", 2_701),
            ("@every 7m", 1_441),
            ("0 * * * *", 169),
        ],
    )
    @pytest.mark.parametrize("policy", POLICIES)
    def test_a_week_is_counted_without_walking_it(
        self, monkeypatch: pytest.MonkeyPatch, schedule: str, instants: int, policy: str
    ) -> None:
        """Whole and part days of minutes are counted by their fields: few instants are computed."""
        computed = []
        real = Occurrences.after
        monkeypatch.setattr(Occurrences, "after", lambda *rest: computed.append(1) or real(*rest))
        monkeypatch.setattr(cron, "count_walked", lambda *_, **__: pytest.fail("walked"))
        row = due(schedule, timezone="Europe/Berlin", misfire_policy=policy, misfire_grace=timedelta(0))
        decision = decide_misfire(row, at(self.WEEK_LATER))
        stretch = decision.missed if isinstance(decision, ServeOccurrence) else decision.plan.missed
        assert stretch is not None
        served = {"latest": 1, "skip": 0, "all": ALL_LIMIT}[policy]
        # The first one is known and counted beside the bound.
        assert abs(stretch.count - min(instants - served, COUNT_BOUND)) <= 1
        assert len(computed) < 2_000

    @pytest.mark.parametrize("policy", POLICIES)
    def test_what_must_be_walked_is_cut_early(self, policy: str) -> None:
        """The instants of a rule are counted up to a lower bound, and the last one is right all the same."""
        decision = decide_misfire(due("RRULE:FREQ=MINUTELY", misfire_policy=policy), at(self.WEEK_LATER))
        assert isinstance(decision, ServeOccurrence)
        assert decision.missed is not None
        assert decision.missed.cut
        assert WALK_BOUND <= decision.missed.count <= WALK_BOUND + 1
        ahead = timedelta(minutes=ALL_LIMIT - 1) if policy == "all" else timedelta(0)
        assert decision.scheduled_for == at("2026-03-09T09:00") - ahead
        assert decision.missed.last == decision.scheduled_for - timedelta(minutes=1)


class TestSkip:
    def test_newest_within_grace(self) -> None:
        """The newest is served while it is within its own grace."""
        decision = decide_misfire(due(misfire_policy="skip"), at("2026-03-02T12:05"))
        assert decision == ServeOccurrence(
            at("2026-03-02T12:00"), 0, missed("2026-03-02T09:00", "2026-03-02T11:00", 3)
        )

    def test_newest_beyond_grace(self) -> None:
        """Beyond it all are missed and the next one is waited for, its counters untouched."""
        decision = decide_misfire(due(misfire_policy="skip", consecutive_failures=2), at("2026-03-02T12:06"))
        assert isinstance(decision, Replan)
        plan = decision.plan
        assert (plan.status, plan.next_run_at) == ("PENDING", at("2026-03-02T13:00"))
        assert (plan.attempt, plan.consecutive_failures, plan.recorded) == (0, 2, None)
        assert plan.missed == missed("2026-03-02T09:00", "2026-03-02T12:00", 4)

    @pytest.mark.parametrize(
        ("schedule", "ends_at"), [("@once 2026-03-02T09:00", None), ("@hourly", "2026-03-02T09:30")]
    )
    def test_nothing_ahead(self, schedule: str, ends_at: str | None) -> None:
        """A job that skipped its last occurrence is done."""
        decision = decide_misfire(
            due(schedule, misfire_policy="skip", ends_at=ends_at), at("2026-03-02T09:06")
        )
        assert isinstance(decision, Replan)
        assert (decision.plan.status, decision.plan.next_run_at) == ("DONE", None)
        assert decision.plan.missed == missed("2026-03-02T09:00", "2026-03-02T09:00", 1)

    @pytest.mark.parametrize(
        ("ends_at", "status", "next_run_at"),
        [(None, "PENDING", at("2026-03-03T12:00")), ("2026-03-03T11:00", "DONE", None)],
    )
    def test_handler(self, ends_at: str | None, status: str, next_run_at: datetime | None) -> None:
        """A handler's instant that was skipped is followed by the fallback."""
        row = due("@handler fallback=24h", misfire_policy="skip", ends_at=ends_at)
        decision = decide_misfire(row, at("2026-03-02T12:00"))
        assert isinstance(decision, Replan)
        assert (decision.plan.status, decision.plan.next_run_at) == (status, next_run_at)
        assert decision.plan.missed == missed("2026-03-02T09:00", "2026-03-02T09:00", 1)


class TestAll:
    def test_oldest_first(self) -> None:
        """All are made up, the oldest first, and none is missed."""
        decision = decide_misfire(due(misfire_policy="all"), at("2026-03-05T09:07"))
        assert decision == ServeOccurrence(at("2026-03-02T09:00"), 0, None)

    def test_at_the_limit(self) -> None:
        """Exactly as many as the limit are all kept."""
        now = at("2026-03-02T09:07") + (ALL_LIMIT - 1) * HOUR
        decision = decide_misfire(due(misfire_policy="all"), now)
        assert decision == ServeOccurrence(at("2026-03-02T09:00"), 0, None)

    @pytest.mark.parametrize("over", [1, 2, 50])
    def test_above_the_limit(self, over: int) -> None:
        """The oldest above the limit are missed, and so many are left to serve as it allows."""
        now = at("2026-03-02T09:07") + (ALL_LIMIT - 1 + over) * HOUR
        decision = decide_misfire(due(misfire_policy="all"), now)
        assert decision == ServeOccurrence(
            at("2026-03-02T09:00") + over * HOUR,
            0,
            MissedStretch(
                at("2026-03-02T09:00"), at("2026-03-02T09:00") + (over - 1) * HOUR, over, False, "misfire"
            ),
        )

    def test_uneven_schedule(self) -> None:
        """The limit counts occurrences, however unevenly they lie."""
        decision = decide_misfire(due("0 9 1 * *", misfire_policy="all"), at("2046-03-02T12:00"))
        assert isinstance(decision, ServeOccurrence)
        # 240 monthly firsts from April 2026 to March 2046 and the planned one before them.
        assert decision.scheduled_for == at("2037-12-01T09:00")
        assert decision.missed is not None
        assert decision.missed.count == 241 - ALL_LIMIT

    def test_years(self) -> None:
        """A decade of minutes is cut to its newest hundred, at once."""
        decision = decide_misfire(due("* * * * *", misfire_policy="all"), at("2036-03-02T09:00:30"))
        assert isinstance(decision, ServeOccurrence)
        assert decision.scheduled_for == at("2036-03-02T09:00") - (ALL_LIMIT - 1) * timedelta(minutes=1)
        assert decision.missed is not None
        assert decision.missed.cut

    @pytest.mark.parametrize("schedule", ["@once 2026-03-02T09:00", "@handler fallback=24h"])
    def test_single_occurrences(self, schedule: str) -> None:
        """A kind that knows one occurrence serves it."""
        decision = decide_misfire(due(schedule, misfire_policy="all"), at("2026-03-09T09:00"))
        assert decision == ServeOccurrence(at("2026-03-02T09:00"), 0, None)


class TestRetry:
    @pytest.mark.parametrize("policy", POLICIES)
    def test_before_the_next_occurrence(self, policy: str) -> None:
        """A late retry is made as long as no regular occurrence has come, with its tries counted on."""
        row = due(next_run_at="2026-03-02T09:03", attempt=2, misfire_policy=policy)
        assert decide_misfire(row, at("2026-03-02T09:59")) == ServeOccurrence(at("2026-03-02T09:00"), 2, None)

    @pytest.mark.parametrize("schedule", ["@once 2026-03-02T09:00", "@handler fallback=24h"])
    def test_of_a_kind_without_regular_occurrences(self, schedule: str) -> None:
        """Nothing supersedes the retry of a one-time or handler-driven job."""
        row = due(schedule, next_run_at="2026-03-02T09:03", attempt=1, misfire_policy="skip")
        assert decide_misfire(row, at("2026-04-02T09:00")) == ServeOccurrence(at("2026-03-02T09:00"), 1, None)

    def test_superseded(self) -> None:
        """After a regular occurrence has come the old one is over, and the newest is served afresh."""
        row = due(next_run_at="2026-03-02T09:03", attempt=2)
        assert decide_misfire(row, at("2026-03-02T12:07")) == ServeOccurrence(
            at("2026-03-02T12:00"), 0, missed("2026-03-02T09:00", "2026-03-02T11:00", 3, "superseded")
        )

    def test_superseded_at_the_very_instant(self) -> None:
        """It is superseded by an occurrence at this very instant, even within its grace."""
        row = due(next_run_at="2026-03-02T09:59", attempt=1)
        assert decide_misfire(row, at("2026-03-02T10:00")) == ServeOccurrence(
            at("2026-03-02T10:00"), 0, missed("2026-03-02T09:00", "2026-03-02T09:00", 1, "superseded")
        )

    def test_superseded_under_skip(self) -> None:
        """Under "skip" a regular occurrence beyond its grace isn't served in its place."""
        row = due(next_run_at="2026-03-02T09:03", attempt=2, misfire_policy="skip")
        decision = decide_misfire(row, at("2026-03-02T12:07"))
        assert isinstance(decision, Replan)
        assert decision.plan.next_run_at == at("2026-03-02T13:00")
        assert decision.plan.attempt == 0
        assert decision.plan.missed == missed("2026-03-02T09:00", "2026-03-02T12:00", 4, "superseded")

    def test_superseded_under_all(self) -> None:
        """Under "all" the regular ones are served in order; only the old one is over."""
        row = due(next_run_at="2026-03-02T09:03", attempt=2, misfire_policy="all")
        assert decide_misfire(row, at("2026-03-02T12:07")) == ServeOccurrence(
            at("2026-03-02T10:00"), 0, missed("2026-03-02T09:00", "2026-03-02T09:00", 1, "superseded")
        )


class TestUnusable:
    @pytest.mark.parametrize("changes", [{"schedule": "61 * * * *"}, {"timezone": "Nowhere"}])
    def test_becomes_invalid(self, changes: dict[str, str]) -> None:
        """A row that can't be used becomes INVALID with a reason, and keeps what it was to serve."""
        decision = decide_misfire(due(**{"schedule": "@hourly", **changes}), at("2026-03-02T12:00"))
        assert isinstance(decision, Replan)
        assert (decision.plan.status, decision.plan.next_run_at) == ("INVALID", None)
        assert decision.plan.scheduled_for == at("2026-03-02T09:00")
        assert decision.plan.reason

    def test_grace_beyond_all_dates(self) -> None:
        """A grace that leads out of the calendar is a reason too, not a crash."""
        decision = decide_misfire(due(misfire_grace=timedelta.max), at("2026-03-02T12:00"))
        assert isinstance(decision, Replan)
        assert decision.plan.status == "INVALID"


class TestProperties:
    @given(
        st.sampled_from(["*/7 * * * *", "@hourly", "0 9 * * 1-5", "@every 90m", "@window 6h"]),
        st.sampled_from(POLICIES),
        st.integers(0, 2),
        st.integers(0, 60 * 24 * 40),
        st.sampled_from([timedelta(0), timedelta(minutes=5), DAY]),
        st.sampled_from([timedelta(0), timedelta(minutes=30)]),
    )
    def test_accounts_for_every_occurrence(
        self, schedule: str, policy: Any, attempt: int, minutes: int, grace: timedelta, jitter: timedelta
    ) -> None:
        """What is missed and what is served adds up to what there was, in order and without a hole."""
        row = due(
            schedule,
            misfire_policy=policy,
            misfire_grace=grace,
            jitter=jitter,
            attempt=attempt,
            retry=RetryPolicy(max_attempts=5),
        )
        now = at("2026-03-02T09:00") + timedelta(minutes=minutes)
        decision = decide_misfire(row, now)
        stretch = decision.missed if isinstance(decision, ServeOccurrence) else decision.plan.missed
        served = (
            decision.scheduled_for if isinstance(decision, ServeOccurrence) else decision.plan.scheduled_for
        )
        assert served is not None
        assert (served <= now) is isinstance(decision, ServeOccurrence)
        if stretch is None:
            assert served == row.scheduled_for
            return
        every = Occurrences.of(row)
        assert stretch.first == row.scheduled_for
        assert every.after(stretch.last) == served
        assert stretch.count == 1 + len(every.newest(stretch.last, after=stretch.first, at_most=20_000))
