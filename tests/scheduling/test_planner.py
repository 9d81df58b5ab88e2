from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cronless_dagster.scheduling.backoff import pause
from cronless_dagster.scheduling.hashing import stable_hash
from cronless_dagster.scheduling.models import MissedStretch, Outcome, Plan, PlannedJob, RetryPolicy
from cronless_dagster.scheduling.planner import plan_first, plan_next
from tests.scheduling.jobs import at, job

OK = Outcome("success")
FAILED = Outcome("failure", error="boom")
CANCELED = Outcome("canceled", error="somebody stopped the run")
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def served(schedule: str = "0 9 * * *", **changes: Any) -> PlannedJob:
    """Return a job whose first try of the occurrence on 2 March, 09:00 has just ended."""
    given = {"scheduled_for": "2026-03-02T09:00", "next_run_at": "2026-03-02T09:00", "attempt": 1}
    return job(schedule, **{**given, **changes})


def when(plan: Plan) -> tuple[str, datetime | None, datetime | None]:
    """Return the state and both instants of a plan."""
    return plan.status, plan.next_run_at, plan.scheduled_for


def pending(due: str, nominal: str | None = None) -> tuple[str, datetime, datetime]:
    """Return what `when` gives for a planned occurrence."""
    return "PENDING", at(due), at(nominal or due)


class TestFirst:
    def test_new_row(self) -> None:
        """A new row gets the first occurrence after now, with clean counters and nothing to record."""
        plan = plan_first(job(), at("2026-03-02T08:00"))
        assert plan == Plan(
            status="PENDING", next_run_at=at("2026-03-02T09:00"), scheduled_for=at("2026-03-02T09:00")
        )

    def test_strictly_after_now(self) -> None:
        """An occurrence at this very instant is not planned, so a replanned row never fires twice."""
        assert when(plan_first(job(), at("2026-03-02T09:00"))) == pending("2026-03-03T09:00")

    def test_local_zone(self) -> None:
        """The schedule is read in the row's zone and the plan is in UTC."""
        plan = plan_first(job(timezone="Europe/Berlin"), at("2026-07-01T00:00"))
        assert when(plan) == pending("2026-07-01T07:00")

    def test_start_is_inclusive(self) -> None:
        """An occurrence at the very start belongs to the job."""
        plan = plan_first(job(starts_at="2026-04-01T09:00"), at("2026-03-02T08:00"))
        assert when(plan) == pending("2026-04-01T09:00")

    def test_end_is_inclusive(self) -> None:
        """An occurrence at the very end belongs to the job."""
        plan = plan_first(job(ends_at="2026-03-02T09:00"), at("2026-03-02T08:00"))
        assert when(plan) == pending("2026-03-02T09:00")

    def test_past_the_end(self) -> None:
        """A job whose next occurrence lies behind its end is done, and says so."""
        plan = plan_first(job(ends_at="2026-03-02T08:59"), at("2026-03-02T08:00"))
        assert when(plan) == ("DONE", None, None)
        assert "end" in (plan.reason or "")

    def test_never(self) -> None:
        """A schedule without any occurrence is done, not searched for ever."""
        plan = plan_first(job("0 0 30 2 *"), at("2026-03-02T08:00"))
        assert when(plan) == ("DONE", None, None)
        assert plan.reason == "the schedule has no further occurrence"

    @pytest.mark.parametrize(
        "changes",
        [
            {"schedule": "0 25 * * *"},
            {"timezone": "Mars/Olympus"},
            {"dst_policy": "sideways"},
            {"schedule": ""},
        ],
    )
    def test_unusable(self, changes: dict[str, str]) -> None:
        """What can't be used becomes INVALID with a reason and keeps its counters."""
        given: dict[str, Any] = {"consecutive_failures": 2, "scheduled_for": "2026-03-01T09:00", **changes}
        row = job(**given)
        plan = plan_first(row, at("2026-03-02T08:00"))
        assert when(plan) == ("INVALID", None, at("2026-03-01T09:00"))
        assert plan.reason
        assert plan.consecutive_failures == 2

    def test_repaired_row_keeps_its_failures(self) -> None:
        """An edit doesn't wipe the count of failed occurrences; only a success does."""
        assert plan_first(job(consecutive_failures=4), at("2026-03-02T08:00")).consecutive_failures == 4

    def test_every_kind_has_a_first_occurrence(self) -> None:
        """Each kind of schedule is planned ahead of now."""
        now = at("2026-03-02T08:30")
        texts = ["@hourly", "@every 15m", "@once 2026-12-01T09:00", "RRULE:FREQ=DAILY;BYHOUR=9", "@window 1h"]
        for text in texts:
            plan = plan_first(job(text), now)
            assert plan.status == "PENDING", text
            assert plan.next_run_at is not None
            assert plan.next_run_at > now


