"""The log of commands that go on until they are told to end: a line each on stderr, for people or as JSON."""

from __future__ import annotations

import logging

import click

from cronless_dagster.cli.output import plain


class _Lines(logging.Handler):
    """Writes to what stderr is at that moment: a table that is being shown moves out of its way."""

    def emit(self, record: logging.LogRecord) -> None:
        words = self.format(record)
        click.echo(words if record.exc_info else plain(words), err=True)


def log_as_lines(*, as_json: bool, force: bool = False) -> None:
    """Log from INFO on; `force`: in place of whatever handlers there are."""
    from cronless_dagster.telemetry.events import JsonLines

    lines = _Lines()
    words = logging.Formatter("%(asctime)s %(name)s: %(message)s", "%H:%M:%S")
    lines.setFormatter(JsonLines() if as_json else words)
    logging.basicConfig(level=logging.INFO, handlers=[lines], force=force)
