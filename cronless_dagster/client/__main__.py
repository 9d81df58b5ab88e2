"""`python -m client`: the client where nothing but this folder is installed."""

from __future__ import annotations

import argparse
import json
import sys

from .commanding import Command, carry_out
from .errors import ClientError


def main() -> int:
    """Read the options, do what they say, return the exit status: 0, 2 for what can't be used, 3 for failed calls."""
    parser = argparse.ArgumentParser(
        "client", description="Call the checks of this minute, or of each minute."
    )
    parser.add_argument("--config", default="checks.toml", metavar="FILE", help="default: %(default)s")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--once", action="store_true", help="this minute's calls; the default")
    ways.add_argument("--loop", action="store_true", help="each minute's calls, until Ctrl-C")
    parser.add_argument("--dry-run", action="store_true", help="print the calls instead of making them")
    parser.add_argument("--minute", metavar="ISO", help="with --dry-run: another minute than this one")
    parser.add_argument("--fail-on", choices=("lost", "any"), default="lost", help=_FAIL_ON)
    parser.add_argument("--json", dest="as_json", action="store_true", help="print lines of JSON")
    options = vars(parser.parse_args())
    options.pop("once")
    command = Command(**options)
    try:
        return carry_out(command, _say)
    except ClientError as error:
        if command.as_json:
            _say(json.dumps({"error": str(error)}))
        else:
            sys.stderr.write(f"Error: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        return 0 if command.loop else 130


_FAIL_ON = (
    "exit status 3 for a group that no target answered (lost, the default), or for any call that failed"
)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
