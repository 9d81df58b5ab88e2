"""What the demo prints beside the news: its steps, where to look, and the table at its end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path

    from cronless_dagster.demo.watch import Totals

_NUMBERS = ("claimed", "done", "failed", "late")


def say(words: str) -> None:
    """Print one step of the demo."""
    click.echo(f"* {words}")


def near(path: Path) -> str:
    """Return a path as it is shortest from here."""
    beside = os.path.relpath(path)
    return str(path) if beside.startswith("..") else beside


def show_totals(totals: list[Totals]) -> None:
    """Print the counts by job type; with the routes where not all took the same one."""
    from rich.console import Console
    from rich.table import Table

    routes = len({one.route for one in totals}) > 1
    table = Table(title="this demo", title_justify="left")
    table.add_column("job type")
    if routes:
        table.add_column("route")
    for name in _NUMBERS:
        table.add_column(name, justify="right")
    for one in totals:
        names = (one.job_type, one.route) if routes else (one.job_type,)
        table.add_row(*names, *(f"{getattr(one, name):,}" for name in _NUMBERS))
    table.add_section()
    names = ("all", "") if routes else ("all",)
    table.add_row(*names, *(f"{sum(getattr(one, name) for one in totals):,}" for name in _NUMBERS))
    Console().print(table)
