"""The slow, plain answer to hold the evaluator beside: a walk over every minute, with a simulated cron daemon.

It shares nothing with the package but the zone data: its own reading of the fields, no parser, no search.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
SETTLE = timedelta(hours=8)
CLOCK_SET = 180

_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


def _number(text: str) -> int:
    if text in _MONTHS:
        return _MONTHS.index(text) + 1
    return _DAYS.index(text) if text in _DAYS else int(text)


def _in_field(value: int, text: str, low: int, high: int) -> bool:
    for item in text.split(","):
        span, _, step = item.partition("/")
        if span == "*":
            first, last = low, high
        elif "-" in span:
            first, last = (_number(end) for end in span.split("-"))
        else:
            first = _number(span)
            last = high if step else first
        if first <= value <= last and (value - first) % int(step or 1) == 0:
            return True
    return False


class Line:
    """A cron line with lists, ranges, steps and names, matched minute by minute."""

    def __init__(self, text: str) -> None:
        minute, hour, self.dom, self.month, self.dow = text.upper().split()
        self.wildcard = minute.startswith("*") or hour.startswith("*")
        self.minutes = {n for n in range(60) if _in_field(n, minute, 0, 59)}
        self.hours = {n for n in range(24) if _in_field(n, hour, 0, 23)}
        self._days: dict[date, bool] = {}

    def matches(self, local: datetime) -> bool:
        """Return whether the naive local minute is one of the line's."""
        if local.minute not in self.minutes or local.hour not in self.hours:
            return False
        day = local.date()
        if day not in self._days:
            self._days[day] = self._matches_day(day)
        return self._days[day]

    def _matches_day(self, day: date) -> bool:
        dom = _in_field(day.day, self.dom, 1, 31)
        weekday = day.isoweekday()
        dow = _in_field(weekday, self.dow, 0, 7) or _in_field(weekday % 7, self.dow, 0, 7)
        both = self.dom.startswith("*") or self.dow.startswith("*")
        return _in_field(day.month, self.month, 1, 12) and ((dom and dow) if both else (dom or dow))


def walk(text: str, tz: ZoneInfo, policy: str, after: datetime, until: datetime) -> Iterator[datetime]:
    """Yield the firings (UTC) in `(after, until]` by visiting every minute."""
    line = Line(text)
    at = after.replace(second=0, microsecond=0) - SETTLE
    daemon = _vixie(line) if policy == "vixie" else _wall(line, first_only=policy == "wall-first")
    next(daemon)
    while at <= until:
        if daemon.send(at.astimezone(tz).replace(tzinfo=None, fold=0)) and at > after:
            yield at
        at += MINUTE


def _wall(line: Line, *, first_only: bool):  # type: ignore[no-untyped-def]
    seen = set()
    fires = False
    while True:
        local = yield fires
        fires = line.matches(local) and not (first_only and local in seen)
        seen.add(local)


def _vixie(line: Line):  # type: ignore[no-untyped-def]
    """Debian's daemon: it compares the clock with where it has got to, and treats three sizes of jump apart."""
    virtual = (yield False) - MINUTE
    local = virtual + MINUTE
    while True:
        jump = int((local - virtual) / MINUTE)
        fires = line.matches(local) if line.wildcard else False
        if abs(jump) > CLOCK_SET:
            fires = line.matches(local)
            virtual = local
        elif jump > 0:
            if not line.wildcard:
                fires = any(line.matches(virtual + n * MINUTE) for n in range(1, jump + 1))
            virtual = local
        local = yield fires


def instants(text: str, tz: ZoneInfo, policy: str, after: datetime, until: datetime) -> list[datetime]:
    """Return `walk` as a list; the bounds may be in any zone."""
    return list(walk(text, tz, policy, after.astimezone(UTC), until.astimezone(UTC)))
