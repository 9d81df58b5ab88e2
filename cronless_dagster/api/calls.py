"""What a call asks: its path, its part of the id space, and perhaps an instant in place of the clock."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl
from uuid import UUID

from cronless_dagster.scheduling.errors import CronlessError, shown
from cronless_dagster.scheduling.shards import IdRange, from_prefix

if TYPE_CHECKING:
    from collections.abc import Mapping

PARAMETERS = ("prefix", "range", "now")
RANGE_PATTERN = "[0-9A-Fa-f]{1,32}-[0-9A-Fa-f]{1,32}"
PREFIX_PATTERN = "[0-9A-Fa-f]{1,32}"
_RANGE = re.compile("([0-9A-Fa-f]{1,32})-([0-9A-Fa-f]{1,32})")
_PREFIX = re.compile(PREFIX_PATTERN)
# A virtual clock far from any calendar would leave schedules without a next instant to give.
_YEARS = range(1971, 2200)


class CallError(CronlessError, ValueError):
    """A call of somebody who may call it, which can't be carried out as it is."""


@dataclass(frozen=True, slots=True)
class Call:
    """The parameters of a call.

    Attributes:
        ids: The part of the check's id space that is asked about.
        now: What time it is, aware UTC; None: the database says.
    """

    ids: IdRange
    now: datetime | None = None


def read_call(query: bytes, *, may_say_now: bool) -> Call:
    """Read the query of a call: `prefix=b`, or `range=LOW-HIGH`, and perhaps `now=2026-12-01T09:00Z`.

    Raises:
        CallError, ShardError: It is neither, or more than that.
    """
    given = _parameters(query)
    if ("prefix" in given) == ("range" in given):
        raise CallError(
            "a call names its ids once: give either prefix=b or range=00-7f, in hexadecimal digits"
        )
    if "now" in given and not may_say_now:
        raise CallError("this caller may not say what time it is: leave now out")
    ids = _by_prefix(given["prefix"]) if "prefix" in given else _by_range(given["range"])
    return Call(ids, _instant(given["now"]) if "now" in given else None)


def _parameters(query: bytes) -> Mapping[str, str]:
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=10)
    except ValueError as error:
        raise CallError(
            "the query can't be read: write it as prefix=b, percent-encoded where needed"
        ) from error
    given: dict[str, str] = {}
    for name, value in pairs:
        if name not in PARAMETERS:
            raise CallError(f"there is no parameter {shown(name)}: a call takes {', '.join(PARAMETERS)}")
        if name in given:
            raise CallError(f"the parameter {name} is given twice: give it once")
        given[name] = value
    return given


def _by_prefix(text: str) -> IdRange:
    if not _PREFIX.fullmatch(text):
        raise CallError(
            f"the prefix {shown(text)} is not 1 to 32 hexadecimal digits: give one such as b or 3f"
        )
    return from_prefix(text)


def _by_range(text: str) -> IdRange:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise CallError(
            f"the range {shown(text)} can't be read: give LOW-HIGH in 1 to 32 hexadecimal digits each, such as 00-7f"
        )
    low, high = found[1].ljust(32, "0"), found[2].ljust(32, "f")
    return IdRange(UUID(hex=low), UUID(hex=high))


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None and at.year in _YEARS:
            return at.astimezone(UTC)
    except ValueError:
        pass
    raise CallError(
        f"now={shown(text)} is no instant from {_YEARS[0]} to {_YEARS[-1]} with its offset: write it in UTC, such as"
        " 2026-12-01T09:00Z"
    )