class TestResumed:
    def test_missed_while_paused(self) -> None:
        """What fell into a pause is recorded, the old plan included, and not made up under any policy."""
        for policy in ("latest", "skip", "all"):
            row = job(scheduled_for="2026-03-02T09:00", misfire_policy=policy)
            plan = plan_first(row, at("2026-03-05T10:00"))
            assert when(plan) == pending("2026-03-06T09:00")
            assert plan.missed == MissedStretch(
                at("2026-03-02T09:00"), at("2026-03-05T09:00"), 4, False, "paused"
            )

    def test_one_missed(self) -> None:
        """A stretch of one begins and ends with it."""
        plan = plan_first(job(scheduled_for="2026-03-02T09:00"), at("2026-03-02T09:00"))
        assert plan.missed == MissedStretch(
            at("2026-03-02T09:00"), at("2026-03-02T09:00"), 1, False, "paused"
        )

    def test_nothing_missed(self) -> None:
        """A row resumed or edited before its occurrence has missed nothing."""
        assert plan_first(job(scheduled_for="2026-03-02T09:00"), at("2026-03-02T08:59")).missed is None

    def test_only_up_to_the_end(self) -> None:
        """Instants behind the job's end are no occurrences, so they can't be missed."""
        row = job(scheduled_for="2026-03-02T09:00", ends_at="2026-03-03T12:00")
        plan = plan_first(row, at("2026-03-09T10:00"))
        assert plan.status == "DONE"
        assert plan.missed == MissedStretch(
            at("2026-03-02T09:00"), at("2026-03-03T09:00"), 2, False, "paused"
        )
        assert plan_first(replace(row, ends_at=at("2026-03-02T08:00")), at("2026-03-09T10:00")).missed is None

    def test_moved_start(self) -> None:
        """A start that an edit moved ahead leaves nothing between to be missed."""
        row = job(scheduled_for="2026-03-02T09:00", starts_at="2026-04-01T00:00")
        plan = plan_first(row, at("2026-03-05T10:00"))
        assert when(plan) == pending("2026-04-01T09:00")
        assert plan.missed is not None
        assert plan.missed.count == 1

    @pytest.mark.parametrize(("before", "count"), [("2026-03-02T09:00", 3), ("2026-03-03T09:00", 2)])
    def test_start_counts_once(self, before: str, count: int) -> None:
        """An occurrence at the very start belongs to what was missed, once, whatever was planned before."""
        row = job(scheduled_for=before, starts_at="2026-03-03T09:00")
        plan = plan_first(row, at("2026-03-04T10:00"))
        assert plan.missed == MissedStretch(at(before), at("2026-03-04T09:00"), count, False, "paused")

    def test_years_are_cut_quickly(self) -> None:
        """A minute's schedule that slept for years is counted up to a bound; its last instant is right."""
        plan = plan_first(job("* * * * *", scheduled_for="2016-03-02T09:00"), at("2026-03-02T09:00"))
        assert plan.missed is not None
        assert plan.missed.cut
        assert (plan.missed.last, plan.missed.reason) == (at("2026-03-02T09:00"), "paused")
        assert plan.missed.count >= 10_000

    def test_waiting_retry_is_given_up(self) -> None:
        """An edit while a retry waits goes on with the next regular occurrence and records the old one."""
        plan = plan_first(job(scheduled_for="2026-03-02T09:00", attempt=2), at("2026-03-02T09:10"))
        assert when(plan) == pending("2026-03-03T09:00")
        assert plan.attempt == 0
        assert plan.missed == MissedStretch(
            at("2026-03-02T09:00"), at("2026-03-02T09:00"), 1, False, "superseded"
        )


class TestFirstOnce:
    ONCE = "@once 2026-03-02T09:00"

    def test_ahead(self) -> None:
        """A one-time job is planned at its instant, in its zone."""
        plan = plan_first(job(self.ONCE, timezone="Asia/Tokyo"), at("2026-03-01T00:00"))
        assert when(plan) == pending("2026-03-02T00:00")

    @pytest.mark.parametrize("policy", ["latest", "skip", "all"])
    def test_within_grace(self, policy: str) -> None:
        """One that was added a little late fires at once under any policy, the edge of its grace included."""
        plan = plan_first(job(self.ONCE, misfire_policy=policy), at("2026-03-02T09:05"))
        assert when(plan) == pending("2026-03-02T09:00")
        assert plan.missed is None

    @pytest.mark.parametrize("policy", ["latest", "all"])
    def test_beyond_grace_is_made_up(self, policy: str) -> None:
        """Beyond its grace it is still served under the policies that make up."""
        plan = plan_first(job(self.ONCE, misfire_policy=policy), at("2026-03-09T09:00"))
        assert when(plan) == pending("2026-03-02T09:00")

    @pytest.mark.parametrize(("before", "reason"), [(None, "misfire"), ("2026-03-02T09:00", "paused")])
    def test_beyond_grace_is_skipped(self, before: str | None, reason: Any) -> None:
        """Under "skip" it is done and recorded, with the reason that kept it from being served."""
        row = job(self.ONCE, misfire_policy="skip", scheduled_for=before)
        plan = plan_first(row, at("2026-03-02T09:06"))
        assert when(plan) == ("DONE", None, None)
        assert plan.missed == MissedStretch(at("2026-03-02T09:00"), at("2026-03-02T09:00"), 1, False, reason)

    @pytest.mark.parametrize("changes", [{"starts_at": "2026-03-02T09:01"}, {"ends_at": "2026-03-02T08:59"}])
    def test_outside_start_and_end(self, changes: dict[str, str]) -> None:
        """One that lies outside the job's own life never runs, and says why."""
        plan = plan_first(job(self.ONCE, **changes), at("2026-03-01T00:00"))
        assert when(plan) == ("DONE", None, None)
        assert "outside" in (plan.reason or "")

    def test_waiting_retry_waits_anew(self) -> None:
        """Its retry survives an edit, counted from now, because no other occurrence will come."""
        row = job(self.ONCE, scheduled_for="2026-03-02T09:00", attempt=1)
        plan = plan_first(row, at("2026-03-02T09:10"))
        assert plan.status == "PENDING"
        assert plan.next_run_at is not None
        assert at("2026-03-02T09:11") <= plan.next_run_at <= at("2026-03-02T09:11:06")
        assert (plan.scheduled_for, plan.attempt, plan.missed) == (at("2026-03-02T09:00"), 1, None)

    def test_waiting_retry_behind_the_end(self) -> None:
        """A retry that the job's end forbids leaves the one-time job failed, and recorded."""
        row = job(self.ONCE, scheduled_for="2026-03-02T09:00", attempt=1, ends_at="2026-03-02T09:10")
        plan = plan_first(row, at("2026-03-02T09:10"))
        assert when(plan) == ("FAILED", None, None)
        assert plan.missed is not None
        assert plan.missed.reason == "superseded"

    def test_moved_to_another_instant(self) -> None:
        """An edit of the instant makes it a new occurrence with all its tries."""
        row = job(self.ONCE, scheduled_for="2026-02-01T09:00", attempt=2)
        plan = plan_first(row, at("2026-03-01T00:00"))
        assert when(plan) == pending("2026-03-02T09:00")
        assert plan.attempt == 0


