"""DAILY, WEEKLY, MONTHLY and YEARLY rules as local times, found by walking the rule's own periods.

The periods lie at multiples of INTERVAL from DTSTART's, so the search starts in the period of the
moment asked about, however long ago DTSTART was, and ends a hundred years later: a rule that never
meets (30 February, or every fourth year from an odd one on 29 February) is answered, not hung on.
Which days of a period match follows python-dateutil, the reading most Python users know, and RFC 5545
3.3.10 where the two differ: `BYDAY=MO,1FR` is either, not both, and BYSETPOS counts in whole periods, the
first week included.
"""

from __future__ import annotations

from bisect import bisect_right
from calendar import isleap, monthrange
from dataclasses import replace
from datetime import MAXYEAR, date, datetime, time, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cronless_dagster.scheduling.rrule_text import Rule

HORIZON_YEARS = 100


@lru_cache(maxsize=1024)
def with_defaults(rule: Rule, start: datetime, *, stated: bool) -> Rule:
    """Fill what the rule leaves open from its start (RFC 5545 3.3.10).

    `stated` tells if the start is a DTSTART line. If not, the start is the moment a row was made, and a
    rule that names hours but no minutes means the full hour, not the minute of that moment.
    """
    full_hour = bool(rule.byhour) and not stated
    filled = replace(rule, bysecond=rule.bysecond or (start.second,))
    if rule.freq in ("HOURLY", "MINUTELY"):
        return filled
    filled = replace(
        filled,
        byhour=rule.byhour or (start.hour,),
        byminute=rule.byminute or ((0,) if full_hour else (start.minute,)),
    )
    if rule.byweekno or rule.byyearday or rule.bymonthday or rule.byday:
        return filled
    if rule.freq == "WEEKLY":
        return replace(filled, byday=((start.weekday(), 0),))
    if rule.freq == "MONTHLY":
        return replace(filled, bymonthday=(start.day,))
    if rule.freq == "YEARLY":
        return replace(filled, bymonth=rule.bymonth or (start.month,), bymonthday=(start.day,))
    return filled


def local_occurrences(rule: Rule, start: datetime, at: datetime) -> Iterator[datetime]:
    """Yield the rule's local times (naive) at or after both `start` and `at`, ascending.

    `rule` has its defaults filled. Local times that the zone skips are among them. The walk ends
    once HORIZON_YEARS bring nothing.
    """
    low = max(start, at)
    times = tuple(time(h, m, rule.bysecond[0]) for h in rule.byhour for m in rule.byminute)
    while True:
        last = None
        try:
            for days in _periods(rule, start.date(), low.date()):
                for local in _in_period(rule, days, times, low):
                    last = local
                    yield local
        except OverflowError:
            return
        if last is None:
            return
        low = last + timedelta(seconds=1)


