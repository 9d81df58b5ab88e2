"""Time zones from the pinned `tzdata` package alone, and the step from local times to instants.

The operating system's zone data differ between machines: a node with last year's copy would plan
tomorrow's run an hour off its neighbour. So nothing here looks at the system's copy or PYTHONTZPATH,
and `TZDATA_VERSION` is stored with each planned instant.
"""

from __future__ import annotations

import re
from datetime import MAXYEAR, UTC, datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, cast
from zoneinfo import ZoneInfo

import tzdata

from cronless_dagster.scheduling.errors import TimezoneError, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

TZDATA_VERSION: str = tzdata.IANA_VERSION

_NAME = re.compile(r"[A-Za-z0-9_+\-]+(?:/[A-Za-z0-9_+\-]+){0,3}", re.ASCII)
_MAX_NAME = 64
_PROBE = timedelta(days=3)
_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Return every zone name of the pinned data, links such as `US/Eastern` included."""
    names = files("tzdata").joinpath("zones").read_text(encoding="ascii").split()
    return frozenset(names) - {"Factory"}


@lru_cache(maxsize=1024)
def _load(name: str) -> ZoneInfo:
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


def zone(name: str) -> ZoneInfo:
    """Return the zone of this exact IANA name, from the pinned package.

    Raises TimezoneError for anything else, naming zones that are spelled alike.
    """
    if _is_wellformed(name) and name in zone_names():
        return _load(name)
    raise TimezoneError(f"The time zone {shown(name)} is unknown; {_suggestion(name)}.")


def _is_wellformed(name: object) -> bool:
    return isinstance(name, str) and len(name) <= _MAX_NAME and _NAME.fullmatch(name) is not None


def _suggestion(name: object) -> str:
    advice = "use an IANA name such as 'Europe/Berlin'"
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
        return advice
    from difflib import get_close_matches

    by_lower = {known.lower(): known for known in zone_names()}
    wanted = name.strip().lower().replace(" ", "_")
    near = get_close_matches(wanted, by_lower, n=3, cutoff=0.75)
    cities = [low for low in by_lower if low.rpartition("/")[2] == wanted]
    names = list(dict.fromkeys(by_lower[low] for low in [*cities, *near]))[:3]
    return f"did you mean {' or '.join(names)}?".rstrip("?") if names else advice


def utc(instant: datetime) -> datetime:
    """Return the same instant in UTC. Raises TimezoneError if it has no zone."""
    if instant.tzinfo is None:
        raise TimezoneError(f"The instant {instant.isoformat()} has no zone; pass an aware datetime, in UTC.")
    return instant.astimezone(UTC)


def offsets(tz: ZoneInfo, local: datetime) -> tuple[timedelta, timedelta]:
    """Return the two UTC offsets that apply to a naive local time (PEP 495: `fold` 0, then 1).

    Equal: the local time exists once. The first larger: it is repeated, and the offsets are those
    of its first and second pass. The first smaller: it is skipped, and the offsets are those
    before and after the gap.
    """
    before, after = tz.utcoffset(local), tz.utcoffset(local.replace(fold=1))
    return cast("timedelta", before), cast("timedelta", after)


def instants(tz: ZoneInfo, local: datetime) -> tuple[datetime, ...]:
    """Return the instants (UTC) at which clocks in the zone show a naive local time: none, one or two."""
    first, second = offsets(tz, local)
    if first == second:
        return (at_offset(local, first),)
    if first < second:
        return ()
    return at_offset(local, first), at_offset(local, second)


def at_offset(local: datetime, offset: timedelta) -> datetime:
    """Return the instant (UTC) of a naive local time under one offset."""
    return (local - offset).replace(tzinfo=UTC, fold=0)


def gap_end(tz: ZoneInfo, local: datetime) -> datetime:
    """Return the instant (UTC) at which the gap around a skipped naive local time ends."""
    before, after = offsets(tz, local)
    return _change_between(tz, at_offset(local, after), at_offset(local, before))


def first_pass_end(tz: ZoneInfo, local: datetime) -> datetime:
    """Return the instant (UTC) at which the first pass of a repeated naive local time ends."""
    first, second = offsets(tz, local)
    return _change_between(tz, at_offset(local, first), at_offset(local, second))


def changes(tz: ZoneInfo, start: datetime, end: datetime) -> Iterator[datetime]:
    """Yield the instants (UTC) in `(start, end]` at which the zone's offset changes, to the second.

    Exact since 1970: the search looks every three days, and the closest two changes of one zone in the
    data of that time are nearly seven days apart.
    """
    for year in range(start.year, end.year + 1):
        for change in _changes_in_year(tz, year):
            if start < change <= end:
                yield change


@lru_cache(maxsize=4096)
def _changes_in_year(tz: ZoneInfo, year: int) -> tuple[datetime, ...]:
    """Return the changes after the year's first second, up to the next year's (or to the year 9999's last)."""
    at = datetime(year, 1, 1, tzinfo=UTC)
    end = at.replace(year=year + 1) if year < MAXYEAR else datetime.max.replace(tzinfo=UTC) - _DAY
    found = []
    while at < end:
        ahead = min(at + _PROBE, end)
        if at.astimezone(tz).utcoffset() != ahead.astimezone(tz).utcoffset():
            found.append(_change_between(tz, at, ahead))
        at = ahead
    return tuple(found)


def _change_between(tz: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """Bisect to the first whole second in `(low, high]` that has the offset of `high`."""
    low, high = low.replace(microsecond=0), high.replace(microsecond=0)
    offset = low.astimezone(tz).utcoffset()
    while high - low > _SECOND:
        middle = low + timedelta(seconds=int((high - low).total_seconds()) // 2)
        if middle.astimezone(tz).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return high
