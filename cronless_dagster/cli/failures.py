"""Which errors a person caused and which the system, and the one sentence that is said about each."""

from __future__ import annotations

import sys

import click

from cronless_dagster.cli.output import plain
from cronless_dagster.scheduling.errors import CronlessError, ScheduleError, TimezoneError

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
_LONGEST = 500  # what was typed may be repeated in a message, and be a whole file


class InputError(CronlessError):
    """What was typed can't be used."""


def failure(error: Exception) -> tuple[str, int] | None:
    """Return the sentence and the exit status for an error; None for one that only a fault of ours explains."""
    if isinstance(error, click.Abort):
        return "interrupted", INTERRUPTED
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx is not None else "cronless"
        return f"{_one_line(error.format_message()).rstrip('.')} (see `{command} --help`).", BAD_INPUT
    if isinstance(error, click.ClickException):
        return _one_line(error.format_message()), error.exit_code
    if isinstance(error, CronlessError):
        return _one_line(str(error)), BAD_INPUT if _is_bad_input(error) else FAILED
    if isinstance(error, OSError):
        return f"the operating system refused ({_one_line(str(error))})", FAILED
    return _of_database(error)


def _is_bad_input(error: CronlessError) -> bool:
    # Errors are told apart only once there is one, so that a command that works imports none of this.
    from cronless_dagster.engine.errors import JobTypeError, UnknownJobType
    from cronless_dagster.scheduling.models import ModelError
    from cronless_dagster.scheduling.shards import ShardError
    from cronless_dagster.settings import SettingsError
    from cronless_dagster.store.errors import ClockError, JobError

    return isinstance(
        error,
        InputError
        | ScheduleError
        | TimezoneError
        | ModelError
        | ShardError
        | SettingsError
        | ClockError
        | JobError
        | JobTypeError
        | UnknownJobType,
    )


def _of_database(error: Exception) -> tuple[str, int] | None:
    if "sqlalchemy" not in sys.modules:
        return None
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    if isinstance(error, DBAPIError):
        words = str(error.orig).strip() or type(error.orig).__name__
        return f"the database refused ({_one_line(words.splitlines()[0])})", FAILED
    if isinstance(error, SQLAlchemyError):
        return f"the database can't be used ({_one_line(str(error).splitlines()[0])})", FAILED
    return None


def _one_line(words: str) -> str:
    line = plain(" ".join(words.split()))
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
