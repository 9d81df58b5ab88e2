"""What a job's columns may hold, checked before anything is written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeGuard

from cronless_dagster.scheduling.models import MISFIRE_POLICIES
from cronless_dagster.scheduling.schedules import parse_schedule
from cronless_dagster.store.errors import JobError, PayloadError
from cronless_dagster.store.tables import scheduled_job

MAX_PAYLOAD_BYTES = 65_536
CHANGEABLE = frozenset(
    {
        "name",
        "payload",
        "schedule",
        "timezone",
        "dst_policy",
        "misfire_policy",
        "misfire_grace_seconds",
        "starts_at",
        "ends_at",
        "jitter_seconds",
        "max_attempts",
        "retry_delay_seconds",
        "retry_max_delay_seconds",
        "pause_after",
        "next_run_at",
        "tenant_id",
        "job_type",
    }
)
_NON_NEGATIVE = ("misfire_grace_seconds", "jitter_seconds", "retry_delay_seconds", "retry_max_delay_seconds")
_AT_LEAST_ONE = ("max_attempts", "pause_after")
_LONGEST = {"tenant_id": 200, "job_type": 100, "name": 500}
_LARGEST_INTEGER = 2**31 - 1
# An odd number of backslashes: a NUL, and not the text of its escape.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def plain_payload(payload: object) -> object:
    """Return a payload as the dict to store, or as it is where it can't be one."""
    # A Mapping of another kind is fine; what is none is refused by its check, with its type.
    if payload is None:
        return {}
    return dict(payload) if isinstance(payload, Mapping) else payload


def checked(values: dict[str, Any], max_payload_bytes: int) -> dict[str, Any]:
    """Return the columns' values as they are, if all of them can be written.

    Raises:
        ScheduleError, TimezoneError: The schedule or the zone can't be used.
        PayloadError: The payload is no JSON object or too large.
        JobError: An unknown column, or a value out of its range.
    """
    unknown = set(values) - CHANGEABLE
    if unknown:
        raise JobError(
            f"{', '.join(sorted(unknown))} can't be set on a job: use one of {', '.join(sorted(CHANGEABLE))}"
        )
    for key, value in values.items():
        if value is None and not scheduled_job.c[key].nullable:
            raise JobError(f"{key} is None: give a value, or leave it out")
    if "schedule" in values:
        parse_schedule(values["schedule"], values.get("timezone", "UTC"), values.get("dst_policy", "vixie"))
    if "payload" in values:
        check_payload(values["payload"], max_payload_bytes)
    _check_ranges(values)
    _check_instants(values)
    return values


def is_storable(value: object) -> TypeGuard[str]:
    """Tell whether a value is a text that PostgreSQL can store: without NUL, and with whole characters only."""
    if not isinstance(value, str) or "\x00" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_ranges(values: Mapping[str, Any]) -> None:
    if "misfire_policy" in values and values["misfire_policy"] not in MISFIRE_POLICIES:
        raise JobError(
            f"misfire policy {values['misfire_policy']!r} is not known: use {', '.join(MISFIRE_POLICIES)}"
        )
    for key, longest in _LONGEST.items():
        value = values.get(key)
        if value is None:
            continue
        if not is_storable(value) or len(value) > longest or (key != "name" and not value):
            raise JobError(
                f"{key} {str(value)[:80]!r} can't be used: give a text of at most {longest} characters"
            )
        if len(value.encode()) > 3 * longest:
            # The three together are an index entry, and PostgreSQL limits those in bytes.
            raise JobError(
                f"{key} {value[:80]!r} takes {len(value.encode()):,} bytes: give a text of at most {3 * longest:,}"
            )
    for key in (*_NON_NEGATIVE, *_AT_LEAST_ONE):
        value = values.get(key)
        lowest = 1 if key in _AT_LEAST_ONE else 0
        if value is not None and not (isinstance(value, int) and lowest <= value <= _LARGEST_INTEGER):
            raise JobError(f"{key} {value!r} is out of range: give a whole number from {lowest}")


def _check_instants(values: Mapping[str, Any]) -> None:
    for key in ("starts_at", "ends_at", "next_run_at"):
        value = values.get(key)
        if value is not None and (not isinstance(value, datetime) or value.tzinfo is None):
            raise JobError(f"{key} {value!r} has no zone: give an aware datetime")
    starts_at, ends_at = values.get("starts_at"), values.get("ends_at")
    if starts_at is not None and ends_at is not None and ends_at < starts_at:
        raise JobError(
            f"ends_at {ends_at.isoformat()} lies before starts_at {starts_at.isoformat()}: swap them"
        )


def check_payload(payload: object, max_bytes: int = MAX_PAYLOAD_BYTES) -> None:
    """Check that a payload is a JSON object that PostgreSQL can store, within its size.

    Raises:
        PayloadError: It isn't.
    """
    if not isinstance(payload, dict):
        raise PayloadError(f"the payload is {type(payload).__name__}, not a JSON object: write it as {{…}}")
    try:
        encoded = json.dumps(payload, allow_nan=False, ensure_ascii=False)
        size = len(encoded.encode())
    except (TypeError, ValueError) as error:
        raise PayloadError(
            f"the payload is no JSON ({error}): use texts, numbers, lists and objects"
        ) from error
    except RecursionError as error:
        raise PayloadError("the payload is nested too deeply: flatten it") from error
    if size > max_bytes:
        raise PayloadError(
            f"the payload has {size:,} bytes, more than {max_bytes:,}: store it elsewhere and give "
            "its address"
        )
    if _NUL.search(encoded):
        raise PayloadError(
            "the payload holds a NUL character, which PostgreSQL's jsonb can't store: leave it out"
        )
