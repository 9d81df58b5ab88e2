from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import pytest

from cronless_dagster.scheduling.errors import ScheduleError, TimezoneError
from cronless_dagster.scheduling.schedules import RRuleSchedule, parse_schedule

NEW_YEAR = "2026-01-01T00:00:00Z"
ANCHOR = datetime(2026, 1, 5, 8, 41, 17, 5, tzinfo=UTC)


def _next(text: str, base: str = NEW_YEAR, zone: str = "UTC", number: int = 3) -> list[str]:
    after = parse_schedule(text, zone).instants_after(datetime.fromisoformat(base), anchor=ANCHOR)
    return [f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in islice(after, number)]


class TestStart:
    """Where a rule begins, and in which zone."""

    def test_dtstart_names_the_zone(self) -> None:
        """TZID counts, then Z, then the row's zone."""
        rule = "RRULE:FREQ=DAILY;COUNT=1"
        row = "Asia/Tokyo"
        assert _next(f"DTSTART;TZID=Europe/Paris:20260701T090000\n{rule}", zone=row) == [
            "2026-07-01T07:00:00Z"
        ]
        assert _next(f"DTSTART:20260701T090000Z\n{rule}", zone=row) == ["2026-07-01T09:00:00Z"]
        assert _next(f"DTSTART:20260701T090000\n{rule}", zone=row) == ["2026-07-01T00:00:00Z"]
        assert _next(f"DTSTART;VALUE=DATE:20260701\n{rule}", zone=row) == ["2026-06-30T15:00:00Z"]

    def test_without_dtstart_the_anchors_minute_is_the_start(self) -> None:
        """The time of day is the anchor's, without its seconds."""
        assert _next("RRULE:FREQ=DAILY", number=2) == ["2026-01-05T08:41:00Z", "2026-01-06T08:41:00Z"]

    def test_without_dtstart_named_hours_are_full_hours(self) -> None:
        """BYHOUR=9 alone means 09:00, not the minute at which somebody made the row."""
        assert _next("RRULE:FREQ=WEEKLY;BYDAY=WE;BYHOUR=9", number=1) == ["2026-01-07T09:00:00Z"]

    def test_without_anchor_either_it_is_the_epoch(self) -> None:
        """A rule is always defined, so that it can be explained without a row."""
        schedule = parse_schedule("RRULE:FREQ=DAILY", "Europe/Berlin")
        assert schedule.next_after(ANCHOR) == datetime(2026, 1, 5, 23, tzinfo=UTC)

    def test_a_far_start_is_no_walk(self) -> None:
        """A quarter-hourly rule from 2020 starts its search near the base."""
        text = "DTSTART;TZID=America/New_York:20200101T000000\nRRULE:FREQ=MINUTELY;INTERVAL=15"
        assert _next(text, "2036-06-01T12:07:00Z", number=2) == [
            "2036-06-01T12:15:00Z",
            "2036-06-01T12:30:00Z",
        ]


class TestEnd:
    """UNTIL and COUNT."""

    def test_until_in_utc_is_inclusive(self) -> None:
        """14:00Z is 09:00 in New York in winter, and the last instance."""
        text = "DTSTART;TZID=America/New_York:20260105T090000\nRRULE:FREQ=DAILY;UNTIL=20260106T140000Z"
        assert _next(text) == ["2026-01-05T14:00:00Z", "2026-01-06T14:00:00Z"]

    def test_until_by_date_holds_the_whole_local_day(self) -> None:
        """An evening's instance in Los Angeles lies on the next day of UTC."""
        text = "DTSTART;TZID=America/Los_Angeles:20260105T210000\nRRULE:FREQ=DAILY;UNTIL=20260106"
        assert _next(text) == ["2026-01-06T05:00:00Z", "2026-01-07T05:00:00Z"]

    def test_count_counts_from_the_start_whatever_the_base(self) -> None:
        """Asked after its last instance, a rule with COUNT has none."""
        text = "DTSTART:20260105T090000Z\nRRULE:FREQ=DAILY;COUNT=3"
        assert _next(text, "2026-01-06T09:00:00Z") == ["2026-01-07T09:00:00Z"]
        assert _next(text, "2026-01-07T09:00:00Z") == []

    def test_excluded_dates_count(self) -> None:
        """COUNT is counted before EXDATE takes out (RFC 5545 3.8.5.1)."""
        text = "DTSTART:20260105T090000Z\nRRULE:FREQ=DAILY;COUNT=3\nEXDATE:20260106T090000Z"
        assert _next(text) == ["2026-01-05T09:00:00Z", "2026-01-07T09:00:00Z"]


