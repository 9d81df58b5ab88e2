"""The busiest minutes and what to do about them: plain functions of counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cronless_dagster.assets.minute_waves import busiest, propose_spread

SIX = datetime(2026, 3, 3, 6, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_busiest_minutes() -> None:
    """Most first, of equal ones the earlier; within one the types with most first."""
    minutes = {
        SIX: {"renewal": 3, "digest": 7},
        SIX + MINUTE: {"digest": 10},
        SIX + 2 * MINUTE: {"digest": 11},
        SIX + 3 * MINUTE: {"digest": 1},
    }
    waves = busiest(minutes, 3)
    assert [(wave.minute, wave.jobs) for wave in waves] == [
        (SIX + 2 * MINUTE, 11),
        (SIX, 10),
        (SIX + MINUTE, 10),
    ]
    assert list(waves[1].by_type.items()) == [("digest", 7), ("renewal", 3)]


class TestSpread:
    def test_a_lone_wave(self) -> None:
        """The shortest jitter that ends it; the neighbours' own jobs are counted in."""
        [one] = propose_spread({SIX: {"email_digest": 2_310, "renewal": 6}, SIX + 2 * MINUTE: {"renewal": 5}})
        assert one.text == (
            "2,310 jobs of email_digest at 06:00 UTC: a jitter of 30 min would bring the highest minute to 83"
        )
        # 2,310 in 30 minutes are 77 each, and 6 of another type are there already.
        assert (one.jobs, one.jitter, one.highest) == (2_310, 30 * MINUTE, 83)

    def test_no_jitter_is_long_enough(self) -> None:
        """Then the longest is proposed."""
        [one] = propose_spread({SIX: {"digest": 100_000}})
        assert (one.jitter, one.highest) == (60 * MINUTE, 1_667)

    def test_one_after_the_other(self) -> None:
        """The highest first; what they move onto each other is in the figure of both."""
        first, second = propose_spread({SIX: {"digest": 3_000}, SIX + MINUTE: {"renewal": 2_000}})
        assert (first.job_type, first.minute) == ("digest", SIX)
        assert (second.job_type, second.minute) == ("renewal", SIX + MINUTE)
        assert (
            first.highest
            == second.highest
            == 3_000 // (first.jitter // MINUTE) + -(-2_000 // (second.jitter // MINUTE))
        )

    def test_nothing_stands_out(self) -> None:
        """Even minutes, few jobs, a minute of many small types: nothing to propose."""
        assert propose_spread({}) == []
        assert propose_spread({SIX + n * MINUTE: {"digest": 5_000} for n in range(1_440)}) == []
        assert propose_spread({SIX: {"digest": 99}}) == []
        assert propose_spread({SIX: {f"type {n}": 100 for n in range(50)}}) == []

    def test_at_most_five(self) -> None:
        """A list that nobody reads to its end helps nobody."""
        assert len(propose_spread({SIX + n * timedelta(hours=1): {"digest": 9_000} for n in range(20)})) == 5

    def test_the_statement(self) -> None:
        """It names exactly that minute's rows, and a name with a quote in it stays a name."""
        [one] = propose_spread({SIX: {"it's": 600}})
        assert one.sql == (
            "UPDATE cronless.scheduled_job SET jitter_seconds = 900\n"
            "WHERE job_type = 'it''s' AND status = 'PENDING' AND paused_at IS NULL\n"
            "  AND next_run_at >= '2026-03-03T06:00Z' AND next_run_at < '2026-03-03T06:01Z'\n"
            "  AND jitter_seconds < 900;"
        )
