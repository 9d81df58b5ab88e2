"""The options that `add` and `edit` share, and what both say about the job afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cronless_dagster.cli.parameters import DURATION, NOTHING, TEXT, OrNothing

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Row

_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--schedule", type=TEXT, help="Such as '0 9 * * MON-FRI', '@every 15m', '@once 2026-12-01T09:00'."),
    click.option("--timezone", type=TEXT, help="IANA name of the zone of local times; for a new job UTC."),
    click.option("--payload", type=TEXT, metavar="JSON", help="A JSON object; @FILE or - (standard input) hold one."),
    click.option("--dst-policy", type=TEXT, help="vixie, wall or wall-first, for hours skipped or repeated."),
    click.option("--misfire-policy", type=TEXT, help="latest, skip or all: what becomes of missed occurrences."),
    click.option("--misfire-grace", "misfire_grace_seconds", type=DURATION, help="Within it late, beyond it missed."),
    click.option("--jitter", "jitter_seconds", type=DURATION, help="Put off by the job's own part of it."),
    click.option("--starts-at", type=TEXT, metavar="ISO", help="The first instant that may be an occurrence."),
    click.option("--ends-at", type=TEXT, metavar="ISO", help="The last instant that may be an occurrence."),
    click.option("--max-attempts", type=OrNothing(click.INT), help="Tries of an occurrence, the first included."),
    click.option("--retry-delay", "retry_delay_seconds", type=OrNothing(DURATION), help="Pause after a failure."),
    click.option("--retry-max-delay", "retry_max_delay_seconds", type=OrNothing(DURATION), help="The longest pause."),
    click.option("--pause-after", type=OrNothing(click.INT), help="So many failed occurrences in a row pause the job."),
    click.option("--next-run-at", type=TEXT, metavar="ISO", help="When to run next, whatever the schedule says."),
    click.option("--name", type=TEXT, help="Unique together with tenant and job type."),
)  # fmt: skip

HELP = f"""Instants are ISO 8601; one without an offset is a local time of the job's zone. Durations are
written 90s, 15m, 1h30m. '{NOTHING}' takes away what may be left open: the instants and the retry options."""


def job_options(command: _CommandT) -> _CommandT:
    """Add the options that set a job's columns."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def expected_run(row: Row[Any], now: datetime) -> datetime | None:
    """Return when a job will run next (UTC): its plan, or what the next tick will plan; None: not foreseeable."""
    from cronless_dagster.scheduling.models import RetryPolicy
    from cronless_dagster.scheduling.planner import plan_first
    from cronless_dagster.store.rows import planned_job

    if row.next_run_at is not None or row.status != "PENDING":
        return row.next_run_at  # type: ignore[no-any-return]
    return plan_first(planned_job(row, RetryPolicy()), now).next_run_at


def report(row: Row[Any], now: datetime, done: str, *, as_json: bool) -> None:
    """Say what became of a job, when it runs next, and what is odd about its schedule."""
    from cronless_dagster.cli.output import away, iso, local_text, print_json, say, utc_text, warn
    from cronless_dagster.cli.views import job_json, reference

    run_at = expected_run(row, now)
    warnings = _warnings(row, now)
    if as_json:
        print_json({"job": job_json(row), "expected_run_at": iso(run_at), "warnings": warnings})
        return
    say(f"{done} {reference(row)} ({row.id}).")
    if row.paused_at is not None:
        say("It is paused.")
    elif run_at is not None:
        local = local_text(run_at, row.timezone)
        say(f"It runs next on {local} ({row.timezone}), {utc_text(run_at)}, {away(run_at, now)}.")
    elif row.status == "PENDING":
        say("Its schedule names no instant any more.")
    for one in warnings:
        warn(one)


def _warnings(row: Row[Any], now: datetime) -> list[str]:
    from cronless_dagster.scheduling.errors import ScheduleError, TimezoneError
    from cronless_dagster.scheduling.explain import warnings_for
    from cronless_dagster.scheduling.schedules import parse_schedule

    try:
        schedule = parse_schedule(row.schedule, row.timezone, row.dst_policy)
    except (ScheduleError, TimezoneError) as error:
        # Written by plain SQL, past every check; the job stays INVALID until its schedule is edited.
        return [str(error)]
    anchor = row.starts_at or row.created_at
    return warnings_for(schedule, after=max(now, anchor), anchor=anchor, job_id=row.id)
