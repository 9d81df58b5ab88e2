"""`cronless digests`: e-mail digests that may or may not have been mailed, and what is known of them since."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cronless_dagster.cli.failures import InputError
from cronless_dagster.cli.invocation import Invocation, database_options, pass_invocation
from cronless_dagster.cli.output import cell, counted, iso, print_json, say, show, table, utc_text
from cronless_dagster.cli.parameters import DURATION, TEXT, read_instant

if TYPE_CHECKING:
    from datetime import timedelta
    from uuid import UUID


@click.group(no_args_is_help=True)
def digests() -> None:
    """Look at e-mail digests that may or may not have been mailed, and settle them."""


@digests.command("uncertain", short_help="List digests that may or may not have been mailed.")
@click.option(
    "--older-than",
    type=DURATION,
    default="15m",
    show_default=True,
    help="Leave out younger ones, which may still be on their way.",
)
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="At most so many."
)
@database_options
@pass_invocation
def uncertain(invocation: Invocation, older_than: timedelta, limit: int, as_json: bool) -> None:
    """List digests that were being sent when their run died or the mail server fell silent, the oldest first.

    None of them is sent again by itself. The mail server's log tells by the Message-ID whether it has one; then
    `cronless digests settle` says so here.
    """
    from cronless_dagster.assets.digests import ledger
    from cronless_dagster.store.clock import current_time
    from cronless_dagster.store.database import transaction

    with transaction(invocation.engine()) as connection:
        before = current_time(connection) - older_than
        found = ledger.uncertain(connection, before=before, limit=limit)
    if as_json:
        print_json(
            {
                "uncertain": [
                    {
                        "tenant_id": one.tenant_id,
                        "user_id": one.user_id,
                        "occurrence": one.occurrence,
                        "message_id": one.message_id,
                        "items": len(one.items),
                        "started_at": one.started_at,
                        "execution": one.execution,
                        "error": one.error,
                    }
                    for one in found
                ]
            }
        )
        return
    if not found:
        say("No digest is uncertain.")
        return
    rows = table(["tenant", "user", "occurrence", "message id", "sending since", "error"])
    for one in found:
        words = (one.tenant_id, str(one.user_id), iso(one.occurrence) or "", one.message_id or "")
        rows.add_row(*map(cell, words), cell(utc_text(one.started_at)), cell(one.error or ""))
    show(rows)
    say("")
    say(f"{counted(len(found), 'digest')}; settle each by `cronless digests settle USER OCCURRENCE`.", "dim")


@digests.command("settle", short_help="Say whether an uncertain digest was mailed.")
@click.argument("user", type=click.UUID)
@click.argument("occurrence", type=TEXT)
@click.option("--was-sent/--not-sent", "was_sent", default=None, help="What the mail server's log says.")
@database_options
@pass_invocation
def settle(invocation: Invocation, user: UUID, occurrence: str, was_sent: bool | None, as_json: bool) -> None:
    """Say whether an uncertain digest was mailed. What one held that was not is in the user's next digest."""
    if was_sent is None:
        raise InputError("nothing is said of the digest: give --was-sent or --not-sent")
    from cronless_dagster.assets.digests import ledger
    from cronless_dagster.assets.digests.errors import DigestError
    from cronless_dagster.store.database import transaction

    instant = read_instant(occurrence, "UTC", "OCCURRENCE")
    with transaction(invocation.engine()) as connection:
        try:
            ledger.settle(connection, user, instant, was_sent=was_sent)
        except DigestError as error:
            raise InputError(str(error)) from error
    status = "sent" if was_sent else "refused"
    if as_json:
        print_json({"user_id": user, "occurrence": instant, "status": status})
    elif was_sent:
        say(f"The digest of {utc_text(instant)} counts as sent.")
    else:
        say(f"The digest of {utc_text(instant)} counts as not sent; the user's next one holds its items.")