class TestDates:
    """EXDATE and RDATE."""

    def test_left_out_and_added(self) -> None:
        """Instants by local time, whole days by date, additions in their order, nothing twice."""
        text = (
            "DTSTART;TZID=Europe/Berlin:20260105T090000 RRULE:FREQ=DAILY"
            " EXDATE;TZID=Europe/Berlin:20260106T090000,20260107T090000 EXDATE;VALUE=DATE:20260108"
            " RDATE:20260106T120000Z,20260105T090000"
        )
        assert _next(text, number=3) == [
            "2026-01-05T08:00:00Z",
            "2026-01-06T12:00:00Z",
            "2026-01-09T08:00:00Z",
        ]


class TestClockChanges:
    """2026-03-08 in New York skips 02:00 to 03:00, 2026-11-01 repeats 01:00 to 02:00."""

    def test_a_skipped_local_time_is_no_instance(self) -> None:
        """RFC 5545 3.3.10: ignored, and not counted."""
        text = "DTSTART;TZID=America/New_York:20260307T023000\nRRULE:FREQ=DAILY;COUNT=2"
        assert _next(text) == ["2026-03-07T07:30:00Z", "2026-03-09T06:30:00Z"]

    def test_a_repeated_local_time_is_its_first_pass(self) -> None:
        """RFC 5545 3.3.5, asked from inside the second pass too."""
        text = "DTSTART;TZID=America/New_York:20261031T013000\nRRULE:FREQ=DAILY"
        assert _next(text, "2026-11-01T05:00:00Z", number=2) == [
            "2026-11-01T05:30:00Z",
            "2026-11-02T06:30:00Z",
        ]
        assert _next(text, "2026-11-01T06:15:00Z", number=1) == ["2026-11-02T06:30:00Z"]

    def test_an_hourly_rule_runs_in_every_hour_that_passes(self) -> None:
        """Both passes of the repeated hour, by elapsed time."""
        text = "DTSTART;TZID=America/New_York:20261101T003000\nRRULE:FREQ=HOURLY"
        assert _next(text, "2026-11-01T04:00:00Z", number=3) == [
            "2026-11-01T04:30:00Z",
            "2026-11-01T05:30:00Z",
            "2026-11-01T06:30:00Z",
        ]

    def test_a_skipped_start_of_elapsed_time_is_taken_after_the_gap(self) -> None:
        """RFC 5545 3.3.5: a skipped 02:30 is read with the offset before the gap, 03:30 on the new clock."""
        text = "DTSTART;TZID=America/New_York:20260308T023000\nRRULE:FREQ=HOURLY"
        assert _next(text, number=2) == ["2026-03-08T07:30:00Z", "2026-03-08T08:30:00Z"]

    def test_a_minute_that_an_hour_lacks_is_left_out(self) -> None:
        """On Lord Howe the clocks go from 02:00 to 02:30, so that hour has no minute 10."""
        text = "DTSTART;TZID=Australia/Lord_Howe:20261004T001000\nRRULE:FREQ=HOURLY;BYMINUTE=10"
        assert _next(text, number=3) == [
            "2026-10-03T13:40:00Z",
            "2026-10-03T14:40:00Z",
            "2026-10-03T16:10:00Z",
        ]

    def test_hours_are_found_on_the_day_of_a_change(self) -> None:
        """A wanted hour behind the change is neither missed nor met early."""
        text = "DTSTART;TZID=America/New_York:20260105T004500\nRRULE:FREQ=MINUTELY;INTERVAL=45;BYHOUR=6"
        assert _next(text, "2026-03-08T05:00:00Z", number=2) == [
            "2026-03-08T10:15:00Z",
            "2026-03-09T10:15:00Z",
        ]

    def test_hours_meet_again_after_a_change(self) -> None:
        """Every second hour from an odd one meets an even hour only once the offset has changed."""
        text = "DTSTART;TZID=America/New_York:20260105T010000\nRRULE:FREQ=HOURLY;INTERVAL=2;BYHOUR=12"
        assert _next(text, number=1) == ["2026-03-08T16:00:00Z"]