class TestFirstHandler:
    TEXT = "@handler fallback=24h"

    def test_now(self) -> None:
        """The first occurrence is now: only the handler can name the next."""
        assert when(plan_first(job(self.TEXT), at("2026-03-02T08:00"))) == pending("2026-03-02T08:00")

    def test_start(self) -> None:
        """A start ahead is the first occurrence."""
        plan = plan_first(job(self.TEXT, starts_at="2026-04-01T00:00"), at("2026-03-02T08:00"))
        assert when(plan) == pending("2026-04-01T00:00")

    def test_end(self) -> None:
        """A job that has ended is done."""
        plan = plan_first(job(self.TEXT, ends_at="2026-03-02T07:00"), at("2026-03-02T08:00"))
        assert when(plan) == ("DONE", None, None)

    def test_edit_keeps_the_handlers_instant(self) -> None:
        """An edit never fires anything: an instant that the handler chose stays."""
        plan = plan_first(job(self.TEXT, scheduled_for="2026-03-09T08:00"), at("2026-03-02T08:00"))
        assert when(plan) == pending("2026-03-09T08:00")
        assert plan.missed is None

    def test_resumed(self) -> None:
        """An instant that passed in a pause is recorded, and the handler asked now."""
        plan = plan_first(job(self.TEXT, scheduled_for="2026-03-01T08:00"), at("2026-03-02T08:00"))
        assert when(plan) == pending("2026-03-02T08:00")
        assert plan.missed == MissedStretch(
            at("2026-03-01T08:00"), at("2026-03-01T08:00"), 1, False, "paused"
        )

    def test_waiting_retry_waits_anew(self) -> None:
        """A waiting retry is kept, so an edit doesn't fire at once."""
        for before in ("2026-03-02T07:59", "2026-03-02T08:00"):
            plan = plan_first(job(self.TEXT, scheduled_for=before, attempt=1), at("2026-03-02T08:00"))
            assert plan.attempt == 1
            assert plan.next_run_at is not None
            assert plan.next_run_at >= at("2026-03-02T08:01")

    def test_waiting_retry_behind_the_end(self) -> None:
        """A retry that the job's end forbids ends the job, and is recorded."""
        row = job(self.TEXT, scheduled_for="2026-03-02T07:59", attempt=1, ends_at="2026-03-02T08:00:30")
        plan = plan_first(row, at("2026-03-02T08:00"))
        assert when(plan) == ("DONE", None, None)
        assert plan.missed is not None


class TestSuccess:
    def test_next_occurrence(self) -> None:
        """A success plans the next occurrence and clears every counter."""
        plan = plan_next(served(attempt=2, consecutive_failures=3), OK, at("2026-03-02T09:01"))
        assert plan == Plan(
            status="PENDING",
            next_run_at=at("2026-03-03T09:00"),
            scheduled_for=at("2026-03-03T09:00"),
            recorded="success",
        )

    def test_counts_from_the_occurrence(self) -> None:
        """The next one follows the nominal instant, not the end of the run, so nothing drifts."""
        plan = plan_next(served("@every 6h", created_at="2026-03-02T03:00"), OK, at("2026-03-02T09:59"))
        assert when(plan) == pending("2026-03-02T15:00")

    def test_occurrence_at_the_start(self) -> None:
        """The occurrence at the job's very start is not planned again once it was served."""
        plan = plan_next(served(starts_at="2026-03-02T09:00"), OK, at("2026-03-02T09:01"))
        assert when(plan) == pending("2026-03-03T09:00")

    def test_end(self) -> None:
        """The last occurrence before the end leaves the job done."""
        plan = plan_next(served(ends_at="2026-03-03T08:59"), OK, at("2026-03-02T09:01"))
        assert (when(plan), plan.recorded) == (("DONE", None, None), "success")

    def test_once(self) -> None:
        """A one-time job is done."""
        plan = plan_next(served("@once 2026-03-02T09:00"), OK, at("2026-03-02T09:01"))
        assert (when(plan), plan.recorded, plan.consecutive_failures) == (("DONE", None, None), "success", 0)

    def test_once_moved_ahead_meanwhile(self) -> None:
        """A one-time job that was moved to a later instant while it ran has that one to serve."""
        plan = plan_next(served("@once 2026-03-05T09:00"), OK, at("2026-03-02T09:01"))
        assert when(plan) == pending("2026-03-05T09:00")

    def test_start_moved_ahead_meanwhile(self) -> None:
        """A start that was moved while the job ran holds for what follows."""
        plan = plan_next(served(starts_at="2026-04-01T00:00"), OK, at("2026-03-02T09:01"))
        assert when(plan) == pending("2026-04-01T09:00")

    def test_next_at_of_another_kind(self) -> None:
        """An instant from a handler whose job has a schedule of its own is ignored, aloud."""
        plan = plan_next(served(), Outcome("success", next_at=at("2026-03-02T20:00")), at("2026-03-02T09:01"))
        assert when(plan) == pending("2026-03-03T09:00")
        assert "ignored" in (plan.reason or "")

    def test_row_without_an_occurrence(self) -> None:
        """A row that lost its nominal instant goes on from now."""
        plan = plan_next(served(scheduled_for=None), OK, at("2026-03-05T10:00"))
        assert when(plan) == pending("2026-03-06T09:00")


