from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from time import thread_time

import pytest

from cronless_dagster.scheduling.errors import ScheduleError, TimezoneError
from cronless_dagster.scheduling.schedules import parse_schedule


def _next(line: str, zone: str, base: str, policy: str = "vixie", number: int = 2) -> list[str]:
    after = parse_schedule(line, zone, policy).instants_after(datetime.fromisoformat(base))
    return [f"{at:%Y-%m-%dT%H:%MZ}" for at in islice(after, number)]


class TestSkippedHour:
    """2026-03-08 in New York: 02:00 to 03:00 don't exist, 03:00 is 07:00Z."""

    BASE = "2026-03-08T05:30:00Z"

    def test_a_fixed_time_runs_at_the_end_of_the_gap_under_vixie(self) -> None:
        """Two times in the gap are one run at its end."""
        assert _next("10,40 2 * * *", "America/New_York", self.BASE) == [
            "2026-03-08T07:00Z",
            "2026-03-09T06:10Z",
        ]

    def test_a_wildcard_has_nothing_in_the_gap(self) -> None:
        """A minute field with a star follows real time, so the skipped hour has no runs."""
        assert _next("*/20 2 * * *", "America/New_York", self.BASE) == [
            "2026-03-09T06:00Z",
            "2026-03-09T06:20Z",
        ]

    @pytest.mark.parametrize("policy", ["wall", "wall-first"])
    def test_the_wall_never_shows_it(self, policy: str) -> None:
        """Under the wall policies a skipped time is not made up."""
        assert _next("10 2 * * *", "America/New_York", self.BASE, policy) == [
            "2026-03-09T06:10Z",
            "2026-03-10T06:10Z",
        ]

    def test_the_gaps_end_is_one_run(self) -> None:
        """A line that names both a skipped time and the gap's end runs once there."""
        assert _next("0 2,3 * * *", "America/New_York", self.BASE) == [
            "2026-03-08T07:00Z",
            "2026-03-09T06:00Z",
        ]

    def test_a_missing_day_is_a_clock_being_set(self) -> None:
        """Apia had no 30 December 2011: more than three hours, so nothing is made up."""
        assert _next("0 12 30 12 *", "Pacific/Apia", "2011-12-29T22:00:00Z", number=1) == [
            "2012-12-29T22:00Z"
        ]


class TestRepeatedHour:
    """2026-11-01 in New York: 01:00 to 02:00 come twice, from 05:00Z and from 06:00Z."""

    def test_policies(self) -> None:
        """A fixed time runs once by default, twice on the wall."""
        base = "2026-11-01T04:00:00Z"
        once = ["2026-11-01T05:30Z", "2026-11-02T06:30Z"]
        assert _next("30 1 * * *", "America/New_York", base) == once
        assert _next("30 1 * * *", "America/New_York", base, "wall-first") == once
        assert _next("30 1 * * *", "America/New_York", base, "wall") == [
            "2026-11-01T05:30Z",
            "2026-11-01T06:30Z",
        ]

    @pytest.mark.parametrize(
        ("base", "policy", "expected"),
        [
            ("2026-11-01T05:45:00Z", "vixie", "2026-11-02T06:30Z"),
            ("2026-11-01T05:45:00Z", "wall", "2026-11-01T06:30Z"),
            ("2026-11-01T06:15:00Z", "vixie", "2026-11-02T06:30Z"),
            ("2026-11-01T06:15:00Z", "wall", "2026-11-01T06:30Z"),
            ("2026-11-01T06:45:00Z", "wall", "2026-11-02T06:30Z"),
            ("2026-11-01T05:59:59Z", "wall", "2026-11-01T06:30Z"),
        ],
    )
    def test_bases_inside(self, base: str, policy: str, expected: str) -> None:
        """From a base inside either pass the answer never lies behind it."""
        assert _next("30 1 * * *", "America/New_York", base, policy, 1) == [expected]

    def test_a_wildcard_runs_in_both_passes(self) -> None:
        """An hourly line under vixie goes on every hour of real time."""
        assert _next("0 * * * *", "America/New_York", "2026-11-01T04:30:00Z", number=3) == [
            "2026-11-01T05:00Z",
            "2026-11-01T06:00Z",
            "2026-11-01T07:00Z",
        ]


