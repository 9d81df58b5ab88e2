"""What the properties draw from: zones with awkward changes, and cron lines that fire around them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from cronless_dagster.scheduling.zones import changes, zone

ZONES = (
    "Australia/Lord_Howe",  # half an hour
    "Pacific/Apia",  # no 30 December 2011
    "Africa/Cairo",  # at midnight
    "America/Havana",  # at midnight, back to it
    "Antarctica/Troll",  # two hours
    "Pacific/Chatham",  # 02:45
    "Europe/Dublin",  # negative in winter
    "Africa/Casablanca",  # around Ramadan
    "America/Nuuk",  # the gap ends on the next date
    "Asia/Gaza",  # twice in a month
    "America/Sao_Paulo",
    "America/New_York",
    "Asia/Kathmandu",
    "UTC",
)
_FIRST, _LAST = datetime(1990, 1, 1, tzinfo=UTC), datetime(2045, 1, 1, tzinfo=UTC)
_CHANGES = {name: list(changes(zone(name), _FIRST, _LAST)) or [_FIRST] for name in ZONES}


def examples(number: int) -> settings:
    """Return settings for so many examples; a machine that is busy elsewhere is no reason to fail."""
    return settings(max_examples=number, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def zones_and_bases(draw: st.DrawFn) -> tuple[str, datetime]:
    """Draw a zone and an instant within 13 hours of one of its changes, repeated hours included."""
    name = draw(st.sampled_from(ZONES))
    change = draw(st.sampled_from(_CHANGES[name]))
    return name, change + timedelta(seconds=draw(st.integers(-13 * 3600, 13 * 3600)))


def _lists(low: int, high: int) -> st.SearchStrategy[str]:
    return st.lists(st.integers(low, high), min_size=1, max_size=3, unique=True).map(
        lambda numbers: ",".join(map(str, numbers))
    )


@st.composite
def _ranges(draw: st.DrawFn, low: int, high: int) -> str:
    first = draw(st.integers(low, high))
    last = draw(st.integers(first, high))
    return f"{first}-{last}{draw(st.sampled_from(['', '/2', '/3', '/5']))}"


def _field(low: int, high: int, *usual: str) -> st.SearchStrategy[str]:
    steps = st.integers(1, high + 9).map(lambda step: f"*/{step}")
    return st.one_of(st.sampled_from(usual), _lists(low, high), _ranges(low, high), steps)


MINUTES = _field(0, 59, "0", "30", "*", "*/15", "0,30", "45")
HOURS = _field(0, 23, "*", "2", "0", "1", "3", "23", "*/2", "0-3", "1,2")
DAYS = st.one_of(st.just("*"), st.just("*"), _field(1, 31, "1", "*/2", "15-31", "28-31"))
MONTHS = st.one_of(st.just("*"), st.just("*"), _field(1, 12, "MAR-APR", "9-11", "10"))
WEEKDAYS = st.one_of(st.just("*"), st.just("*"), _field(0, 7, "SUN", "MON-FRI", "7", "6,0", "FRI-SAT"))
LINES = st.tuples(MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS).map(" ".join)
