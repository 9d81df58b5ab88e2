"""Log lines with a name: what happened stays the same word over releases, so that a filter or an alarm can hold on it.

A line is `name key=value key=value`; where a program's lines are JSON, the same fields are members of an object. The
names are listed in docs/telemetry.md.
"""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

_NAME = re.compile(r"[a-z_]+(\.[a-z_]+)+")
# What needs no quotes to be read back as one value.
_BARE = re.compile(r"[A-Za-z0-9_.:/+@%*,-]+")
_LONGEST = 1_000


def event(
    logger: logging.Logger, name: str, level: int = logging.INFO, *, exc_info: bool = False, **fields: object
) -> None:
    """Log one event.

    Args:
        logger: Of the module in which it happens.
        name: A dotted name, such as "check.answered".
        level: As in `logging`.
        exc_info: Whether the traceback of the exception that is being handled follows.
        fields: What it happened to; None is left out. Never a secret, a URL's path or a payload.
    """
    if logger.isEnabledFor(level):
        shown = {key: _value(value) for key, value in fields.items() if value is not None}
        logger.log(
            level,
            "%s",
            _text(name, shown),
            exc_info=exc_info,
            extra={"event": name, "fields": shown},
            stacklevel=2,
        )


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object: `at` (UTC), `level`, `logger`, and `event` with its fields, or `message`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; an exception's traceback is its `traceback`."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "at": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        name = getattr(record, "event", None)
        if name is None:
            line["message"] = record.getMessage()
        else:
            line["event"] = name
            # The line's own members come first and hold: no field can pass for one of them.
            line = {**line, **getattr(record, "fields", {}), **line}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        # ASCII: whatever a value holds, it is one line for every reader.
        return json.dumps(line, default=str)


def _value(value: object) -> object:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    # A database's error goes on with the statement and its parameters.
    text = str(value).partition("\n")[0] if isinstance(value, BaseException) else str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _text(name: str, fields: dict[str, object]) -> str:
    return " ".join([name, *(f"{key}={_quoted(value)}" for key, value in fields.items())])


def _quoted(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if _BARE.fullmatch(text):
        return text
    if text.isprintable():
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    # JSON's own escapes: a newline in a value can't begin a line of its own.
    return json.dumps(text)
