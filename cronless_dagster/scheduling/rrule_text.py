"""RFC 5545 recurrence lines as values: an allow-list of parts, every number checked before any search.

What is refused is what can't be served or can't be told apart from a slip: SECONDLY and more than one
second a minute (due jobs are looked for once a minute), EXRULE (dropped from the RFC), COUNT together
with UNTIL (the RFC forbids it), INTERVAL=0, parts that are unknown, repeated, or out of range.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from cronless_dagster.scheduling.errors import ScheduleError, shown

Freq = Literal["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY"]
CALENDAR_FREQS: tuple[Freq, ...] = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY")
ELAPSED_FREQS: tuple[Freq, ...] = ("HOURLY", "MINUTELY")

MAX_COUNT = 5_000
MAX_INTERVAL = 99_999
WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")

_STAMP = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})(?:T([0-9]{2})([0-9]{2})([0-9]{2})(Z?))?")
_BYDAY = re.compile(r"([+-]?[0-9]{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_LINE = re.compile(r"(?P<name>[A-Za-z-]+)(?P<params>(?:;[^:;]*)*):(?P<value>.*)")

# Part: smallest and largest size of its numbers, and whether they may count from the end.
_NUMBERS: dict[str, tuple[int, int, bool]] = {
    "BYMONTH": (1, 12, False),
    "BYMONTHDAY": (1, 31, True),
    "BYYEARDAY": (1, 366, True),
    "BYWEEKNO": (1, 53, True),
    "BYHOUR": (0, 23, False),
    "BYMINUTE": (0, 59, False),
    "BYSECOND": (0, 59, False),
    "BYSETPOS": (1, 366, True),
}
_PARTS = frozenset(_NUMBERS) | {"FREQ", "INTERVAL", "COUNT", "UNTIL", "BYDAY", "WKST"}


@dataclass(frozen=True, slots=True)
class Stamp:
    """A DATE or DATE-TIME value: naive, with a note if it was UTC (`Z`) or had no time."""

    moment: datetime
    in_utc: bool
    is_date: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One content line, such as `DTSTART;TZID=Europe/Berlin:20260101T090000`."""

    name: str
    params: dict[str, str]
    value: str


@dataclass(frozen=True, slots=True)
class Rule:
    """The parts of an RRULE. Weekdays count from Monday = 0; a plain weekday has the ordinal 0."""

    freq: Freq
    interval: int = 1
    count: int | None = None
    until: Stamp | None = None
    wkst: int = 0
    bymonth: tuple[int, ...] = ()
    bymonthday: tuple[int, ...] = ()
    byyearday: tuple[int, ...] = ()
    byweekno: tuple[int, ...] = ()
    byday: tuple[tuple[int, int], ...] = ()
    byhour: tuple[int, ...] = ()
    byminute: tuple[int, ...] = ()
    bysecond: tuple[int, ...] = ()
    bysetpos: tuple[int, ...] = ()

    @property
    def names_local_times(self) -> bool:
        """True if a BY part above the second speaks of the calendar or the clock."""
        days = self.bymonth or self.bymonthday or self.byyearday or self.byweekno or self.byday
        return bool(days or self.byhour or self.byminute)


def split_lines(text: str) -> list[Line]:
    """Read content lines, separated by blanks or line breaks. Raises ScheduleError for another form."""
    lines = []
    for piece in text.split():
        match = _LINE.fullmatch(piece)
        if match is None:
            hint = "write RRULE: before FREQ=" if piece.upper().startswith("FREQ=") else "write NAME:value"
            raise ScheduleError(f"The recurrence line {shown(piece)} can't be read; {hint}.")
        params = {}
        for param in match["params"].split(";")[1:]:
            name, _, value = param.partition("=")
            params[name.upper()] = value.strip('"')
        lines.append(Line(match["name"].upper(), params, match["value"]))
    return lines


def parse_stamp(value: str, *, what: str) -> Stamp:
    """Read `20261201`, `20261201T090000` or `20261201T090000Z`. Raises ScheduleError for anything else."""
    try:
        return _read_stamp(value.upper())
    except ValueError as error:
        raise ScheduleError(
            f"The {what} {shown(value)} can't be read; write it as 20261201T090000, with Z for UTC."
        ) from error


def _read_stamp(value: str) -> Stamp:
    match = _STAMP.fullmatch(value)
    if match is None:
        raise ValueError("not a stamp")
    numbers = [int(number) if number else 0 for number in match.groups()[:6]]
    return Stamp(datetime(*numbers), bool(match[7]), match[4] is None)  # type: ignore[arg-type]


