"""HOURLY and MINUTELY rules: steps of elapsed time from DTSTART, kept where the local clock matches.

Elapsed time, since an hourly job is to run in every hour that passes, repeated ones included. The BY
parts are read off the local clock. The search is arithmetic where it can be: it starts at the moment asked
about, leaps over days and hours that can't match, and over the whole time until the zone's next
change if the steps can't meet the wanted minutes under the offset that holds (every second hour from
an odd one never meets an even one). It gives up after HORIZON_YEARS.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from math import gcd
from typing import TYPE_CHECKING

from cronless_dagster.scheduling.intervals import next_multiple
from cronless_dagster.scheduling.rrule_calendar import matches, next_matching
from cronless_dagster.scheduling.zones import at_offset, changes, offsets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo

    from cronless_dagster.scheduling.rrule_text import Rule

HORIZON_YEARS = 40

_DAY = timedelta(days=1)
_TICK = timedelta(microseconds=1)
_HORIZON = timedelta(days=366 * HORIZON_YEARS)


def elapsed_instants(rule: Rule, tz: ZoneInfo, start: datetime, base: datetime) -> Iterator[datetime]:
    """Yield the rule's instants (UTC) at or after `start` and strictly after `base`, ascending."""
    try:
        yield from _walk(rule, tz, start, base)
    except OverflowError:
        return


def _walk(rule: Rule, tz: ZoneInfo, start: datetime, base: datetime) -> Iterator[datetime]:
    hourly = rule.freq == "HOURLY"
    step = timedelta(hours=rule.interval) if hourly else timedelta(minutes=rule.interval)
    origin = start.replace(second=rule.bysecond[0])
    latest = max(base, start - _TICK)
    if not rule.names_local_times:
        while (found := next_multiple(latest, origin, step)) is not None:
            latest = found
            yield found
        return
    met = _met_residues(rule)
    # From the last step at or before the base: BYMINUTE may put an instant of its hour behind the base.
    k = max(0, (latest - origin) // step)
    end = latest + _HORIZON
    while (at := origin + k * step) <= end:
        leap = _leap(rule, tz, at, met, end)
        if leap is not None:
            k = max(k + 1, -((origin - leap) // step))
            continue
        k += 1
        local = at.astimezone(tz)
        if not hourly and rule.byminute and local.minute not in rule.byminute:
            continue
        for found in _in_hour(rule, tz, at, local) if hourly else (at,):
            if found > latest:
                latest = found
                end = found + _HORIZON
                yield found


def _in_hour(rule: Rule, tz: ZoneInfo, at: datetime, local: datetime) -> Iterator[datetime]:
    """Yield the BYMINUTE instants of the local hour a step falls into, or the step itself."""
    if not rule.byminute:
        yield at
    for minute in rule.byminute:
        moment = at + timedelta(minutes=minute - local.minute)
        shown = moment.astimezone(tz)
        if (shown.hour, shown.minute) == (local.hour, minute):
            yield moment


def _leap(
    rule: Rule,
    tz: ZoneInfo,
    at: datetime,
    met: tuple[int, frozenset[int]] | None,
    end: datetime,
) -> datetime | None:
    """Return an instant before which no step can match, or None if this step's day and hour do."""
    local = at.astimezone(tz)
    day = local.date()
    if not matches(rule, day):
        following = next_matching(rule, day + _DAY, end.date())
        return end + _DAY if following is None else _day_start(tz, following)
    if met is not None and _reached(rule, local) % met[0] not in met[1]:
        return next(changes(tz, at, end), end + _DAY)
    if not rule.byhour or local.hour in rule.byhour:
        return None
    tomorrow = _day_start(tz, day + _DAY)
    later = [hour for hour in rule.byhour if hour > local.hour]
    if not later:
        return tomorrow
    if local.utcoffset() != tomorrow.astimezone(tz).utcoffset():
        # A change lies ahead today, so the distance to a later hour isn't known: go step by step.
        return at
    return at + timedelta(hours=later[0] - local.hour, minutes=-local.minute)


def _reached(rule: Rule, local: datetime) -> int:
    """Return what `_met_residues` counts in: the hour of the day, or the minute of the day."""
    return local.hour if rule.freq == "HOURLY" else local.hour * 60 + local.minute


def _met_residues(rule: Rule) -> tuple[int, frozenset[int]] | None:
    """Return a divisor and the residues that wanted hours (or minutes of the day) leave; None if all do.

    Under one offset the steps of a rule keep their residue by the greatest common divisor of the
    step and the day for ever.
    """
    if rule.freq == "HOURLY":
        divisor = gcd(rule.interval, 24)
        residues = {hour % divisor for hour in rule.byhour or range(24)}
    else:
        divisor = gcd(rule.interval, 1440)
        minutes = rule.byminute or range(60)
        residues = {(hour * 60 + minute) % divisor for hour in rule.byhour or range(24) for minute in minutes}
    return None if len(residues) == divisor else (divisor, frozenset(residues))


def _day_start(tz: ZoneInfo, day: date) -> datetime:
    """Return an instant (UTC) at or shortly before the first of a local day."""
    midnight = datetime.combine(day, time())
    return at_offset(midnight, max(offsets(tz, midnight)))