class TestSearch:
    """The far end of the calendar and of patience."""

    def test_leap_days_on_a_weekday(self) -> None:
        """29 February on a Monday comes every 28 years, 40 across a year such as 2100."""
        assert _next("0 0 29 2 */8", "UTC", "2026-01-01T00:00:00Z", number=1) == ["2032-02-29T00:00Z"]
        assert _next("0 0 29 */11 MON", "UTC", "2025-12-31T12:00:00Z", number=1) == ["2026-01-05T00:00Z"]

    @pytest.mark.parametrize("line", ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31 2 */2", "0 0 * 2 1#5,*/9"])
    def test_never_or_rarely_ends_quickly(self, line: str) -> None:
        """Lines that never fire, or hardly ever, are answered."""
        schedule = parse_schedule(line, "Europe/Berlin")
        for at in islice(schedule.instants_after(datetime(2026, 1, 1, tzinfo=UTC)), 3):
            assert at.year < 2200

    def test_a_line_that_its_zone_always_skips_never_fires(self) -> None:
        """02:00 on the second Sunday of March is in New York's gap every year."""
        schedule = parse_schedule("0 2 * 3 SUN#2", "America/New_York", "wall")
        started = thread_time()
        assert schedule.next_after(datetime(2038, 1, 1, tzinfo=UTC)) is None
        assert thread_time() - started < 0.1

    def test_the_year_9999_ends_it(self) -> None:
        """Past the last year datetime knows there is nothing, and no error."""
        for zone in ("UTC", "America/New_York", "Pacific/Kiritimati"):
            assert (
                parse_schedule("0 0 1 1 *", zone).next_after(datetime(9999, 12, 31, 23, tzinfo=UTC)) is None
            )

    def test_naive_base_is_refused(self) -> None:
        """A base without a zone is never guessed at."""
        with pytest.raises(TimezoneError, match="has no zone"):
            parse_schedule("* * * * *").next_after(datetime(2026, 1, 1))

    def test_an_every_minute_line_over_years_is_jumped(self) -> None:
        """Seven years of every minute: the last instant exact, the count cut at its bound."""
        limit = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)
        found = parse_schedule("* * * * *", "Europe/London").last_at_or_before(
            limit, after=limit - timedelta(days=2557)
        )
        assert found == (limit.replace(second=0), 10_000, True)


@pytest.mark.parametrize(
    ("policy", "line", "in_march", "in_november"),
    [
        ("vixie", "*/10 * * * *", 7 * 144 - 6, 7 * 144 + 6),
        ("wall", "*/10 * * * *", 7 * 144 - 6, 7 * 144 + 6),
        ("wall-first", "*/10 * * * *", 7 * 144 - 6, 7 * 144),
        ("vixie", "0,30 0-23 * * *", 7 * 48 - 2, 7 * 48),
        ("wall", "0,10,20,30,40,50 0,1,2 * * *", 7 * 18 - 6, 7 * 18 + 6),
    ],
)
def test_a_week_with_a_change_is_counted(policy: str, line: str, in_march: int, in_november: int) -> None:
    """Days are counted whole, but for the one with the skipped or the repeated hour in its midst.

    Fixed times in the gap and one at its end are a single run.
    """
    schedule = parse_schedule(line, "America/New_York", policy)
    counts = []
    for after in (datetime(2026, 3, 5, 5, tzinfo=UTC), datetime(2026, 10, 29, 4, tzinfo=UTC)):
        start = after - timedelta(seconds=1)
        shift = timedelta(hours=-1 if after.month == 3 else 1)
        counts.append(schedule.count(start, start + timedelta(days=7) + shift)[0])
    assert counts == [in_march, in_november]


class TestFields:
    """What the five fields take, and how a wrong one is refused."""

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("0 0 L * *", "2026-11-30T00:00Z"),
            ("0 0 LW * *", "2026-11-30T00:00Z"),
            ("0 0 * * 5L", "2026-11-27T00:00Z"),
            ("0 0 * * MON#2", "2026-11-09T00:00Z"),
            ("0 0 * nov 7", "2026-11-08T00:00Z"),
            ("0 12 5/10 * *", "2026-11-05T12:00Z"),
            ("  0\t0  1   12 * ", "2026-12-01T00:00Z"),
            ("00 08 01 12 *", "2026-12-01T08:00Z"),
            ("5-5/2 * * * *", "2026-11-03T00:05Z"),
            ("@monthly", "2026-12-01T00:00Z"),
            ("@Weekly", "2026-11-08T00:00Z"),
            ("@annually", "2027-01-01T00:00Z"),
        ],
    )
    def test_first_firing(self, line: str, expected: str) -> None:
        """From 3 November 2026, a Tuesday, each line first fires when it says."""
        assert _next(line, "UTC", "2026-11-03T00:00:00Z", number=1) == [expected]

    def test_a_range_of_one_value_is_that_value(self) -> None:
        """5-5/2 is minute 5 alone, although 5/2 goes on to the field's end."""
        assert _next("5-5/2 * * * *", "UTC", "2026-11-03T00:00:00Z") == [
            "2026-11-03T00:05Z",
            "2026-11-03T01:05Z",
        ]

    @pytest.mark.parametrize(
        ("line", "says"),
        [
            ("60 * * * *", "minute field '60'"),
            ("* 24 * * *", "hour field '24'"),
            ("* * 0 * *", "day of month field '0'"),
            ("* * * 13 *", "month field '13'"),
            ("* * * * 8", "day of week field '8'"),
            ("* * * * SAT-SUN", "must not wrap"),
            ("*/0 * * * *", "minute field"),
            ("*/-5 * * * *", "minute field"),
            ("5-1 * * * *", "minute field"),
            ("1,,2 * * * *", "minute field"),
            ("? * * * *", "minute field"),
            ("* * * *", "4 fields"),
            ("0 */5 * * * *", "6 fields .* seconds"),
            ("0 0 12 * * ? 2099", "7 fields"),
            ("@reboot", "nothing boots"),
            ("@fortnightly", "unknown"),
            ("every day", "2 fields"),
        ],
    )
    def test_refused(self, line: str, says: str) -> None:
        """The message names the field and its text, or what is wrong with the whole."""
        with pytest.raises(ScheduleError, match=says):
            parse_schedule(line)
