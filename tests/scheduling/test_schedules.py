from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from time import thread_time
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronless_dagster.scheduling.errors import ScheduleError, TimezoneError
from cronless_dagster.scheduling.schedules import MAX_TEXT, parse_schedule
from tests.scheduling.strategies import examples

NOW = datetime(2026, 11, 30, 15, 47, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("0 9 * * 1-5", "cron"),
        ("@DAILY", "cron"),
        ("@every 15m", "every"),
        ("@once 2026-12-01T09:00", "once"),
        ("RRULE:FREQ=DAILY", "rrule"),
        ("rrule:freq=daily", "rrule"),
        ("DTSTART:20260101T000000Z\r\nRRULE:FREQ=DAILY\r\n", "rrule"),
        ("@window 1h", "window"),
        ("@handler fallback=24h", "handler"),
    ],
)
def test_every_kind_is_read(text: str, kind: str) -> None:
    """The first word says which kind a schedule is; the text stays as written, but for blanks around it."""
    schedule = parse_schedule(f" {text}\n", "Europe/Berlin", "wall")
    assert (schedule.kind, schedule.text) == (kind, text.strip())
    assert (schedule.timezone, schedule.dst_policy) == ("Europe/Berlin", "wall")
    assert hash(schedule) == hash(parse_schedule(text, "Europe/Berlin", "wall"))


def test_parsing_is_cached() -> None:
    """The same arguments give the same object, so a tick parses each schedule once."""
    assert parse_schedule("1 2 3 4 *") is parse_schedule("1 2 3 4 *", "UTC", "vixie")


def test_an_unknown_zone_or_policy_is_refused_by_every_kind() -> None:
    """Kinds that need no zone refuse a wrong one all the same: the row would carry it on."""
    for text in ("0 9 * * *", "@every 1h", "@window 1h", "@handler fallback=1h", "@once 2026-01-01T00:00Z",
                 "RRULE:FREQ=DAILY"):  # fmt: skip
        with pytest.raises(TimezoneError, match="Nowhere"):
            parse_schedule(text, "Europe/Nowhere")
        with pytest.raises(ScheduleError, match="use one of vixie, wall, wall-first"):
            parse_schedule(text, "UTC", "posix")


