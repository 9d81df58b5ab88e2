"""Durations as they are written in schedules: `15m`, `1h30m`, `24h`."""

from __future__ import annotations

import re
from datetime import timedelta

from cronless_dagster.scheduling.errors import ScheduleError, shown

LONGEST = timedelta(days=36_525)
"""A hundred years: what is longer is a slip of the keyboard, and would run past the calendar's end."""

_UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_PATTERN = re.compile(
    r"(?:([0-9]{1,9})w)? ?(?:([0-9]{1,9})d)? ?(?:([0-9]{1,9})h)? ?(?:([0-9]{1,9})m)? ?(?:([0-9]{1,9})s)?"
)


def parse_duration(text: str, *, what: str) -> timedelta:
    """Read whole weeks, days, hours, minutes and seconds, each at most once and in this order.

    A day is 24 elapsed hours. `what` names the duration in the error message. Raises ScheduleError
    for another form, for nothing, and beyond a hundred years.
    """
    stripped = text.strip()
    match = _PATTERN.fullmatch(stripped) if stripped else None
    if match is None:
        raise ScheduleError(
            f"The {what} {shown(text)} can't be read; write whole numbers with w, d, h, m or s,"
            " the largest first, such as 15m or 1h30m."
        )
    parts = {
        name: int(number) for name, number in zip(_UNITS.values(), match.groups(), strict=True) if number
    }
    try:
        duration = timedelta(**parts)
    except OverflowError:
        duration = timedelta.max
    if duration > LONGEST:
        raise ScheduleError(f"The {what} {shown(text)} is longer than a hundred years; write a shorter one.")
    return duration


def format_duration(duration: timedelta) -> str:
    """Return a duration of whole seconds in the form `parse_duration` reads, such as `1h30m`."""
    seconds = int(duration.total_seconds())
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"
