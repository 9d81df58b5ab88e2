"""How texts of the command line become values: durations, instants, payloads, names of jobs."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import click

from cronless_dagster.cli.failures import InputError
from cronless_dagster.scheduling.errors import ScheduleError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cronless_dagster.scheduling.shards import IdRange

NOTHING: Final = "none"
"""Written for a value that is to be taken away."""
_LARGEST_PAYLOAD_FILE = 33_554_432  # twice the highest limit that can be set, for blanks between the values
_ID = re.compile(r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}\Z")


class Text(click.ParamType[str]):
    """A text that a database can hold."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse bytes that were no UTF-8, and NUL."""
        try:
            str(value).encode()
        except UnicodeEncodeError:
            self.fail(f"{shown(value)} is no valid UTF-8.", param, ctx)
        if "\0" in str(value):
            self.fail(f"{shown(value)} holds a NUL character.", param, ctx)
        return str(value)


class Duration(click.ParamType[timedelta]):
    """A duration such as 90s, 15m or 1h30m."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Read it as schedules are read."""
        from cronless_dagster.scheduling.durations import parse_duration

        if isinstance(value, timedelta):
            return value
        try:
            return parse_duration(value, what="duration")
        except ScheduleError as error:
            self.fail(str(error), param, ctx)


class Prefix(click.ParamType["IdRange"]):
    """The first hexadecimal digits of ids."""

    name = "hex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> IdRange:
        """Read it as shards are read."""
        from cronless_dagster.scheduling.shards import IdRange, ShardError, from_prefix

        if isinstance(value, IdRange):
            return value
        try:
            return from_prefix(value)
        except ShardError as error:
            self.fail(str(error), param, ctx)


class OrNothing(click.ParamType[Any]):
    """A value of another kind, or the word that takes it away."""

    def __init__(self, kind: click.ParamType[Any]) -> None:
        """Wrap the other kind."""
        self.kind = kind
        self.name = f"{kind.name}|{NOTHING}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Let the word through, and leave the rest to the other kind."""
        return value if value == NOTHING else self.kind.convert(value, param, ctx)


TEXT = Text()
DURATION = Duration()
PREFIX = Prefix()


def read_instant(written: str, timezone: str, what: str) -> datetime:
    """Return the instant (UTC) of an ISO 8601 text; without an offset it is a local time of the zone.

    Raises:
        InputError: It is no date and time.
        TimezoneError: The zone is unknown.
    """
    from cronless_dagster.scheduling.once import parse_once
    from cronless_dagster.scheduling.zones import zone

    zone(timezone)
    try:
        return parse_once("@once", written, timezone, "vixie").instant
    except ScheduleError as error:
        raise InputError(f"{what}: {error}") from error


def read_now(written: str, what: str = "--now") -> datetime:
    """Return the instant of an ISO 8601 text that says its offset. Raises InputError for any other text."""
    from cronless_dagster.scheduling.once import parse_once

    try:
        moment = parse_once("@once", written, "UTC", "vixie")
    except ScheduleError as error:
        raise InputError(f"{what}: {error}") from error
    if moment.local is not None:
        raise InputError(f"{what} {shown(written)} has no offset: write it in UTC, such as 2026-12-01T09:00Z")
    return moment.instant


def read_payload(written: str) -> Any:
    """Return the JSON of a text, of the file behind `@`, or of the standard input for `-`.

    Whether it can be a payload (an object, small enough) is for the store to say.

    Raises:
        InputError: The file can't be read.
        PayloadError: The text is no JSON.
    """
    from cronless_dagster.store.errors import PayloadError

    try:
        payload = json.loads(_payload_text(written), parse_constant=_no_number)
    except RecursionError as error:
        raise PayloadError("the payload is nested too deeply: flatten it") from error
    except ValueError as error:
        raise PayloadError(f"the payload is no JSON ({error}): write an object such as {{}}") from error
    if payload is None:
        raise PayloadError("the payload is null, not a JSON object: write {} for an empty one")
    return payload


def _payload_text(written: str) -> str:
    if written == "-":
        raw = sys.stdin.buffer.read(_LARGEST_PAYLOAD_FILE + 1)
    elif written.startswith("@"):
        try:
            with Path(written[1:]).open("rb") as file:
                raw = file.read(_LARGEST_PAYLOAD_FILE + 1)
        except (OSError, ValueError) as error:
            raise InputError(
                f"the payload's file {shown(written[1:])} can't be read ({error}): correct its path"
            ) from error
    else:
        return written
    if len(raw) > _LARGEST_PAYLOAD_FILE:
        raise InputError(
            "the payload is larger than any payload may be: store it elsewhere, give its address"
        )
    return raw.decode("utf-8-sig")


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


@dataclass(frozen=True, slots=True)
class JobName:
    """How a job is named on the command line: by `id`, or by tenant, job type and name."""

    id: UUID | None
    tenant_id: str = ""
    job_type: str = ""
    name: str = ""


class Job(click.ParamType[JobName]):
    """A job's id, or tenant/type/name."""

    name = "job"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> JobName:
        """Read it. What stands behind the second slash is the name, further slashes included."""
        if isinstance(value, JobName):
            return value
        written = TEXT.convert(value, param, ctx)
        if _ID.match(written):
            return JobName(UUID(written))
        tenant, _, rest = written.partition("/")
        job_type, _, name = rest.partition("/")
        if not tenant or not job_type:
            self.fail(f"{shown(written)} names no job: give its id, or TENANT/TYPE/NAME.", param, ctx)
        return JobName(None, tenant, job_type, name)


JOB = Job()


def column_values(options: Mapping[str, Any], timezone: str) -> dict[str, Any]:
    """Return columns and values of the job options that were given.

    Args:
        options: By the names of `job_options`; None was not given, "none" takes the value away.
        timezone: In which instants without an offset are read.

    Raises:
        InputError, PayloadError, TimezoneError: An instant or the payload can't be read.
    """
    values: dict[str, Any] = {}
    for column, value in options.items():
        if value is None:
            continue
        if value == NOTHING and column in _MAY_BE_NOTHING:
            values[column] = None
        elif column in _INSTANTS:
            values[column] = read_instant(value, timezone, f"--{column.replace('_', '-')}")
        elif isinstance(value, timedelta):
            values[column] = int(value.total_seconds())
        elif column == "payload":
            values[column] = read_payload(value)
        else:
            values[column] = value
    return values


_INSTANTS = ("starts_at", "ends_at", "next_run_at")
_MAY_BE_NOTHING = (
    *_INSTANTS,
    "max_attempts",
    "retry_delay_seconds",
    "retry_max_delay_seconds",
    "pause_after",
)