HOSTILE = {
    "empty": "",
    "blank": " \t\n ",
    "ten kilobytes": "1," * 5_000 + "1 * * * *",
    "as long as allowed": ("1," * 2_100)[: MAX_TEXT - 10] + "1 * * * *",
    "thousands of digits": "9" * 4_000 + " * * * *",
    "a step of thousands of digits": "*/" + "9" * 4_000 + " * * * *",
    "many slashes": "1" + "/1" * 2_000 + " * * * *",
    "many dashes": "1" + "-1" * 2_000 + " * * * *",
    "seconds": "0 0 9 * * *",
    "reboot": "@reboot",
    "unicode digits": "٣ * * * *",
    "full-width digits": "\uff11 * * * *",
    "no-break space": "0\u00a09 * * *",
    "a NUL byte": "0 9 * * *\0",
    "a NUL byte inside": "0 \0 * * *",
    "a lone surrogate": "\ud800 * * * *",
    "an escape": "\x1b[31m * * * *",
    "a negative interval": "@every -15m",
    "an interval of ages": "@every 999999999w",
    "an interval that overflows": "@every 999999999w999999999d",
    "a year past 9999": "@once 12026-01-01T00:00",
    "the last year": "DTSTART:99991231T235959\nRRULE:FREQ=DAILY",
    "the first year": "DTSTART:00010101T000000\nRRULE:FREQ=HOURLY",
    "the year 0": "DTSTART:00000101T000000\nRRULE:FREQ=DAILY",
    "30 February": "0 0 30 2 *",
    "31 in short months": "* * 31 2,4,6,9,11 *",
    "a rule without interval": "RRULE:FREQ=DAILY;INTERVAL=0",
    "a rule on 30 February": "RRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
    "a daily rule on 30 February": "RRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30",
    "a counted rule on 31 February": "DTSTART:20191207T105102Z\nRRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=31;COUNT=10",
    "a daily rule on leap days": "RRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=29",
    "a weekly rule on leap days": "RRULE:FREQ=WEEKLY;INTERVAL=3;BYMONTH=2;BYMONTHDAY=29",
    "an hourly rule on 30 February": "RRULE:FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30",
    "an hourly rule that never meets": "DTSTART:20240101T230000Z\nRRULE:FREQ=HOURLY;INTERVAL=2;BYHOUR=0,6,12,18",
    "minutes that never meet": "DTSTART:20240101T000000Z\nRRULE:FREQ=MINUTELY;INTERVAL=2;BYMINUTE=1",
    "leap years that never meet": "DTSTART:20250101T000000Z\nRRULE:FREQ=YEARLY;INTERVAL=4;BYMONTH=2;BYMONTHDAY=29",
    "a month that never comes": "DTSTART:20250101T000000Z\nRRULE:FREQ=MONTHLY;INTERVAL=12;BYMONTH=2",
    "days that never meet": "RRULE:FREQ=DAILY;BYYEARDAY=1;BYMONTHDAY=31",
    "hours on days that never meet": "RRULE:FREQ=HOURLY;BYYEARDAY=1;BYMONTHDAY=31",
    "a place that is never filled": "RRULE:FREQ=MONTHLY;BYDAY=MO;BYSETPOS=200",
    "every minute of each year's days, placed": (
        "RRULE:FREQ=YEARLY;BYMONTHDAY=1,2,3,4,5,6,7,8,9,10;BYHOUR=0,1,2,3,4,5,6,7,8,9,10,11"
        ";BYMINUTE=0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20;BYSETPOS=-1"
    ),
    "an excluding rule": "RRULE:FREQ=DAILY\nEXRULE:FREQ=DAILY",
    "many excluded dates": "RRULE:FREQ=DAILY\nEXDATE:" + ",".join(f"2027{n:04}" for n in range(101, 129)),
    "the largest count": "DTSTART:20200101T000000Z\nRRULE:FREQ=MINUTELY;COUNT=5000",
    "the largest interval": "RRULE:FREQ=YEARLY;INTERVAL=99999",
    "no name": ":" * 100,
    "only parts": "RRULE:" + ";" * 1_000,
}  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_input_is_refused_or_answered(text: str) -> None:
    """Nothing hangs: the quickest of three goes takes under 100 ms of processor time, each with a zone of its own."""
    seconds, message = min(_ask(text, f"Etc/GMT+{n}") for n in (1, 2, 3))
    assert seconds < 0.1
    assert len(message) < 330
    assert "\n" not in message
    assert message.isascii()


def _ask(text: str, zone: str) -> tuple[float, str]:
    message = ""
    started = thread_time()
    try:
        schedule = parse_schedule(text, zone)
        list(islice(schedule.instants_after(NOW, job_id=UUID(int=1), anchor=NOW), 2))
    except (ScheduleError, TimezoneError) as error:
        message = str(error)
    return thread_time() - started, message


def test_too_long_a_text_is_refused_before_it_is_read() -> None:
    """A line that could be read is refused for its length alone, with both figures."""
    line = "1," * MAX_TEXT + "1 * * * *"
    with pytest.raises(ScheduleError, match=f"{len(line)} characters; write at most {MAX_TEXT}"):
        parse_schedule(line)


_WORDS = st.sampled_from(
    [
        "*",
        "*/5",
        "1-5",
        "MON",
        "L",
        "5L",
        "1#2",
        "?",
        "@every",
        "@once",
        "@window",
        "@handler",
        "fallback=1h",
        "15m",
        "2026-12-01T09:00",
        "RRULE:",
        "DTSTART:",
        "FREQ=DAILY",
        ";BYDAY=MO",
        ";COUNT=2",
        ";INTERVAL=3",
        ";UNTIL=20270101",
        "EXDATE:",
        "20260101T000000Z",
        ",",
        "-",
        "/",
        ":",
        ";",
        "=",
        "\n",
    ]
)


@examples(300)
@given(
    text=st.one_of(
        st.text(max_size=60),
        st.lists(_WORDS, max_size=8).map(" ".join),
        st.lists(_WORDS, max_size=8).map("".join),
    ),
    zone=st.one_of(st.just("Europe/Berlin"), st.text(max_size=20)),
    base=st.datetimes(),
)
def test_any_text_is_read_or_refused(text: str, zone: str, base: datetime) -> None:
    """Whatever the text and zone, there is a schedule or one of two errors; whatever the base, an answer after it."""
    at = base.replace(tzinfo=UTC)
    try:
        schedule = parse_schedule(text, zone)
    except (ScheduleError, TimezoneError):
        return
    found = schedule.next_after(at, job_id=UUID(int=1), anchor=NOW)
    assert found is None or found > at
