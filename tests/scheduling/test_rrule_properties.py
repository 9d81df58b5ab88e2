"""Rules against python-dateutil, the second opinion: it shares nothing with the package's own walk.

dateutil never ends on some rules that never meet, so it is asked only for as many instances as ours gave.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile

from dateutil.rrule import rrulestr
from hypothesis import given
from hypothesis import strategies as st

from cronless_dagster.scheduling.base import WALK_BOUND
from cronless_dagster.scheduling.schedules import parse_schedule
from tests.scheduling.strategies import examples

START = datetime(2026, 1, 30, 9, 41)
WEEKDAYS = st.sampled_from(["MO", "TU", "WE", "TH", "FR", "SA", "SU"])


def _numbers(low: int, high: int, *, signed: bool = False) -> st.SearchStrategy[str]:
    sizes = st.integers(low, high)
    each = st.one_of(sizes, sizes.map(lambda n: -n)) if signed else sizes
    return st.lists(each, min_size=1, max_size=3, unique=True).map(lambda ns: ",".join(map(str, sorted(ns))))


def _days(*, numbered: bool) -> st.SearchStrategy[str]:
    plain = st.lists(WEEKDAYS, min_size=1, max_size=3, unique=True).map(",".join)
    ordinals = st.tuples(st.sampled_from([1, 2, 3, 4, 5, -1, -2]), WEEKDAYS).map(lambda d: f"{d[0]}{d[1]}")
    return st.one_of(plain, ordinals) if numbered else plain


@st.composite
def calendar_rules(draw: st.DrawFn) -> str:
    """Draw a rule from DAILY to YEARLY, with any of the parts that both readings agree on."""
    freq = draw(st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]))
    parts = {
        "BYMONTH": _numbers(1, 12),
        "BYMONTHDAY": _numbers(1, 31, signed=True),
        "BYDAY": _days(numbered=freq in ("MONTHLY", "YEARLY")),
        "BYHOUR": _numbers(0, 23),
        "BYMINUTE": _numbers(0, 59),
    }
    if freq == "YEARLY":
        parts |= {"BYYEARDAY": _numbers(1, 366, signed=True)}
    chosen = draw(st.lists(st.sampled_from(sorted(parts)), max_size=3, unique=True))
    rule = f"FREQ={freq};INTERVAL={draw(st.integers(1, 5))}"
    for name in chosen:
        rule += f";{name}={draw(parts[name])}"
    # dateutil counts BYSETPOS of the first week from DTSTART on, and of the first month from its first day on.
    if chosen and freq != "WEEKLY" and draw(st.booleans()):
        rule += f";BYSETPOS={draw(_numbers(1, 4, signed=True))}"
    if draw(st.booleans()):
        rule += f";WKST={draw(WEEKDAYS)}"
    return rule


@st.composite
def elapsed_rules(draw: st.DrawFn) -> str:
    """Draw an HOURLY or MINUTELY rule with parts that limit or, for BYMINUTE of HOURLY, expand it."""
    freq = draw(st.sampled_from(["HOURLY", "MINUTELY"]))
    parts = {
        "BYMONTH": _numbers(1, 12),
        "BYDAY": _days(numbered=False),
        "BYMONTHDAY": _numbers(1, 28, signed=True),
        "BYHOUR": _numbers(0, 23),
        "BYMINUTE": _numbers(0, 59),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(parts)), max_size=2, unique=True))
    rule = f"FREQ={freq};INTERVAL={draw(st.sampled_from([1, 2, 3, 5, 7, 15, 48, 90]))}"
    return rule + "".join(f";{name}={draw(parts[name])}" for name in chosen)


def _agree(rule: str, number: int) -> None:
    text = f"DTSTART:{START:%Y%m%dT%H%M%S}\nRRULE:{rule}"
    schedule = parse_schedule(text)
    base = START.replace(tzinfo=UTC) - timedelta(seconds=1)
    found = list(islice(schedule.instants_after(base), number))
    # dateutil raises for some rules that never meet.
    theirs = islice(rrulestr(text), len(found)) if found else ()
    assert found == [at.replace(tzinfo=UTC) for at in theirs]
    for base, following in pairwise(found):
        assert schedule.next_after(base) == following


@examples(150)
@given(rule=calendar_rules())
def test_calendar_rules_agree_with_dateutil(rule: str) -> None:
    """DAILY to YEARLY rules give dateutil's instances, walked or asked for one by one."""
    _agree(rule, 8)


@examples(100)
@given(rule=elapsed_rules())
def test_elapsed_rules_agree_with_dateutil(rule: str) -> None:
    """HOURLY and MINUTELY rules in UTC give dateutil's instances, walked or asked for one by one."""
    _agree(rule, 8)


@examples(25)
@given(weeks=st.lists(st.sampled_from([1, 2, 20, 52, 53, -1, -2]), min_size=1, max_size=2), day=WEEKDAYS)
def test_week_numbers_agree_with_dateutil(weeks: list[int], day: str) -> None:
    """BYWEEKNO with any week start gives dateutil's instances, at the turn of the year too."""
    numbers = ",".join(map(str, sorted(set(weeks))))
    _agree(f"FREQ=YEARLY;BYWEEKNO={numbers};BYDAY={day};WKST={day}", 12)


@examples(60)
@given(rule=st.one_of(calendar_rules(), elapsed_rules()), days=st.integers(0, 500))
def test_a_stretch_has_the_last_instant_and_the_count_of_a_walk(rule: str, days: int) -> None:
    """The last instant of a stretch, found by bisection, is the last of a walk."""
    schedule = parse_schedule(f"DTSTART:{START:%Y%m%dT%H%M%S}\nRRULE:{rule}", "America/New_York")
    after = datetime(2026, 3, 1, tzinfo=UTC)
    limit = after + timedelta(days=days)
    walked = list(islice(takewhile(lambda at: at <= limit, schedule.instants_after(after)), WALK_BOUND))
    if len(walked) < WALK_BOUND:
        expected = (walked[-1] if walked else None, len(walked), False)
        assert schedule.last_at_or_before(limit, after=after) == expected
