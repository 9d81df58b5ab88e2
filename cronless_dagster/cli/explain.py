"""`cronless explain`: when a schedule fires, without a database and in a moment."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from cronless_dagster.cli.invocation import json_option
from cronless_dagster.cli.output import iso, print_json
from cronless_dagster.cli.parameters import TEXT, read_instant

if TYPE_CHECKING:
    from cronless_dagster.scheduling.explain import Explanation


@click.command()
@click.argument("schedule", type=TEXT)
@click.option(
    "--timezone", type=TEXT, default="UTC", show_default=True, help="IANA name of the zone of local times."
)
@click.option("--after", type=TEXT, metavar="ISO", help="Show what comes after this instant, by default now.")
@click.option(
    "--count", type=click.IntRange(1, 10_000), default=5, show_default=True, help="How many instants."
)
@click.option(
    "--dst-policy", type=TEXT, default="vixie", show_default=True, help="vixie, wall or wall-first."
)
@click.option("--starts-at", type=TEXT, metavar="ISO", help="The first instant that may be an occurrence.")
@json_option
def explain(
    schedule: str,
    timezone: str,
    after: str | None,
    count: int,
    dst_policy: str,
    starts_at: str | None,
    as_json: bool,
) -> None:
    """Show when SCHEDULE fires next, and warn of what people get wrong.

    SCHEDULE is a cron line or macro, '@every 15m', '@once 2026-12-01T09:00', 'RRULE:…', '@window 1h' or
    '@handler fallback=24h'. Instants without an offset are local times of the zone.
    """
    from cronless_dagster.scheduling.explain import explain as explained

    base = datetime.now(UTC) if after is None else read_instant(after, timezone, "--after")
    found = explained(
        schedule,
        timezone=timezone,
        after=base,
        count=count,
        dst_policy=dst_policy,
        starts_at=None if starts_at is None else read_instant(starts_at, timezone, "--starts-at"),
    )
    if as_json:
        print_json(
            {
                "schedule": found.schedule,
                "timezone": found.timezone,
                "next": [iso(at) for at in found.next],
                "warnings": list(found.warnings),
            }
        )
    else:
        _print(found, base, is_now=after is None)


def _print(found: Explanation, base: datetime, *, is_now: bool) -> None:
    from cronless_dagster.cli.output import away, cell, distance, local_text, say, show, table, utc_text

    say(f"{found.schedule} ({found.timezone})", "bold")
    if found.next:
        made = table(
            [f"local time in {found.timezone}", "UTC", "in" if is_now else f"after {utc_text(base)}"]
        )
        for at in found.next:
            span = away(at, base).removeprefix("in ") if is_now else distance(at - base)
            made.add_row(cell(local_text(at, found.timezone)), cell(utc_text(at)), cell(span))
        show(made)
    for one in found.warnings:
        say(f"Warning: {one}", "yellow")