class TestOverrun:
    NOW = "2026-03-02T12:03"

    @pytest.mark.parametrize("outcome", [OK, Outcome("failure", retry=False), CANCELED])
    def test_latest(self, outcome: Outcome) -> None:
        """A run that outlasted three occurrences serves the last of them, however it ended."""
        plan = plan_next(served("@hourly"), outcome, at(self.NOW))
        assert when(plan) == pending("2026-03-02T12:00")
        assert plan.missed == MissedStretch(
            at("2026-03-02T10:00"), at("2026-03-02T11:00"), 2, False, "overrun"
        )

    def test_latest_of_one(self) -> None:
        """A single occurrence that passed is served late, and nothing is missed."""
        plan = plan_next(served("@hourly"), OK, at("2026-03-02T10:30"))
        assert (when(plan), plan.missed) == (pending("2026-03-02T10:00"), None)

    def test_exactly_now(self) -> None:
        """An occurrence at this very instant is due, not ahead."""
        plan = plan_next(served("@hourly"), OK, at("2026-03-02T10:00"))
        assert (when(plan), plan.missed) == (pending("2026-03-02T10:00"), None)

    def test_skip_within_grace(self) -> None:
        """Under "skip" the last one is served while it is within its grace."""
        plan = plan_next(served("@hourly", misfire_policy="skip"), OK, at(self.NOW))
        assert when(plan) == pending("2026-03-02T12:00")
        assert plan.missed == MissedStretch(
            at("2026-03-02T10:00"), at("2026-03-02T11:00"), 2, False, "overrun"
        )

    def test_skip_beyond_grace(self) -> None:
        """Beyond its grace all are missed, and the next one lies ahead."""
        plan = plan_next(served("@hourly", misfire_policy="skip"), OK, at("2026-03-02T12:06"))
        assert when(plan) == pending("2026-03-02T13:00")
        assert plan.missed == MissedStretch(
            at("2026-03-02T10:00"), at("2026-03-02T12:00"), 3, False, "overrun"
        )

    def test_skip_one_beyond_grace(self) -> None:
        """A stretch of one is missed just so."""
        plan = plan_next(served("@hourly", misfire_policy="skip"), OK, at("2026-03-02T10:06"))
        assert when(plan) == pending("2026-03-02T11:00")
        assert plan.missed == MissedStretch(
            at("2026-03-02T10:00"), at("2026-03-02T10:00"), 1, False, "overrun"
        )

    def test_skip_at_the_end(self) -> None:
        """With nothing ahead the job is done, and what it skipped is recorded."""
        row = served("@hourly", misfire_policy="skip", ends_at="2026-03-02T11:30")
        plan = plan_next(row, OK, at("2026-03-02T12:06"))
        assert plan.status == "DONE"
        assert plan.missed == MissedStretch(
            at("2026-03-02T10:00"), at("2026-03-02T11:00"), 2, False, "overrun"
        )

    def test_all(self) -> None:
        """Under "all" the next in order follows, and nothing is missed."""
        plan = plan_next(served("@hourly", misfire_policy="all"), OK, at(self.NOW))
        assert (when(plan), plan.missed) == (pending("2026-03-02T10:00"), None)

    def test_latest_stops_at_the_end(self) -> None:
        """Only occurrences up to the job's end count."""
        plan = plan_next(served("@hourly", ends_at="2026-03-02T11:30"), OK, at("2026-03-02T15:00"))
        assert when(plan) == pending("2026-03-02T11:00")
        assert plan.missed == MissedStretch(
            at("2026-03-02T10:00"), at("2026-03-02T10:00"), 1, False, "overrun"
        )

    def test_years(self) -> None:
        """A run that took a decade beside a minute's schedule is planned at once, its count cut."""
        plan = plan_next(served("* * * * *"), OK, at("2036-03-02T09:00:30"))
        assert when(plan) == pending("2036-03-02T09:00")
        assert plan.missed is not None
        assert plan.missed.cut
        assert (plan.missed.first, plan.missed.last) == (at("2026-03-02T09:01"), at("2036-03-02T08:59"))


