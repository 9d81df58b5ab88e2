"""`cronless client`: call the checks of this minute, or of each minute, at the API of every region."""

from __future__ import annotations

from pathlib import Path

import click

from cronless_dagster.cli.failures import InputError
from cronless_dagster.cli.invocation import json_option
from cronless_dagster.cli.output import plain
from cronless_dagster.cli.parameters import TEXT


@click.command()
@click.option(
    "--config",
    type=TEXT,
    default="checks.toml",
    show_default=True,
    metavar="FILE",
    help="Whom to call, and when.",
)
@click.option("--once", is_flag=True, help="This minute's calls; the default.")
@click.option("--loop", is_flag=True, help="Each minute's calls, until Ctrl-C.")
@click.option("--dry-run", is_flag=True, help="Print the calls instead of making them.")
@click.option("--minute", type=TEXT, metavar="ISO", help="With --dry-run: another minute than this one.")
@click.option(
    "--fail-on",
    type=click.Choice(["lost", "any"]),
    default="lost",
    show_default=True,
    help="Exit status 3 for a group that no target answered, or for any call that failed.",
)
@json_option
def client(
    config: str, once: bool, loop: bool, dry_run: bool, minute: str | None, fail_on: str, as_json: bool
) -> int:
    """Call the checks whose turn it is, each group of ids at each target; needs no database.

    The secrets come from CRONLESS_CLIENT_PATH, CRONLESS_CLIENT_TOKEN and CRONLESS_CLIENT_KEY, or from files that
    the same names with _FILE behind them name. Exit status: 0 well, 2 bad input, 3 calls failed.
    """
    from cronless_dagster.client.commanding import Command, carry_out
    from cronless_dagster.client.errors import ClientError

    if once and loop:
        raise InputError("--once and --loop exclude each other: leave one out")
    command = Command(
        config=str(Path(config)), loop=loop, dry_run=dry_run, minute=minute, as_json=as_json, fail_on=fail_on
    )
    try:
        return carry_out(command, lambda line: click.echo(plain(line)))
    except ClientError as error:
        raise InputError(str(error)) from error
    except KeyboardInterrupt:
        if not loop:
            raise
        click.echo("stopped", err=True)
        return 0