def parse_rule(text: str) -> Rule:
    """Read the value of an RRULE line. Raises ScheduleError, naming the part at fault."""
    parts: dict[str, str] = {}
    for piece in text.upper().rstrip(";").split(";"):
        name, equals, value = piece.partition("=")
        if name == "FREQ" and value == "SECONDLY":
            raise ScheduleError(
                "FREQ=SECONDLY is refused: due jobs are looked for once a minute; use MINUTELY."
            )
        if not equals or name not in _PARTS:
            raise ScheduleError(
                f"The RRULE part {shown(piece)} is unknown; use only {', '.join(sorted(_PARTS))}."
            )
        if name in parts:
            raise ScheduleError(f"The RRULE part {name} is given twice; give it once.")
        parts[name] = value
    freq = parts.get("FREQ", "")
    if freq not in CALENDAR_FREQS + ELAPSED_FREQS:
        raise ScheduleError(
            f"The RRULE has FREQ {shown(freq)}; use one of {', '.join(CALENDAR_FREQS + ELAPSED_FREQS)}."
        )
    if "COUNT" in parts and "UNTIL" in parts:
        raise ScheduleError(
            "The RRULE has both COUNT and UNTIL, which RFC 5545 forbids; give only one of them."
        )
    numbers = {name.lower(): _numbers(name, parts[name]) for name in _NUMBERS if name in parts}
    rule = Rule(
        freq=freq,
        interval=_size("INTERVAL", parts.get("INTERVAL", "1"), MAX_INTERVAL),
        count=_size("COUNT", parts["COUNT"], MAX_COUNT) if "COUNT" in parts else None,
        until=parse_stamp(parts["UNTIL"], what="UNTIL") if "UNTIL" in parts else None,
        wkst=_weekday(parts.get("WKST", "MO")),
        byday=_bydays(parts["BYDAY"]) if "BYDAY" in parts else (),
        **numbers,
    )
    _check_together(rule)
    return rule


def _check_together(rule: Rule) -> None:
    """Refuse the combinations that RFC 5545 (3.3.10) excludes and that have no plain meaning."""
    ordinals = any(nth for _, nth in rule.byday)
    if ordinals and (rule.freq not in ("YEARLY", "MONTHLY") or rule.byweekno):
        raise ScheduleError(
            "The RRULE numbers a weekday (as in 2MO), which only MONTHLY and YEARLY (no BYWEEKNO) take;"
            " write the weekday alone."
        )
    if rule.byweekno and rule.freq != "YEARLY":
        raise ScheduleError("The RRULE has BYWEEKNO, which only FREQ=YEARLY takes; leave it out.")
    if len(rule.bysecond) > 1:
        raise ScheduleError(
            "The RRULE has several BYSECOND, but a job starts once a minute at most; give one."
        )
    if rule.bysetpos and rule.freq in ELAPSED_FREQS:
        raise ScheduleError(f"The RRULE has BYSETPOS, which FREQ={rule.freq} can't take; use BYMINUTE.")


def _size(name: str, value: str, largest: int) -> int:
    if re.fullmatch(r"[0-9]{1,6}", value) and 1 <= int(value) <= largest:
        return int(value)
    raise ScheduleError(f"The RRULE has {name}={shown(value)}; write a whole number from 1 to {largest}.")


def _numbers(name: str, value: str) -> tuple[int, ...]:
    smallest, largest, signed = _NUMBERS[name]
    found = set()
    for piece in value.split(","):
        number = int(piece) if re.fullmatch(r"[+-]?[0-9]{1,4}", piece) else None
        if number is None or not smallest <= abs(number) <= largest or (number < 0 and not signed):
            span = f"{smallest} to {largest}" + (", or negative from the end" if signed else "")
            raise ScheduleError(f"The RRULE has {name} {shown(piece)}; write whole numbers, {span}.")
        found.add(number)
    return tuple(sorted(found))


def _weekday(value: str) -> int:
    if value in WEEKDAYS:
        return WEEKDAYS.index(value)
    raise ScheduleError(f"The RRULE has WKST {shown(value)}; use one of {', '.join(WEEKDAYS)}.")


def _bydays(value: str) -> tuple[tuple[int, int], ...]:
    found = set()
    for piece in value.split(","):
        match = _BYDAY.fullmatch(piece)
        number = int(match[1]) if match and match[1] else 0
        if match is None or abs(number) > 53 or (match[1] and number == 0):
            raise ScheduleError(
                f"The RRULE has BYDAY {shown(piece)}; write MO to SU, or 2MO or -1FR in a month."
            )
        found.add((WEEKDAYS.index(match[2]), number))
    return tuple(sorted(found))
