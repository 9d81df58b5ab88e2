"""Log lines with a name."""

from __future__ import annotations

import json
import logging
import shlex
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronless_dagster.telemetry.events import JsonLines, event

LOGGER = logging.getLogger("tests.telemetry.events")


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def logged(name: str, **fields: object) -> logging.LogRecord:
    """Return the record of one event."""
    kept = _Kept()
    LOGGER.addHandler(kept)
    LOGGER.setLevel(logging.INFO)
    try:
        event(LOGGER, name, **fields)  # type: ignore[arg-type]
    finally:
        LOGGER.removeHandler(kept)
    [record] = kept.records
    return record


def test_a_line_is_its_name_and_its_fields() -> None:
    """The name comes first, values that need quotes have them, what is None is left out."""
    at = datetime(2026, 3, 2, 13, 0, tzinfo=timezone(timedelta(hours=1)))
    record = logged("check.answered", check="dispatch", ms=1.5, well=True, why='a "b" c', at=at, caller=None)
    assert record.getMessage() == (
        r'check.answered check=dispatch ms=1.5 well=true why="a \"b\" c" at=2026-03-02T12:00:00Z'
    )


@given(st.text())
@pytest.mark.parametrize("odd", [False, True])
def test_no_value_forges_a_line_or_a_field(odd: bool, value: str) -> None:
    """Whatever a value holds, the text is one printable line with one field, and JSON gives the value back."""
    value = f"x\r\n\x1b[2J\u2028check.answered{value}" if odd else value
    record = logged("check.refused", why=value)
    text = record.getMessage()
    assert len(text.splitlines()) == 1
    assert text.isprintable()
    line = JsonLines().format(record)
    assert len(line.splitlines()) == 1
    found = json.loads(line)
    assert found["event"] == "check.refused"
    assert found["why"] == (value if len(value) <= 1_000 else value[:999] + "…")


def test_text_is_read_back_like_a_shells_words() -> None:
    """What is quoted is one word for whoever splits the line as a shell does."""
    words = shlex.split(logged("tick.done", left="one more, two more", count=2).getMessage())
    assert words == ["tick.done", "left=one more, two more", "count=2"]


def test_a_field_does_not_pass_for_the_lines_own_members() -> None:
    """A field with the name of a member of each line doesn't hide that member."""
    found = json.loads(JsonLines().format(logged("tick.done", event="forged", logger_="x", at="never")))
    assert found["event"] == "tick.done"
    assert datetime.fromisoformat(found["at"]).tzinfo is not None
    assert found["level"] == "info"


def test_an_error_is_its_first_line() -> None:
    """What a database says goes on with the statement and its parameters, which are no log's affair."""
    record = logged("database.away", error=RuntimeError("it is away\n[parameters: {'payload': 'secret'}]"))
    assert record.getMessage() == 'database.away error="it is away"'


def test_a_plain_line_and_a_traceback_as_json() -> None:
    """A line without a name is a message; a traceback is one member."""
    error = RuntimeError("broken")
    info = (RuntimeError, error, None)
    record = logging.LogRecord("a", logging.ERROR, "f", 1, "of %s", ("users",), info)
    found = json.loads(JsonLines().format(record))
    assert (found["message"], found["level"]) == ("of users", "error")
    assert found["traceback"] == "RuntimeError: broken"
    assert datetime.fromisoformat(found["at"]) <= datetime.now(UTC)
