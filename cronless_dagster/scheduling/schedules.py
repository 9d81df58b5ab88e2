"""From one readable text to a schedule: the way in for everything else.

| text | kind |
|---|---|
| `0 9 * * MON-FRI`, `@daily` | cron line or macro, in the row's zone |
| `@every 15m` | elapsed time from the job's start or creation |
| `@once 2026-12-01T09:00` | one instant |
| `RRULE:FREQ=WEEKLY;BYDAY=MO` (with DTSTART, EXDATE, RDATE lines) | RFC 5545 |
| `@window 1h` | once in each window, at this id's own minute |
| `@handler fallback=24h` | the handler says when |
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from cronless_dagster.scheduling.base import COUNT_BOUND, DST_POLICIES, DstPolicy, Kind, Schedule
from cronless_dagster.scheduling.cron import CronSchedule, parse_cron
from cronless_dagster.scheduling.errors import ScheduleError, shown
from cronless_dagster.scheduling.handlers import HandlerSchedule, parse_handler
from cronless_dagster.scheduling.intervals import EverySchedule, parse_every
from cronless_dagster.scheduling.once import OnceSchedule, parse_once
from cronless_dagster.scheduling.rrule import RRuleSchedule, parse_rrule
from cronless_dagster.scheduling.windows import WindowSchedule, parse_window

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "COUNT_BOUND",
    "DST_POLICIES",
    "MAX_TEXT",
    "CronSchedule",
    "DstPolicy",
    "EverySchedule",
    "HandlerSchedule",
    "Kind",
    "OnceSchedule",
    "RRuleSchedule",
    "Schedule",
    "WindowSchedule",
    "parse_schedule",
]

MAX_TEXT = 4096
"""The longest schedule, in characters: room for an RRULE with some two hundred EXDATEs."""

_KEYWORDS: dict[str, Callable[[str, str, str, DstPolicy], Schedule]] = {
    "@every": parse_every,
    "@once": parse_once,
    "@window": parse_window,
    "@handler": parse_handler,
}
_RRULE_STARTS = ("RRULE", "DTSTART", "EXDATE", "RDATE", "EXRULE", "FREQ=")


def parse_schedule(text: str, timezone: str = "UTC", dst_policy: str = "vixie") -> Schedule:
    """Read a schedule; equal arguments give the same object as long as it is cached.

    `text` has at most MAX_TEXT characters, all of them ASCII; blanks around it don't count.
    `timezone` is an IANA name, `dst_policy` one of DST_POLICIES. Raises ScheduleError or
    TimezoneError, and nothing else, with one sentence that says what to write instead.
    """
    return _parse(text, timezone, dst_policy)


@lru_cache(maxsize=8192)
def _parse(text: str, timezone: str, dst_policy: str) -> Schedule:
    policy = _policy(dst_policy)
    stripped = _clean(text)
    if stripped.upper().startswith(_RRULE_STARTS):
        return parse_rrule(stripped, timezone, policy)
    if stripped.startswith("@"):
        first, *others = stripped.split(None, 1)
        keyword, rest = first.lower(), "".join(others)
        if keyword in _KEYWORDS:
            return _KEYWORDS[keyword](stripped, rest, timezone, policy)
        if keyword == "@reboot":
            raise ScheduleError(
                "The macro '@reboot' is refused: nothing boots here; write @once or a cron line."
            )
    return parse_cron(stripped, timezone, policy)


def _policy(name: str) -> DstPolicy:
    for policy in DST_POLICIES:
        if policy == name:
            return policy
    raise ScheduleError(f"The DST policy {shown(name)} is unknown; use one of {', '.join(DST_POLICIES)}.")


def _clean(text: str) -> str:
    if not isinstance(text, str):
        raise ScheduleError(f"The schedule {shown(text)} is no text; write a cron line such as '0 9 * * *'.")
    if len(text) > MAX_TEXT:
        raise ScheduleError(f"The schedule has {len(text)} characters; write at most {MAX_TEXT}.")
    stripped = text.strip(" \t\r\n")
    if not stripped:
        raise ScheduleError("The schedule is empty; write a cron line such as '0 9 * * *'.")
    if not all(" " <= sign <= "~" or sign in "\t\r\n" for sign in stripped):
        raise ScheduleError(
            f"The schedule {shown(text)} has characters that are not plain ASCII; write only letters, digits"
            " and signs."
        )
    return stripped
