"""The five fields of a cron line, read by cronsim's parser, and the search for local times that match.

Debian's reading: names and ranges in every field, 0 and 7 both Sunday, and cronsim's `L`, `LW`, `5L`
(the last Friday) and `1#2` (the second Monday). If both day fields are restricted, a day matches
when either does, unless one of them starts with `*`: then both must (Debian's `crontab(5)`).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from calendar import isleap
from datetime import MAXYEAR, date, datetime

from cronsim.cronsim import CronSim, CronSimError, Field

from cronless_dagster.scheduling.errors import ScheduleError, shown

FIELD_NAMES = ("minute", "hour", "day of month", "month", "day of week")

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

Items = frozenset[int | tuple[int, int]]

# cronsim reads 5-5/2 as 5/2, from 5 to the field's end; a range of one value is that value, whatever the step.
_ONE_VALUE = re.compile(r"\b(\w{1,3})-\1/0*[1-9][0-9]*\b", re.ASCII)

_PARSERS = (Field.MINUTE, Field.HOUR, Field.DAY, Field.MONTH, Field.DOW)
_MONTH_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

# Any pair of leap year and weekday of 1 January comes within 40 years, century years included.
_SEARCH_MONTHS = 12 * 41


class CronFields:
    """The local times a cron line names, without a zone: parsed once, then only read."""

    __slots__ = ("_days_by_shape", "_dom", "_dow", "day_and", "hours", "minutes", "months", "never", "raw")

    def __init__(self, line: str) -> None:
        """Parse five fields. Raises ScheduleError with the field at fault and what to write instead."""
        self.raw = tuple(line.upper().split())
        _check_shape(line, self.raw)
        minutes, hours, self._dom, months, self._dow = (
            _parse(field, name, text)
            for field, name, text in zip(_PARSERS, FIELD_NAMES, self.raw, strict=True)
        )
        self.minutes, self.hours, self.months = _numbers(minutes), _numbers(hours), _numbers(months)
        self.day_and = self.raw[2].startswith("*") or self.raw[4].startswith("*")
        self._days_by_shape: dict[tuple[int, int], tuple[int, ...]] = {}
        # 2000 to 2027 holds each of the 14 forms a year can have.
        self.never = not any(self.days(year, month) for year in range(2000, 2028) for month in self.months)

    @property
    def follows_real_time(self) -> bool:
        """True if the minute or hour field starts with `*`: Debian's cron calls it a wildcard job."""
        return self.raw[0].startswith("*") or self.raw[1].startswith("*")

    def days(self, year: int, month: int) -> tuple[int, ...]:
        """Return the matching days of a month, ascending, by both day fields (not by the month field)."""
        length = 29 if month == 2 and isleap(year) else _MONTH_LENGTHS[month]
        shape = (date(year, month, 1).weekday(), length)
        days = self._days_by_shape.get(shape)
        if days is None:
            days = self._days_by_shape[shape] = self._match_days(*shape)
        return days

    def next_local(self, at: datetime) -> datetime | None:
        """Return the first matching local minute at or after `at` (naive, a whole minute), or None."""
        if self.never:
            return None
        year, month = at.year, at.month
        if month in self.months:
            found = self._next_in_month(at)
            if found is not None:
                return found
        for _ in range(_SEARCH_MONTHS):
            month += 1
            if month == 13:
                year, month = year + 1, 1
                if year > MAXYEAR:
                    return None
            if month in self.months and (days := self.days(year, month)):
                return datetime(year, month, days[0], self.hours[0], self.minutes[0])
        return None

    def _next_in_month(self, at: datetime) -> datetime | None:
        year, month, day = at.year, at.month, at.day
        days = self.days(year, month)
        i = bisect_left(days, day)
        if i == len(days):
            return None
        if days[i] != day:
            return datetime(year, month, days[i], self.hours[0], self.minutes[0])
        hours, minutes = self.hours, self.minutes
        h = bisect_left(hours, at.hour)
        if h < len(hours):
            if hours[h] != at.hour:
                return datetime(year, month, day, hours[h], minutes[0])
            m = bisect_left(minutes, at.minute)
            if m < len(minutes):
                return datetime(year, month, day, hours[h], minutes[m])
            if h + 1 < len(hours):
                return datetime(year, month, day, hours[h + 1], minutes[0])
        return datetime(year, month, days[i + 1], hours[0], minutes[0]) if i + 1 < len(days) else None

    def per_day(self) -> int:
        """Return how many local times a matching day has."""
        return len(self.minutes) * len(self.hours)

    def per_day_until(self, local: datetime) -> int:
        """Return how many local times a matching day has up to and including the time of day of `local`."""
        whole_hours = bisect_left(self.hours, local.hour)
        count = whole_hours * len(self.minutes)
        if whole_hours < len(self.hours) and self.hours[whole_hours] == local.hour:
            count += bisect_right(self.minutes, local.minute)
        return count

    def matches_day(self, day: date) -> bool:
        """Return whether a local date matches the month and day fields."""
        if day.month not in self.months:
            return False
        days = self.days(day.year, day.month)
        i = bisect_right(days, day.day)
        return i > 0 and days[i - 1] == day.day

    def _match_days(self, first_weekday: int, length: int) -> tuple[int, ...]:
        found = []
        for day in range(1, length + 1):
            dom = self._match_dom(day, first_weekday, length)
            dow = self._match_dow(day, first_weekday, length)
            if (dom and dow) if self.day_and else (dom or dow):
                found.append(day)
        return tuple(found)

    def _match_dom(self, day: int, first_weekday: int, length: int) -> bool:
        if day in self._dom or (day == length and CronSim.LAST in self._dom):
            return True
        if CronSim.LAST_WEEKDAY not in self._dom:
            return False
        last_weekday = (first_weekday + length - 1) % 7
        return day == length - max(0, last_weekday - 4)

    def _match_dow(self, day: int, first_weekday: int, length: int) -> bool:
        weekday = (first_weekday + day - 1) % 7 + 1
        nth = (day + 6) // 7
        last = day + 7 > length
        for number in (weekday, weekday % 7):
            if number in self._dow or (number, nth) in self._dow:
                return True
            if last and (number, CronSim.LAST) in self._dow:
                return True
        return False


def _check_shape(line: str, parts: tuple[str, ...]) -> None:
    count = len(parts)
    if count == 5:
        return
    hint = "write minute, hour, day of month, month and day of week"
    if count in (6, 7):
        hint = "seconds and years are not offered, so leave them out: a schedule fires at most once a minute"
    raise ScheduleError(
        f"The cron line {shown(line)} has {count} field{'' if count == 1 else 's'} instead of five; {hint}."
    )


def _numbers(items: Items) -> tuple[int, ...]:
    return tuple(sorted(item for item in items if isinstance(item, int)))


def _parse(field: Field, name: str, text: str) -> Items:
    try:
        return frozenset(field.parse(_ONE_VALUE.sub(r"\1", text)))
    except (CronSimError, ValueError, AssertionError, RecursionError) as error:
        raise ScheduleError(f"The {name} field {shown(text)} can't be read; {_HINTS[name]}.") from error


_HINTS = {
    "minute": "use 0-59, with lists, ranges and steps such as 0,30 or 10-50/20 or */15",
    "hour": "use 0-23, with lists, ranges and steps such as 9,17 or 8-18/2 or */3",
    "day of month": "use 1-31, L for the last day or LW for the last weekday, with lists, ranges and steps",
    "month": "use 1-12 or JAN-DEC, with lists, ranges and steps",
    "day of week": "use 0-7 or SUN-SAT (0 and 7 are Sunday; a range must not wrap), 1#2 or 5L",
}