def _in_period(rule: Rule, days: list[date], times: tuple[time, ...], low: datetime) -> Iterator[datetime]:
    if rule.bysetpos:
        size = len(days) * len(times)
        places = sorted({p - 1 if p > 0 else size + p for p in rule.bysetpos})
        for place in places:
            if 0 <= place < size:
                local = datetime.combine(days[place // len(times)], times[place % len(times)])
                if local >= low:
                    yield local
        return
    for day in days:
        if day < low.date():
            continue
        first = 0 if day > low.date() else max(0, bisect_right(times, low.time()) - 1)
        for moment in times[first:]:
            local = datetime.combine(day, moment)
            if local >= low:
                yield local


def _periods(rule: Rule, start: date, low: date) -> Iterator[list[date]]:
    """Yield the matching days of each period from the one that holds `low` on."""
    step = rule.interval
    last_year = min(low.year + HORIZON_YEARS, MAXYEAR)
    if rule.freq == "YEARLY":
        for year in range(start.year + (low.year - start.year) // step * step, last_year + 1, step):
            yield [day for month in rule.bymonth or range(1, 13) for day in _month_days(rule, year, month)]
    elif rule.freq == "MONTHLY":
        origin, target = start.year * 12 + start.month - 1, low.year * 12 + low.month - 1
        for index in range(origin + (target - origin) // step * step, last_year * 12 + 12, step):
            year, month = divmod(index, 12)
            if not rule.bymonth or month + 1 in rule.bymonth:
                yield _month_days(rule, year, month + 1)
    elif rule.freq == "WEEKLY":
        monday = start - timedelta(days=(start.weekday() - rule.wkst) % 7)
        for first in _leaps(rule, monday, low, 7, last_year):
            yield [day for n in range(7) if matches(rule, day := first + timedelta(days=n))]
    else:
        for day in _leaps(rule, start, low, 1, last_year):
            yield [day]


def _leaps(rule: Rule, origin: date, low: date, size: int, last_year: int) -> Iterator[date]:
    """Yield the first days of those periods of `size` days that hold a matching day, from `low`'s on."""
    step = size * rule.interval
    end = date(last_year, 12, 31 - size)
    first = origin + timedelta(days=(low - origin).days // step * step)
    while (found := next_matching(rule, first, end)) is not None:
        ahead = (found - first).days // size
        if ahead == 0:
            yield first
        first += timedelta(days=step * max(1, -(-ahead // rule.interval)))


def next_matching(rule: Rule, day: date, end: date) -> date | None:
    """Return the first local date from `day` to `end` that passes the BY parts of days, or None."""
    while day <= end:
        numbers = _month_numbers(rule, day.year, day.month)
        number = next((n for n in numbers if n >= day.day), None)
        if number is None:
            day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
            continue
        day = day.replace(day=number)
        if matches(rule, day):
            return day
        day += timedelta(days=1)
    return None


def _month_days(rule: Rule, year: int, month: int) -> list[date]:
    return [day for n in _month_numbers(rule, year, month) if matches(rule, day := date(year, month, n))]


def _month_numbers(rule: Rule, year: int, month: int) -> Sequence[int]:
    """Return the days of a month that BYMONTH and BYMONTHDAY leave, ascending."""
    if rule.bymonth and month not in rule.bymonth:
        return ()
    length = monthrange(year, month)[1]
    if not rule.bymonthday:
        return range(1, length + 1)
    resolved = {n if n > 0 else length + 1 + n for n in rule.bymonthday}
    return sorted(n for n in resolved if 1 <= n <= length)


def matches(rule: Rule, day: date) -> bool:
    """Return whether a local date passes every BY part of the rule that speaks of days."""
    if rule.bymonth and day.month not in rule.bymonth:
        return False
    if rule.byday and not _weekday_matches(rule, day):
        return False
    if rule.bymonthday and day.day not in rule.bymonthday:
        length = monthrange(day.year, day.month)[1]
        if day.day - length - 1 not in rule.bymonthday:
            return False
    if rule.byyearday:
        number, length = day.timetuple().tm_yday, 366 if isleap(day.year) else 365
        if number not in rule.byyearday and number - length - 1 not in rule.byyearday:
            return False
    if rule.byweekno:
        number, weeks = _week_number(day, rule.wkst)
        return number in rule.byweekno or number - weeks - 1 in rule.byweekno
    return True


def _weekday_matches(rule: Rule, day: date) -> bool:
    weekday = day.weekday()
    for wanted, nth in rule.byday:
        if wanted != weekday:
            continue
        if nth == 0:
            return True
        if rule.freq == "YEARLY" and not rule.bymonth:
            number, length = day.timetuple().tm_yday, 366 if isleap(day.year) else 365
        else:
            number, length = day.day, monthrange(day.year, day.month)[1]
        if nth == ((number + 6) // 7 if nth > 0 else -((length - number) // 7 + 1)):
            return True
    return False


def _week_number(day: date, wkst: int) -> tuple[int, int]:
    """Return the day's week number, and how many weeks the year of that week has (ISO 8601, by `wkst`)."""
    middle = day + timedelta(days=3 - (day.weekday() - wkst) % 7)
    number = middle.timetuple().tm_yday
    first = (number - 1) % 7 + 1
    length = 366 if isleap(middle.year) else 365
    return (number - 1) // 7 + 1, (length - first) // 7 + 1
