"""What `cronless client` and `python -m client` do, whichever of them reads the options."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .calls import calls_of
from .errors import ClientError
from .report import calls_as_dict, lines_of, table_of
from .running import UNANSWERED, Client, now, read_config
from .windows import minute_of, read_minute

if TYPE_CHECKING:
    from collections.abc import Callable

    from .outcomes import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The options.

    Attributes:
        config: The path of the configuration.
        loop: Go on, at each full minute.
        dry_run: Only print the calls.
        minute: Whose calls to print, an ISO 8601 text; None: the running minute's.
        as_json: Print a line of JSON.
        fail_on: Which failures make the exit status 3: "lost", a group that no target answered, or "any" call.
    """

    config: str
    loop: bool = False
    dry_run: bool = False
    minute: str | None = None
    as_json: bool = False
    fail_on: str = "lost"


def carry_out(command: Command, say: Callable[[str], object]) -> int:
    """Do it and return the exit status: 0, or 3 where calls failed.

    Args:
        command: What to do.
        say: Prints a line.

    Raises:
        ClientError: The options, the configuration or a secret can't be used.
        KeyboardInterrupt: Ctrl-C or SIGTERM ended a loop.
    """
    if command.minute is not None and not command.dry_run:
        raise ClientError("--minute needs --dry-run: calls are made for the running minute only")
    if command.loop and command.dry_run:
        raise ClientError("--loop and --dry-run exclude each other: a dry run prints one minute's calls")
    if command.dry_run:
        return _dry_run(command, say)
    client = Client.from_file(command.config, os.environ)
    if not command.loop:
        return _said(client.call(now()), command, say)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for summary in client.summaries():
        _said(summary, command, say)
    return 0


def _dry_run(command: Command, say: Callable[[str], object]) -> int:
    config = read_config(command.config, os.environ)
    minute = minute_of(now()) if command.minute is None else read_minute(command.minute)
    calls = calls_of(config, minute)
    if command.as_json:
        say(json.dumps(calls_as_dict(config, minute, calls)))
    else:
        for line in table_of(config, minute, calls):
            say(line)
    return 0


def _said(summary: Summary, command: Command, say: Callable[[str], object]) -> int:
    if command.as_json:
        say(json.dumps(summary.as_dict()))
    else:
        for line in lines_of(summary):
            say(line)
    return UNANSWERED if (summary.failed if command.fail_on == "any" else summary.lost) else 0
