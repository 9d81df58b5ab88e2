from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from cronless_dagster.scheduling.errors import ScheduleError
from cronless_dagster.scheduling.explain import explain, warnings_for
from cronless_dagster.scheduling.schedules import parse_schedule

AFTER = datetime(2026, 11, 30, 15, 47, 12, tzinfo=UTC)


def _warnings(text: str, zone: str = "UTC", policy: str = "vixie") -> str:
    return "\n".join(warnings_for(parse_schedule(text, zone, policy), after=AFTER))


def test_next_instants_in_utc() -> None:
    """As many as asked for, strictly after, in UTC."""
    found = explain("0 9 * * *", "Europe/Berlin", AFTER, 2)
    assert found.next == [datetime(2026, 12, 1, 8, tzinfo=UTC), datetime(2026, 12, 2, 8, tzinfo=UTC)]
    assert (found.schedule, found.timezone, found.warnings) == ("0 9 * * *", "Europe/Berlin", [])
    assert explain("0 9 * * *", "Europe/Berlin", AFTER, 0).next == []


def test_the_start_is_inclusive_and_the_anchor() -> None:
    """Nothing comes before the start, and an interval begins right there."""
    start = AFTER + timedelta(days=9)
    assert explain("@every 1h", "UTC", AFTER, 2, starts_at=start).next == [start, start + timedelta(hours=1)]
    assert explain("@every 1h", "UTC", AFTER, 1).next == [AFTER + timedelta(hours=1)]
    nine = datetime(2026, 12, 9, 9, tzinfo=UTC)
    assert explain("0 9 * * *", "UTC", AFTER, 1, starts_at=nine).next == [nine]
    passed = AFTER - timedelta(minutes=90)
    assert explain("@every 1h", "UTC", AFTER, 1, starts_at=passed).next == [AFTER + timedelta(minutes=30)]


@pytest.mark.parametrize("count", [-1, 10_001])
def test_a_count_out_of_range_is_refused(count: int) -> None:
    """A count is bounded on both sides."""
    with pytest.raises(ScheduleError, match="count"):
        explain("@hourly", "UTC", AFTER, count)


class TestWarnings:
    """What people get wrong, named."""

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("*/7 * * * *", r"minute field \*/7 does not divide 60: .* 4 instead of 7"),
            ("0-59/7 * * * *", "does not divide 60"),
            ("3/7 * * * *", "does not divide 60"),
            ("0 */5 * * *", r"hour field \*/5 does not divide 24"),
            ("0 0 1 */5 *", r"month field \*/5 does not divide 12"),
            ("0 0 * * */2", r"day of week field \*/2 does not divide 7"),
            ("*/90 * * * *", "as long as the field"),
            ("0 0 */10 * *", "starts anew each month"),
            ("0 9 1-7 * 1", "day of month 1-7 OR day of week 1"),
            ("0 9 */2 * 1", r"day of month \*/2 AND day of week 1"),
            ("* 9 * * *", "sixty times in each hour of 9"),
            ("0 0 30 2 *", "never fires"),
            (
                "@once 2020-01-01T00:00",
                "never fires: its only instant, 2020-01-01T00:00:00Z, has passed. A job added",
            ),
            ("RRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "never fires"),
            ("@window 1h", "own minute"),
            ("@handler fallback=24h", "handler says"),
            ("@every 48h", "keeps no local hour"),
            ("RRULE:FREQ=DAILY;INTERVAL=2", "Without a DTSTART"),
        ],
    )
    def test_named(self, text: str, says: str) -> None:
        """Each in one sentence, on its own."""
        found = _warnings(text)
        assert re.search(says, found), found

    @pytest.mark.parametrize(
        "text",
        [
            "*/15 * * * *",
            "0 */6 * * *",
            "9-17/2 9-17/3 * * *",
            "0 9 * * 1-5",
            "0 9 1 * *",
            "* * * * *",
            "@daily",
            "@every 90m",
            "DTSTART:20270101T090000Z\nRRULE:FREQ=DAILY",
        ],
    )
    def test_none(self, text: str) -> None:
        """What is right in UTC is left in peace."""
        assert _warnings(text) == ""

    def test_an_id_settles_a_windows_minute(self) -> None:
        """With the job's id there is nothing left to say."""
        assert warnings_for(parse_schedule("@window 1h"), after=AFTER, job_id=UUID(int=7)) == []


class TestClockChanges:
    """New York skips 2027-03-14 02:00 to 03:00 and repeats 2027-11-07 01:00 to 02:00."""

    @pytest.mark.parametrize(
        ("text", "policy", "says"),
        [
            (
                "30 2 * * *",
                "vixie",
                "2027-03-14 02:30 does not exist in America/New_York, .*; it fires at 03:00",
            ),
            ("30 2 * * *", "wall", "2027-03-14 02:30 does not exist .*; it does not fire then"),
            ("*/30 2 * * *", "vixie", "2027-03-14 02:00 does not exist .*; it does not fire then"),
            ("30 1 * * *", "vixie", "2027-11-07 01:30 comes twice .*; it fires the first time only"),
            ("30 1 * * *", "wall", "2027-11-07 01:30 comes twice .*; it fires both times"),
            ("*/30 1 * * *", "vixie", "2027-11-07 01:00 comes twice .*; it fires both times"),
            ("0 * * * *", "wall-first", "2027-11-07 01:00 comes twice .*; it fires the first time only"),
            (
                "RRULE:FREQ=DAILY;BYHOUR=2",
                "vixie",
                "2027-03-14 02:00 does not exist .*; it does not fire then",
            ),
            ("@once 2027-03-14T02:30", "vixie", "2027-03-14 02:30 does not exist .*; it fires at 03:00"),
            (
                "@once 2027-11-07T01:30",
                "vixie",
                "2027-11-07 01:30 comes twice .*; it fires the first time only",
            ),
            ("@every 24h", "vixie", "from 2027-03-14 on it comes at another local hour in America/New_York"),
        ],
    )
    def test_named_with_its_date(self, text: str, policy: str, says: str) -> None:
        """The first firing in question, by date and local time, and what the policy makes of it."""
        assert re.search(says, _warnings(text, "America/New_York", policy))

    @pytest.mark.parametrize(
        "text", ["0 * * * *", "*/15 * * * *", "0 9 * * *", "0 2 * * MON", "@once 2028-01-01T02:30"]
    )
    def test_none_where_nothing_odd_happens(self, text: str) -> None:
        """A line of every hour, another hour, and another weekday have no warning."""
        assert _warnings(text, "America/New_York") == ""

    def test_a_foreign_dtstart_zone_is_named(self) -> None:
        """The zone of DTSTART counts, not the row's, and that is said."""
        text = "DTSTART;TZID=Europe/Paris:20270101T090000\nRRULE:FREQ=DAILY"
        assert "names the zone Europe/Paris" in _warnings(text, "America/New_York")


def test_loads_nothing_heavy() -> None:
    """The command line starts fast: no Dagster, SQLAlchemy, pandas, pika or dateutil comes with it."""
    code = (
        "import sys, cronless_dagster.scheduling.explain as e; from datetime import datetime, UTC;"
        "e.explain('RRULE:FREQ=DAILY', 'Europe/Berlin', datetime(2026, 1, 1, tzinfo=UTC));"
        "print(sorted({m.partition('.')[0] for m in sys.modules}"
        " & {'dagster', 'sqlalchemy', 'pandas', 'numpy', 'pika', 'psycopg', 'dateutil', 'click'}))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