class TestFailure:
    NOW = at("2026-03-02T09:01")

    def test_retry(self) -> None:
        """A failed try is followed by another of the same occurrence, which counts as no failure yet."""
        plan = plan_next(served(consecutive_failures=1), FAILED, self.NOW)
        assert plan.status == "PENDING"
        assert plan.scheduled_for == at("2026-03-02T09:00")
        assert plan.next_run_at is not None
        assert self.NOW + MINUTE <= plan.next_run_at <= self.NOW + 1.1 * MINUTE
        assert (plan.attempt, plan.consecutive_failures, plan.recorded) == (1, 1, "failure")

    def test_retry_waits_as_long_as_the_handler_was_asked_to(self) -> None:
        """`retry_after` is a lower bound: a shorter one than the policy's pause changes nothing."""
        asked = Outcome("failure", error="busy", retry_after=20 * MINUTE)
        assert plan_next(served(), asked, self.NOW).next_run_at == self.NOW + 20 * MINUTE
        soon = Outcome("failure", error="busy", retry_after=MINUTE / 60)
        assert plan_next(served(), soon, self.NOW) == plan_next(served(), FAILED, self.NOW)

    def test_a_wait_beyond_the_next_occurrence_gives_this_one_up(self) -> None:
        """However long a stranger's server asks for, even beyond the calendar, the schedule goes on."""
        asked = Outcome("failure", error="busy", retry_after=timedelta.max)
        plan = plan_next(served(), asked, self.NOW)
        assert (plan.status, plan.recorded) == ("PENDING", "superseded")
        assert plan.next_run_at == at("2026-03-03T09:00")

    def test_retry_of_a_row_without_an_occurrence(self) -> None:
        """A row that lost its nominal instant retries as of now."""
        assert plan_next(served(scheduled_for=None), FAILED, self.NOW).scheduled_for == self.NOW

    @pytest.mark.parametrize(
        ("outcome", "attempt", "reason"),
        [(FAILED, 3, "all 3 tries failed"), (Outcome("failure", retry=False), 1, "asked for no retry")],
    )
    def test_exhausted(self, outcome: Outcome, attempt: int, reason: str) -> None:
        """Without tries left the occurrence counts as failed and the next one follows, fresh."""
        plan = plan_next(served(attempt=attempt, consecutive_failures=1), outcome, self.NOW)
        assert when(plan) == pending("2026-03-03T09:00")
        assert (plan.attempt, plan.consecutive_failures, plan.recorded) == (0, 2, "exhausted")
        assert reason in (plan.reason or "")

    def test_exhausted_once(self) -> None:
        """A one-time job without tries left has failed."""
        plan = plan_next(served("@once 2026-03-02T09:00", attempt=3), FAILED, self.NOW)
        assert when(plan) == ("FAILED", None, None)
        assert (plan.recorded, plan.reason) == ("exhausted", "all 3 tries failed")

    def test_exhausted_at_the_end(self) -> None:
        """A recurring job whose last occurrence failed is done: it served what it had."""
        plan = plan_next(served(attempt=3, ends_at="2026-03-02T12:00"), FAILED, self.NOW)
        assert (plan.status, plan.recorded, plan.consecutive_failures) == ("DONE", "exhausted", 1)

    def test_exhausted_handler(self) -> None:
        """A handler that failed for good is asked again after the fallback."""
        plan = plan_next(served("@handler fallback=24h", attempt=3), FAILED, self.NOW)
        assert when(plan) == pending("2026-03-03T09:01")
        assert plan.reason == "all 3 tries failed"

    def test_handler_retries(self) -> None:
        """Nothing supersedes a handler's retry."""
        retry = RetryPolicy(delay=40 * DAY, max_delay=40 * DAY)
        plan = plan_next(served("@handler fallback=24h", retry=retry), FAILED, self.NOW)
        assert (plan.recorded, plan.attempt) == ("failure", 1)

    @pytest.mark.parametrize("schedule", ["* * * * *", "@every 1m"])
    def test_superseded(self, schedule: str) -> None:
        """A retry that would not come before the next occurrence isn't made; the old one counts as failed."""
        row = served(schedule, consecutive_failures=4, created_at="2026-03-02T09:00")
        plan = plan_next(row, FAILED, at("2026-03-02T09:00:10"))
        assert when(plan) == pending("2026-03-02T09:01")
        assert (plan.attempt, plan.consecutive_failures, plan.recorded) == (0, 5, "superseded")
        assert "2026-03-02T09:01" in (plan.reason or "")

    @pytest.mark.parametrize(("seconds", "recorded"), [(30, "superseded"), (29, "failure")])
    def test_superseded_at_the_very_instant(self, seconds: int, recorded: str) -> None:
        """A retry at the next occurrence's own instant loses to it; a second earlier it is made."""
        row = served("* * * * *", retry=RetryPolicy(delay=timedelta(0)))
        plan = plan_next(row, FAILED, at("2026-03-02T09:00:30") + timedelta(seconds=seconds))
        assert plan.recorded == recorded

    def test_superseded_by_one_that_passed(self) -> None:
        """After a long run the newest occurrence supersedes the retry, and those between are missed."""
        plan = plan_next(served("@hourly"), FAILED, at("2026-03-02T12:03"))
        assert (when(plan), plan.recorded) == (pending("2026-03-02T12:00"), "superseded")
        assert plan.missed is not None
        assert (plan.missed.count, plan.missed.reason) == (2, "overrun")

    @pytest.mark.parametrize(
        ("schedule", "status"), [("0 9 * * *", "DONE"), ("@once 2026-03-02T09:00", "FAILED")]
    )
    def test_retry_behind_the_end(self, schedule: str, status: str) -> None:
        """The job's end leaves no room for the retry: the occurrence has failed."""
        plan = plan_next(served(schedule, ends_at="2026-03-02T09:01:30"), FAILED, self.NOW)
        assert (plan.status, plan.recorded) == (status, "exhausted")
        assert "end" in (plan.reason or "")


class TestCanceled:
    def test_next_occurrence(self) -> None:
        """A run that a person stopped is left behind without counting as a failure."""
        plan = plan_next(served(consecutive_failures=1), CANCELED, at("2026-03-02T09:01"))
        assert when(plan) == pending("2026-03-03T09:00")
        assert (plan.attempt, plan.consecutive_failures, plan.recorded) == (0, 1, "canceled")

    @pytest.mark.parametrize(
        ("outcome", "reason"), [(CANCELED, "somebody"), (Outcome("canceled"), "canceled")]
    )
    def test_once(self, outcome: Outcome, reason: str) -> None:
        """A one-time job that was stopped has failed, with the reason."""
        plan = plan_next(served("@once 2026-03-02T09:00"), outcome, at("2026-03-02T09:01"))
        assert (when(plan), plan.recorded) == (("FAILED", None, None), "canceled")
        assert reason in (plan.reason or "")

    def test_handler(self) -> None:
        """A handler that was stopped is asked again after the fallback."""
        plan = plan_next(served("@handler fallback=6h"), CANCELED, at("2026-03-02T09:01"))
        assert when(plan) == pending("2026-03-02T15:01")


