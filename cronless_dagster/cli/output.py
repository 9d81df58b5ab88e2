"""What commands print: one line of JSON for machines, tables for people."""

from __future__ import annotations

import json
import sys
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, TextIO
from uuid import UUID

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text


def plain(words: str) -> str:
    """Return a text in which nothing moves the cursor, colours the terminal or can't be encoded."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in words)


def iso(instant: datetime | None) -> str | None:
    """Return an instant as `2026-12-01T08:00:00Z`, with a fraction only where there is one."""
    return None if instant is None else instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def print_json(value: object) -> None:
    """Print one line of JSON: instants in UTC with Z, ids as texts."""
    click.echo(json.dumps(value, default=_json_of))


def _json_of(value: object) -> Any:
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, UUID | date):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def utc_text(instant: datetime | None, nothing: str = "-") -> str:
    """Return an instant for people, in UTC: `2026-12-01 08:00Z`."""
    return nothing if instant is None else f"{_minutes(instant.astimezone(UTC))}Z"


def local_text(instant: datetime, timezone: str) -> str:
    """Return an instant for people, as clocks in the zone show it: `Tue 2026-12-01 09:00 +01:00`.

    A zone that isn't known (a row that the planner found unusable) gives UTC.
    """
    from cronless_dagster.scheduling.errors import TimezoneError
    from cronless_dagster.scheduling.zones import zone

    try:
        local = instant.astimezone(zone(timezone))
    except TimezoneError:
        local = instant.astimezone(UTC)
    # From 3.12 on strftime knows %:z.
    offset = local.isoformat().removeprefix(local.replace(tzinfo=None).isoformat())
    return f"{local:%a} {_minutes(local)} {offset}"


def _minutes(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}" if at.second == 0 else f"{at:%Y-%m-%d %H:%M:%S}"


def counted(number: int, thing: str) -> str:
    """Return a number with what it counts: `1 job`, `1,200 jobs`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def distance(span: timedelta) -> str:
    """Return how long a span is, in its two largest units: `3 h 20 min`; below a second `0 s`."""
    seconds = int(abs(span).total_seconds())
    if seconds >= 730 * 86_400:
        return f"{seconds / 86_400 / 365.25:.1f} years"
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number} {unit}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 s"


def away(instant: datetime, now: datetime) -> str:
    """Return how far an instant is: `in 3 h 20 min` or `5 min ago`."""
    return f"in {distance(instant - now)}" if instant >= now else f"{distance(now - instant)} ago"


def table(columns: Iterable[str | tuple[str, str]]) -> Table:
    """Return an empty table; a column given as (name, "right") is a number."""
    from rich.table import Table

    made = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for column in columns:
        name, justify = (column, "left") if isinstance(column, str) else column
        made.add_column(name, justify="right" if justify == "right" else "left", overflow="fold")
    return made


def facts(pairs: Mapping[str, str | Text | None]) -> Table:
    """Return a table of names and values, those without a value left out."""
    from rich.table import Table

    made = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs.items():
        if value is not None:
            made.add_row(name, cell(value) if isinstance(value, str) else value)
    return made


def cell(words: str, style: str = "") -> Text:
    """Return a value as it is: no markup is read in it, and no control character gets through."""
    from rich.text import Text

    return Text(plain(words), style=style)


def show(*parts: RenderableType) -> None:
    """Print tables for people, in colour only where a terminal shows it."""
    _print(parts, sys.stdout, wrapped=True)


def say(words: str, style: str = "") -> None:
    """Print a sentence for people on a line of its own, however long."""
    _print((cell(words, style),), sys.stdout, wrapped=False)


def warn(words: str) -> None:
    """Print a warning to stderr, in yellow where a terminal shows it."""
    _print((cell(f"Warning: {words}", "yellow"),), sys.stderr, wrapped=False)


def terminal_width() -> int:
    """Return how many columns there are to print in."""
    from rich.console import Console

    return Console(file=sys.stdout).width


def _print(parts: Iterable[RenderableType], stream: TextIO, *, wrapped: bool) -> None:
    from rich.console import Console

    console = Console(file=stream, highlight=False, emoji=False, markup=False)
    with console.capture() as captured:
        for part in parts:
            console.print(part, soft_wrap=not wrapped)
    # Through click, which knows what to do when the reader has left.
    click.echo("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()), file=stream, nl=False)
