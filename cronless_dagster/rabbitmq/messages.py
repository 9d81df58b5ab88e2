"""The message of one job: a wake-up that says which job, never what is to be done with it.

The payload stays in the row, so that an edit between publishing and starting isn't lost. The format is described
in docs/messages.md and by the JSON Schema beside it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import pika

from cronless_dagster.rabbitmq.errors import BrokerError, PoisonMessage
from cronless_dagster.scheduling.errors import shown

VERSION = 1
TYPE = "cronless.job.v1"
APP_ID = "cronless"
LARGEST = 16_384
"""Bytes of a body beyond which a message is neither written nor parsed; most have about 250."""

_PERSISTENT = 2
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class JobMessage:
    """Which job is to be started, for which occurrence, under which claim.

    Attributes:
        job_id: The row.
        token: The claim that published this; the start is refused once the row belongs to another.
        job_type: The job type, which is also the routing key.
        tenant_id: The tenant.
        scheduled_for: The occurrence's instant, aware; kept to the microsecond.
        alone: Run it while nothing else runs in the process: it is suspected of killing its worker.
    """

    job_id: UUID
    token: UUID
    job_type: str
    tenant_id: str
    scheduled_for: datetime
    alone: bool = False


class Encoded(NamedTuple):
    """A message as the broker takes it."""

    body: bytes
    properties: pika.BasicProperties


def encode(message: JobMessage, *, now: datetime | None = None) -> Encoded:
    """Write a message.

    Args:
        message: What to write.
        now: The time of publishing, aware; for people who look at a queue. None: the clock's.

    Raises:
        BrokerError: No worker could read it: an empty name, one that isn't Unicode, an instant without a zone,
            or more than 16 KiB in all.
    """
    if message.scheduled_for.tzinfo is None:
        raise _unwritable(
            message, f"scheduled_for {message.scheduled_for} has no zone: give an aware datetime"
        )
    job_id, token = str(message.job_id), str(message.token)
    content: dict[str, Any] = {
        "version": VERSION,
        "id": job_id,
        "token": token,
        "type": message.job_type,
        "tenant": message.tenant_id,
        "scheduled_for": message.scheduled_for.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    }
    if message.alone:
        content["alone"] = True
    try:
        body = _COMPACT.encode(content).encode()
    except UnicodeEncodeError as error:
        raise _unwritable(
            message, f"a name is no Unicode text ({error.reason}): correct it in the row"
        ) from error
    if len(body) > LARGEST or not (message.job_type and message.tenant_id):
        raise _unwritable(
            message, f"a name is empty or the whole is above {LARGEST:,} bytes: correct the row"
        )
    properties = pika.BasicProperties(
        content_type="application/json",
        delivery_mode=_PERSISTENT,
        message_id=f"{job_id}:{token}",
        type=TYPE,
        app_id=APP_ID,
        timestamp=int((now or datetime.now(UTC)).timestamp()),
        headers={"tenant": message.tenant_id, "token": token},
    )
    return Encoded(body, properties)


def decode(body: bytes, properties: pika.BasicProperties) -> JobMessage:
    """Read a message. Fields that this version doesn't know are ignored; what it knows must be as described.

    Args:
        body: The body as it was delivered.
        properties: Of these only the type is looked at, where there is one: the body says everything.

    Raises:
        PoisonMessage: It isn't a job of this version; the message says why.
    """
    if properties.type not in (None, TYPE):
        raise PoisonMessage(
            f"The message is of the type {shown(properties.type)}: only {TYPE} can be read here."
        )
    if len(body) > LARGEST:
        raise PoisonMessage(f"The message has {len(body):,} bytes: a job has at most {LARGEST:,}.")
    try:
        content = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise PoisonMessage(
            f"The message is no JSON in UTF-8 ({_first_line(error)}): publish jobs only."
        ) from error
    if not isinstance(content, dict):
        raise PoisonMessage(f"The message is {shown(content)}: a job is a JSON object.")
    version = content.get("version")
    if type(version) is not int or version != VERSION:
        raise PoisonMessage(f"The message has the version {shown(version)}: only {VERSION} can be read here.")
    return JobMessage(
        job_id=_uuid(content, "id"),
        token=_uuid(content, "token"),
        job_type=_name(content, "type"),
        tenant_id=_name(content, "tenant"),
        scheduled_for=_instant(content, "scheduled_for"),
        alone=_flag(content, "alone"),
    )


def _unwritable(message: JobMessage, why: str) -> BrokerError:
    return BrokerError(f"The job {message.job_id} can't be written as a message, since {why}.")


def _wrong(content: dict[str, Any], field: str, wanted: str) -> PoisonMessage:
    found = shown(content[field]) if field in content else "missing"
    return PoisonMessage(f"The message's {field} is {found}: a job has {wanted} there.")


def _uuid(content: dict[str, Any], field: str) -> UUID:
    text = content.get(field)
    try:
        value = UUID(text)
    except (AttributeError, TypeError, ValueError):
        value = None
    # UUID() reads braces, prefixes and missing hyphens too, which no other reader would take for the same id.
    if value is None or str(value) != text:
        raise _wrong(content, field, "a UUID in lower case")
    return value


def _name(content: dict[str, Any], field: str) -> str:
    text = content.get(field)
    if not isinstance(text, str) or not text:
        raise _wrong(content, field, "a text that isn't empty")
    return text


def _instant(content: dict[str, Any], field: str) -> datetime:
    text = content.get(field)
    try:
        if isinstance(text, str) and _INSTANT.fullmatch(text):
            return datetime.fromisoformat(text)
    except ValueError:
        pass  # a day or an hour that doesn't exist
    raise _wrong(content, field, "an instant such as 2026-03-02T12:00:00Z")


def _flag(content: dict[str, Any], field: str) -> bool:
    value = content.get(field, False)
    if not isinstance(value, bool):
        raise _wrong(content, field, "true, or nothing")
    return value


def _first_line(error: BaseException) -> str:
    return ascii(str(error).partition("\n")[0])[1:-1][:200]