class TestHandler:
    TEXT = "@handler fallback=24h"
    NOW = at("2026-03-02T09:01")

    def test_its_instant(self) -> None:
        """The instant that the handler gives is the next occurrence, in UTC."""
        berlin = datetime(2026, 3, 4, 8, 30, tzinfo=timezone(timedelta(hours=1)))
        plan = plan_next(served(self.TEXT), Outcome("success", next_at=berlin), self.NOW)
        assert when(plan) == pending("2026-03-04T07:30")
        assert plan.next_run_at is not None
        assert plan.next_run_at.tzinfo is UTC
        assert plan.reason is None

    @pytest.mark.parametrize(
        ("next_at", "reason"),
        [
            (None, "gave no next instant"),
            ("2026-03-02T09:01", "not in the future"),
            ("2025-01-01T00:00", "not in the future"),
            ("2027-01-01T00:00", "behind the job's end"),
        ],
    )
    def test_fallback(self, next_at: str | None, reason: str) -> None:
        """No answer and a wrong one lead to the fallback with a reason, so nothing dies quietly."""
        row = served(self.TEXT, ends_at="2026-06-01T00:00")
        plan = plan_next(row, Outcome("success", next_at=at(next_at) if next_at else None), self.NOW)
        assert when(plan) == pending("2026-03-03T09:01")
        assert plan.recorded == "success"
        assert reason in (plan.reason or "")

    def test_fallback_behind_the_end(self) -> None:
        """A fallback behind the job's end leaves it done."""
        plan = plan_next(served(self.TEXT, ends_at="2026-03-03T09:00"), OK, self.NOW)
        assert when(plan) == ("DONE", None, None)

    def test_clock_set_back(self) -> None:
        """A clock that was set back doesn't plan behind the occurrence that was served."""
        earlier = at("2026-03-01T00:00")
        assert when(plan_next(served(self.TEXT), OK, earlier)) == pending("2026-03-03T09:00")
        plan = plan_next(served(self.TEXT), Outcome("success", next_at=at("2026-03-02T08:00")), earlier)
        assert when(plan) == pending("2026-03-03T09:00")

    def test_without_an_occurrence(self) -> None:
        """A row that lost its nominal instant goes on from now."""
        assert when(plan_next(served(self.TEXT, scheduled_for=None), OK, self.NOW)) == pending(
            "2026-03-03T09:01"
        )


class TestPause:
    @pytest.mark.parametrize(("before", "pauses"), [(1, False), (2, True), (7, True)])
    def test_after_so_many_failures(self, before: int, pauses: bool) -> None:
        """The job pauses itself with the failure that fills the row, and is planned all the same."""
        row = served(attempt=3, consecutive_failures=before, retry=RetryPolicy(pause_after=3))
        plan = plan_next(row, FAILED, at("2026-03-02T09:01"))
        assert (plan.pause_reason is not None) is pauses
        assert when(plan) == pending("2026-03-03T09:00")

    def test_superseded_counts(self) -> None:
        """An occurrence whose retry was superseded has failed too."""
        row = served("* * * * *", consecutive_failures=2, retry=RetryPolicy(pause_after=3))
        plan = plan_next(row, FAILED, at("2026-03-02T09:00:10"))
        assert plan.pause_reason == "3 occurrences failed in a row, and pause_after is 3"

    @pytest.mark.parametrize("outcome", [OK, CANCELED])
    def test_others_do_not_pause(self, outcome: Outcome) -> None:
        """Neither a success nor a cancellation pauses a job, whatever its count was."""
        row = served(consecutive_failures=9, retry=RetryPolicy(pause_after=3))
        assert plan_next(row, outcome, at("2026-03-02T09:01")).pause_reason is None

    def test_a_retry_does_not_pause(self) -> None:
        """A try that will be repeated is no failed occurrence yet."""
        row = served(consecutive_failures=9, retry=RetryPolicy(pause_after=3))
        assert plan_next(row, FAILED, at("2026-03-02T09:01")).pause_reason is None

    def test_an_ended_job_does_not_pause(self) -> None:
        """There is nothing left to pause."""
        row = served("@once 2026-03-02T09:00", attempt=3, retry=RetryPolicy(pause_after=1))
        assert plan_next(row, FAILED, at("2026-03-02T09:01")).pause_reason is None


class TestManual:
    @pytest.mark.parametrize(
        ("outcome", "recorded"), [(OK, "success"), (FAILED, "exhausted"), (CANCELED, "canceled")]
    )
    def test_keeps_the_plan(self, outcome: Outcome, recorded: str) -> None:
        """A run that a person asked for is recorded; plan, tries and failures stay as they are."""
        row = served(
            manual=True,
            next_run_at="2026-03-03T09:04",
            scheduled_for="2026-03-03T09:00",
            attempt=2,
            consecutive_failures=5,
            retry=RetryPolicy(pause_after=1),
        )
        plan = plan_next(row, outcome, at("2026-03-02T17:00"))
        assert when(plan) == pending("2026-03-03T09:04", "2026-03-03T09:00")
        assert (plan.attempt, plan.consecutive_failures, plan.recorded) == (2, 5, recorded)
        assert (plan.pause_reason, plan.missed) == (None, None)
        assert plan.reason == (CANCELED.error if outcome is CANCELED else None)

    @pytest.mark.parametrize("schedule", ["0 9 * * *", "@handler fallback=24h", "@once 2026-03-05T09:00"])
    def test_of_an_unplanned_row(self, schedule: str) -> None:
        """A row that waits for its plan goes on waiting for it."""
        row = served(schedule, manual=True, next_run_at=None, scheduled_for=None, attempt=0)
        assert when(plan_next(row, OK, at("2026-03-02T17:00"))) == ("PENDING", None, None)

    @pytest.mark.parametrize(
        ("schedule", "ends_at", "outcome", "status"),
        [
            ("@once 2026-03-02T09:00", None, OK, "DONE"),
            ("@once 2026-03-02T09:00", None, FAILED, "FAILED"),
            ("0 9 * * *", "2026-03-02T12:00", OK, "DONE"),
            ("0 9 * * *", "2026-03-02T12:00", FAILED, "DONE"),
            ("@handler fallback=24h", "2026-03-02T12:00", CANCELED, "DONE"),
        ],
    )
    def test_of_an_ended_row(self, schedule: str, ends_at: str | None, outcome: Outcome, status: str) -> None:
        """A job that had ended isn't brought back to life by running it once more."""
        row = served(schedule, manual=True, next_run_at=None, scheduled_for=None, ends_at=ends_at)
        assert plan_next(row, outcome, at("2026-03-02T17:00")).status == status


