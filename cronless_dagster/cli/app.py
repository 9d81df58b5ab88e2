"""The command `cronless`: its subcommands by name, and what a person or a machine sees when one fails."""

from __future__ import annotations

import io
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import click

from cronless_dagster.cli.failures import BAD_INPUT, FAILED, failure
from cronless_dagster.cli.invocation import Invocation
from cronless_dagster.cli.output import print_json
from cronless_dagster.cli.parameters import TEXT

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "explain": (
        "cronless_dagster.cli.explain:explain",
        "Show when a schedule fires, and what is odd about it.",
    ),
    "add": ("cronless_dagster.cli.add:add", "Add a scheduled job."),
    "list": ("cronless_dagster.cli.listing:list_jobs", "List scheduled jobs."),
    "show": ("cronless_dagster.cli.show:show", "Show one job, its plan and its history."),
    "edit": ("cronless_dagster.cli.edit:edit", "Change a job; an edit never fires anything."),
    "pause": ("cronless_dagster.cli.requests:pause", "Pause a job: nothing new is claimed."),
    "resume": ("cronless_dagster.cli.requests:resume", "Resume a paused job from now on."),
    "trigger": ("cronless_dagster.cli.requests:trigger", "Run a job once, beside its plan."),
    "remove": ("cronless_dagster.cli.requests:remove", "Remove a job."),
    "replan": ("cronless_dagster.cli.replan:replan", "Plan jobs that aren't due anew, after a bulk load."),
    "status": ("cronless_dagster.cli.status:status", "Count what is due, running, stuck, late, by job type."),
    "tick": ("cronless_dagster.cli.tick:tick", "Claim what is due and run it here, without Dagster."),
    "worker": ("cronless_dagster.cli.worker:worker", "Run the jobs of the queue route, from RabbitMQ."),
    "serve": (
        "cronless_dagster.cli.serve:serve",
        "Serve the check API: what is due, asked from outside.",
    ),
    "api": ("cronless_dagster.cli.api:api", "Make the API's secrets, look at who may call what."),
    "client": (
        "cronless_dagster.cli.client:client",
        "Call the checks of this minute, or of each minute.",
    ),
    "callbacks": (
        "cronless_dagster.cli.callbacks:callbacks",
        "Serve what the hubs of webhooks and mail readers call.",
    ),
    "digests": ("cronless_dagster.cli.digests:digests", "Settle e-mail digests that may have been mailed."),
    "db": ("cronless_dagster.cli.db:db", "Migrate the database, look at it, prune its history."),
    "demo": (
        "cronless_dagster.demo.command:demo",
        "Show it all on this machine: real schedules in Dagster's UI.",
    ),
}
"""Where each subcommand lives and what it is for: `cronless --help` imports none of them."""


class LazyCommands(click.Group):
    """A group whose commands are imported when they are called, and whose errors are one sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order of a job's life."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command of this name; None where there is none."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        return cast("click.Command", getattr(import_module(module), attribute))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in COMMANDS.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: ARG002 - this group always reports errors itself
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and exit: 0 well, 2 bad input, 1 a failing system, 130 interrupted."""
        arguments = sys.argv[1:] if args is None else list(args)
        if isinstance(sys.stdout, io.TextIOWrapper):
            # A terminal that can't show a sign of somebody's name gets its number, not a traceback.
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            status = super().main(
                arguments,
                prog_name or "cronless",
                complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(BAD_INPUT)
        except BrokenPipeError:
            # Whoever read our output has left; click deals with the ones it sees in the same way.
            sys.exit(FAILED)
        except Exception as error:
            found = failure(error)
            if found is None:
                raise
            message, code = found
            if "--json" in arguments:
                print_json({"error": message})
            else:
                click.echo(f"Error: {message}", err=True)
            sys.exit(code)
        sys.exit(status if isinstance(status, int) else 0)


@click.command("cronless", cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--database-url",
    type=TEXT,
    metavar="URL",
    help="Address of the PostgreSQL that holds the jobs, instead of CRONLESS_DATABASE_URL.",
)
@click.version_option(package_name="cronless-dagster", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, database_url: str | None) -> None:
    """Scheduled jobs that live in a database: add them, look at them, run what is due.

    A job is named by its id, or by TENANT/TYPE/NAME. Each command takes --json, and then prints one line of JSON
    with instants in UTC, errors included. Exit status: 0 well, 2 bad input, 1 a failing system.
    """
    ctx.obj = Invocation(database_url)
