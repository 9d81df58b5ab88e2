"""`cronless db`: the schema and the size of the history."""

from __future__ import annotations

import click

from cronless_dagster.cli.failures import FAILED
from cronless_dagster.cli.invocation import Invocation, database_options, pass_invocation
from cronless_dagster.cli.output import counted, print_json, say


@click.group(no_args_is_help=True)
def db() -> None:
    """Migrate the database, look at it, prune its history."""


@db.command("upgrade", short_help="Bring the schema to this release's version.")
@click.option("--assets", is_flag=True, help="Also the tables of the ready-made assets, `cronless_assets`.")
@database_options
@pass_invocation
def upgrade(invocation: Invocation, assets: bool, as_json: bool) -> None:
    """Bring the schema `cronless` to this release's version. Does nothing where it is current."""
    from cronless_dagster.store import migrate

    before, now = migrate.upgrade(invocation.url())
    if assets:
        from cronless_dagster.assets.migrate import upgrade_assets

        upgrade_assets(invocation.url())
    if as_json:
        print_json({"before": before, "now": now})
    elif before == now:
        say(f"The schema is current (version {now}).")
    else:
        say(f"The schema is now at version {now}; before: {before or 'none'}.")


@db.command("status", short_help="Say whether the schema is this release's.")
@database_options
@pass_invocation
def db_status(invocation: Invocation, as_json: bool) -> int:
    """Say whether the schema is the one this release needs; the exit status is 1 where it isn't."""
    from cronless_dagster.store.database import schema_version, transaction
    from cronless_dagster.store.revision import HEAD, KNOWN

    engine = invocation.engine(migrated=False)
    with transaction(engine) as connection:
        version = schema_version(connection)
    if version == HEAD:
        state, words = "current", f"The schema is current (version {version})."
    elif version is None:
        state, words = "missing", "There is no schema `cronless` here: run `cronless db upgrade`."
    elif version in KNOWN:
        state, words = (
            "older",
            f"The schema has version {version}, older than {HEAD}: run `cronless db upgrade`.",
        )
    else:
        state, words = (
            "newer",
            f"The schema has version {version}, newer than {HEAD}: install the newer release.",
        )
    if as_json:
        print_json({"state": state, "version": version, "needed": HEAD})
    else:
        say(words)
    return 0 if state == "current" else FAILED


@db.command("prune", short_help="Drop the history of past days.")
@click.option(
    "--days",
    type=click.IntRange(1, 36_500),
    help="Keep what ended within so many days; by default CRONLESS_HISTORY_DAYS.",
)
@database_options
@pass_invocation
def prune(invocation: Invocation, days: int | None, as_json: bool) -> None:
    """Drop the history of past days and the claims closed before; ticks do the same once a day."""
    from cronless_dagster.store import history
    from cronless_dagster.store.clock import current_time
    from cronless_dagster.store.database import transaction

    engine = invocation.engine()
    with transaction(engine) as connection:
        now = current_time(connection)
    keep = invocation.settings().history_days if days is None else days
    dropped = history.prune(engine, now, keep)
    if as_json:
        print_json({"kept_days": keep, "dropped": dropped})
    else:
        say(f"Kept {counted(keep, 'day')}; dropped {counted(len(dropped), 'day')} of history.")