class TestUnusableAtTheEnd:
    @pytest.mark.parametrize(
        ("outcome", "recorded", "failures"),
        [(OK, "success", 0), (FAILED, "exhausted", 3), (CANCELED, "canceled", 2)],
    )
    def test_outcome_is_kept(self, outcome: Outcome, recorded: str, failures: int) -> None:
        """A schedule that became unusable while the job ran doesn't lose the result of the run."""
        plan = plan_next(served("nonsense", consecutive_failures=2), outcome, at("2026-03-02T09:01"))
        assert when(plan) == ("INVALID", None, None)
        assert (plan.recorded, plan.consecutive_failures, plan.attempt) == (recorded, failures, 0)
        assert plan.reason

    def test_manual_run(self) -> None:
        """A manual run of a row that can't be planned is recorded, keeps a plan it had, and counts nothing."""
        row = served("nonsense", manual=True, consecutive_failures=2)
        kept = plan_next(row, FAILED, at("2026-03-02T17:00"))
        assert when(kept) == pending("2026-03-02T09:00")
        plan = plan_next(replace(row, next_run_at=None), FAILED, at("2026-03-02T17:00"))
        assert when(plan) == ("INVALID", None, at("2026-03-02T09:00"))
        assert [(p.recorded, p.consecutive_failures, p.attempt) for p in (kept, plan)] == [
            ("exhausted", 2, 1)
        ] * 2

    @pytest.mark.parametrize("retry", [RetryPolicy(delay=timedelta.max, max_delay=timedelta.max)])
    def test_delays_beyond_all_dates(self, retry: RetryPolicy) -> None:
        """A delay that leads out of the calendar makes the row invalid, in words."""
        plan = plan_next(served(retry=retry), FAILED, at("2026-03-02T09:01"))
        assert plan.status == "INVALID"
        assert "year 9999" in (plan.reason or "")
        first = job("@once 9999-12-31T23:30", jitter=DAY, id=UUID(int=1))
        assert plan_first(first, at("2026-03-02T09:01")).status == "INVALID"


class TestBackoff:
    def test_grows_to_its_bound(self) -> None:
        """Pauses double up to the longest."""
        policy = RetryPolicy(delay=MINUTE, max_delay=10 * MINUTE)
        assert [pause(policy, n) / MINUTE for n in (0, 1, 2, 3, 4, 5, 6)] == [1, 1, 2, 4, 8, 10, 10]

    def test_equal_pauses(self) -> None:
        """A factor of 1 keeps them equal."""
        assert {pause(RetryPolicy(factor=1.0), n) for n in range(1, 50)} == {MINUTE}

    def test_no_pause(self) -> None:
        """No delay is no delay, however often."""
        assert pause(RetryPolicy(delay=timedelta(0)), 10**6) == timedelta(0)

    def test_delay_above_its_bound(self) -> None:
        """The longest pause holds for the first one too."""
        assert pause(RetryPolicy(delay=HOUR, max_delay=MINUTE), 1) == MINUTE

    def test_endless_tries(self) -> None:
        """The millionth try neither overflows nor passes the bound."""
        assert pause(RetryPolicy(factor=1e300), 10**6) == HOUR

    def test_spread_is_stable_and_own(self) -> None:
        """The same try waits equally long whoever computes it; other jobs and tries wait otherwise."""
        now = at("2026-03-02T09:01")
        waits = {
            (i, n): plan_next(
                served(id=UUID(int=i), attempt=n, retry=RetryPolicy(max_attempts=9)), FAILED, now
            )
            for i in range(20)
            for n in (1, 2)
        }
        again = plan_next(served(id=UUID(int=7), retry=RetryPolicy(max_attempts=9)), FAILED, now)
        assert again == waits[7, 1]
        assert len({plan.next_run_at for plan in waits.values()}) == len(waits)

    def test_spread_is_a_tenth(self) -> None:
        """Jobs that failed together come back over the whole tenth that is added to the pause."""
        now = at("2026-03-02T09:01")
        plans = [plan_next(served(id=UUID(int=i)), FAILED, now) for i in range(300)]
        added = [plan.next_run_at - now - MINUTE for plan in plans if plan.next_run_at is not None]
        assert len(added) == len(plans)
        assert timedelta(0) <= min(added) < timedelta(seconds=0.3)
        assert timedelta(seconds=5.7) < max(added) <= timedelta(seconds=6)

    @given(st.integers(1, 200), st.floats(1, 100), st.integers(0, 10**6), st.integers(0, 10**6))
    def test_never_beyond_its_bound(self, attempt: int, factor: float, delay: int, bound: int) -> None:
        """Whatever the policy, a pause is at most the longest, and a later one is never shorter."""
        policy = RetryPolicy(
            delay=timedelta(seconds=delay), max_delay=timedelta(seconds=bound), factor=factor
        )
        assert timedelta(0) <= pause(policy, attempt) <= pause(policy, attempt + 1) <= policy.max_delay