class TestReadings:
    """Where readings of RFC 5545 differ, the one taken here."""

    def test_a_plain_and_a_numbered_weekday_are_either(self) -> None:
        """Every Monday and the first Friday, not the days that are both."""
        text = "DTSTART:20260101T000000Z\nRRULE:FREQ=MONTHLY;BYDAY=MO,1FR"
        assert _next(text, number=4) == [
            "2026-01-02T00:00:00Z",
            "2026-01-05T00:00:00Z",
            "2026-01-12T00:00:00Z",
            "2026-01-19T00:00:00Z",
        ]

    def test_bysetpos_counts_in_the_whole_first_week(self) -> None:
        """From a Friday, the first of Monday and Saturday is the next week's Monday."""
        text = "DTSTART:20260130T000000Z\nRRULE:FREQ=WEEKLY;BYDAY=MO,SA;BYSETPOS=1"
        assert _next(text, number=1) == ["2026-02-02T00:00:00Z"]

    def test_last_weekday_of_the_month(self) -> None:
        """The usual use of BYSETPOS."""
        text = "DTSTART:20260101T170000Z\nRRULE:FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1"
        assert _next(text, number=2) == ["2026-01-30T17:00:00Z", "2026-02-27T17:00:00Z"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("RRULE:FREQ=SECONDLY", "SECONDLY is refused"),
        ("RRULE:FREQ=FORTNIGHTLY", "FREQ 'FORTNIGHTLY'"),
        ("RRULE:INTERVAL=2", "FREQ ''"),
        ("RRULE:FREQ=DAILY;INTERVAL=0", "INTERVAL='0'"),
        ("RRULE:FREQ=DAILY;INTERVAL=-1", "INTERVAL"),
        ("RRULE:FREQ=DAILY;COUNT=0", "COUNT"),
        ("RRULE:FREQ=DAILY;COUNT=99999999", "COUNT"),
        ("RRULE:FREQ=DAILY;COUNT=2;UNTIL=20270101", "both COUNT and UNTIL"),
        ("RRULE:FREQ=DAILY;UNTIL=20270230", "UNTIL"),
        ("RRULE:FREQ=DAILY;BYHOUR=24", "BYHOUR '24'"),
        ("RRULE:FREQ=DAILY;BYMONTH=-1", "BYMONTH '-1'"),
        ("RRULE:FREQ=DAILY;BYDAY=2MO", "numbers a weekday"),
        ("RRULE:FREQ=MONTHLY;BYDAY=0MO", "BYDAY '0MO'"),
        ("RRULE:FREQ=MONTHLY;BYDAY=XX", "BYDAY 'XX'"),
        ("RRULE:FREQ=MONTHLY;BYWEEKNO=3", "BYWEEKNO"),
        ("RRULE:FREQ=HOURLY;BYSETPOS=1", "BYSETPOS"),
        ("RRULE:FREQ=DAILY;BYSECOND=0,30", "BYSECOND"),
        ("RRULE:FREQ=DAILY;BYEASTER=1", "'BYEASTER=1'"),
        ("RRULE:FREQ=DAILY;FREQ=DAILY", "twice"),
        ("RRULE:FREQ=DAILY;WKST=XX", "WKST"),
        ("RRULE:FREQ=DAILY\nEXRULE:FREQ=DAILY", "'EXRULE' is refused"),
        ("RRULE:FREQ=DAILY\nRRULE:FREQ=WEEKLY", "exactly one RRULE"),
        ("DTSTART:20260101T000000Z", "exactly one RRULE"),
        ("DTSTART:2026-01-01\nRRULE:FREQ=DAILY", "DTSTART"),
        (
            "DTSTART:20260101T000000Z\nRDATE;VALUE=PERIOD:20260101T000000Z/PT1H\nRRULE:FREQ=DAILY",
            "VALUE=DATE",
        ),
        ("RDATE;VALUE=DATE:20260101\nRRULE:FREQ=DAILY", "without a time"),
        ("FREQ=DAILY", "write RRULE: before"),
        ("RRULE FREQ=DAILY", "write NAME:value"),
    ],
)
def test_refused(text: str, says: str) -> None:
    """The message names the part and its value, and what to write."""
    with pytest.raises(ScheduleError, match=says):
        parse_schedule(text)


def test_an_unknown_tzid_is_a_zone_error() -> None:
    """The zone of a DTSTART or EXDATE line is looked up like any other."""
    for line in ("DTSTART;TZID=Mars/Base:20260101T000000", "EXDATE;TZID=Mars/Base:20260101T000000"):
        with pytest.raises(TimezoneError, match="Mars/Base"):
            parse_schedule(f"{line}\nRRULE:FREQ=DAILY")


def test_equal_texts_are_equal_schedules() -> None:
    """A schedule is a value."""
    text = "RRULE:FREQ=DAILY"
    schedule = parse_schedule(text, "Europe/Berlin")
    assert isinstance(schedule, RRuleSchedule)
    assert schedule == parse_schedule(f" {text} ", "Europe/Berlin")
    assert schedule != parse_schedule(text, "Europe/Paris")