class TestJitter:
    def test_spreads_jobs(self) -> None:
        """Jobs of one schedule become due all over their jitter, in whole seconds, below it."""
        plans = [plan_first(job(id=UUID(int=i), jitter=HOUR), at("2026-03-02T08:00")) for i in range(500)]
        delays = {(plan.next_run_at or at("2026-01-01")) - at("2026-03-02T09:00") for plan in plans}
        assert {plan.scheduled_for for plan in plans} == {at("2026-03-02T09:00")}
        assert min(delays) >= timedelta(0)
        assert max(delays) < HOUR
        assert len(delays) > 400
        assert {delay % timedelta(seconds=2) for delay in delays} == {timedelta(0), timedelta(seconds=1)}

    def test_stable_for_each_job(self) -> None:
        """A job's delay is the same on every day."""
        row = job(jitter=HOUR)
        first, second = (plan_first(row, at(f"2026-03-0{day}T08:00")) for day in (2, 3))
        assert first.next_run_at is not None
        assert second.next_run_at == first.next_run_at + DAY

    @pytest.mark.parametrize("jitter", [2 * HOUR, 30 * DAY])
    def test_below_the_distance(self, jitter: timedelta) -> None:
        """A jitter above the distance of two occurrences never makes them change places."""
        for i in range(50):
            plan = plan_first(job("@hourly", id=UUID(int=i), jitter=jitter), at("2026-03-02T08:30"))
            assert plan.next_run_at is not None
            assert timedelta(0) <= plan.next_run_at - at("2026-03-02T09:00") < HOUR

    def test_of_the_very_distance(self) -> None:
        """A delay as long as the distance itself would meet the next occurrence, so it becomes none."""
        row = job("* * * * *", jitter=timedelta(seconds=61))
        row = next(
            replace(row, id=UUID(int=i)) for i in range(999) if stable_hash("jitter", UUID(int=i)) % 61 == 60
        )
        plan = plan_first(row, at("2026-03-02T08:59"))
        assert when(plan) == pending("2026-03-02T09:00")

    def test_an_end_far_ahead_changes_nothing(self) -> None:
        """A job with an end keeps its own delay as long as the end is far."""
        plans = [
            plan_first(job(jitter=HOUR, ends_at=end), at("2026-03-02T08:00")) for end in (None, "2030-01-01")
        ]
        assert plans[0] == plans[1]
        assert when(plans[0]) != pending("2026-03-02T09:00")

    def test_not_behind_the_end(self) -> None:
        """The last occurrence is served by the job's end."""
        for i in range(20):
            row = job(id=UUID(int=i), jitter=HOUR, ends_at="2026-03-02T09:01")
            plan = plan_first(row, at("2026-03-02T08:00"))
            assert plan.next_run_at is not None
            assert at("2026-03-02T09:00") <= plan.next_run_at <= at("2026-03-02T09:01")

    def test_below_a_second_is_none(self) -> None:
        """A jitter of less than a second has no whole second to choose."""
        plan = plan_first(job(jitter=timedelta(milliseconds=900)), at("2026-03-02T08:00"))
        assert plan.next_run_at == plan.scheduled_for

    def test_grace_counts_from_the_jittered_instant(self) -> None:
        """Under "skip" an occurrence whose own delay has not passed yet isn't missed."""
        row = next(
            row
            for row in (
                served("@hourly", id=UUID(int=i), jitter=HOUR, misfire_policy="skip") for i in range(99)
            )
            if (plan_first(row, at("2026-03-02T09:00")).next_run_at or at("2026-01-01"))
            > at("2026-03-02T10:40")
        )
        plan = plan_next(row, OK, at("2026-03-02T10:20"))
        assert (plan.scheduled_for, plan.missed) == (at("2026-03-02T10:00"), None)


RECURRING = [
    "*/5 * * * *",
    "@hourly",
    "30 2 * * *",
    "0 9 * * 1-5",
    "@every 90m",
    "@window 1h",
    "RRULE:FREQ=DAILY;BYHOUR=2;BYMINUTE=30;BYSECOND=0",
    "@handler fallback=24h",
]
ZONES = ["UTC", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Antarctica/Troll"]

jobs = st.builds(
    lambda text, zone, policy, misfire, jitter, number: job(
        text, timezone=zone, dst_policy=policy, misfire_policy=misfire, jitter=jitter, id=UUID(int=number)
    ),
    st.sampled_from(RECURRING),
    st.sampled_from(ZONES),
    st.sampled_from(["vixie", "wall", "wall-first"]),
    st.sampled_from(["latest", "skip", "all"]),
    st.sampled_from([timedelta(0), 10 * MINUTE, 3 * HOUR]),
    st.integers(0, 2**128 - 1),
)
# Around the clock changes of these zones in 2026, to the minute.
starts = st.integers(0, 365 * 24 * 60).map(lambda minute: at("2026-01-01") + minute * MINUTE)
lateness = st.one_of(st.integers(0, 900), st.integers(0, 400_000)).map(
    lambda seconds: timedelta(seconds=seconds)
)
outcomes = st.sampled_from([OK, FAILED, Outcome("failure", retry=False), CANCELED])


class TestProperties:
    @given(jobs, starts, lateness)
    def test_success_leads_ahead(self, row: PlannedJob, start: datetime, late: timedelta) -> None:
        """After a success of a recurring job the plan lies strictly behind the served occurrence."""
        first = plan_first(row, start)
        assume(first.next_run_at is not None)
        assert first.next_run_at is not None
        assert first.scheduled_for is not None
        assert first.scheduled_for >= start
        now = first.next_run_at + late
        done = replace(row, next_run_at=first.next_run_at, scheduled_for=first.scheduled_for, attempt=1)
        plan = plan_next(done, OK, now)
        assert plan.next_run_at is not None
        assert plan.scheduled_for is not None
        assert plan.next_run_at >= plan.scheduled_for > first.scheduled_for

    @given(jobs, starts, st.lists(st.tuples(outcomes, lateness), min_size=1, max_size=12))
    def test_never_back_never_twice(
        self, row: PlannedJob, now: datetime, story: list[tuple[Outcome, timedelta]]
    ) -> None:
        """Whatever happens in whatever order, occurrences go forward, and none is planned once it is over."""
        plan, over = plan_first(row, now), set[datetime]()
        for outcome, late in story:
            assert plan.status == "PENDING"
            assert plan.next_run_at is not None
            assert plan.scheduled_for is not None
            assert plan.scheduled_for not in over
            now = max(now, plan.next_run_at) + late
            before = plan.scheduled_for
            plan = plan_next(
                replace(
                    row,
                    next_run_at=plan.next_run_at,
                    scheduled_for=before,
                    attempt=plan.attempt + 1,
                    consecutive_failures=plan.consecutive_failures,
                ),
                outcome,
                now,
            )
            assert plan.scheduled_for is not None
            assert (plan.scheduled_for == before) is (plan.recorded == "failure")
            assert plan.scheduled_for >= before
            if plan.recorded != "failure":
                over.add(before)
            if plan.missed is not None:
                assert before < plan.missed.first <= plan.missed.last < plan.scheduled_for
