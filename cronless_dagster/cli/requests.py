"""`cronless pause`, `resume`, `trigger` and `remove`: requests beside a job's state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cronless_dagster.cli.invocation import Invocation, database_options, pass_invocation
from cronless_dagster.cli.output import print_json, say
from cronless_dagster.cli.parameters import JOB, TEXT, JobName
from cronless_dagster.cli.views import find_job, job_json, reference

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection, Row


@click.command()
@click.argument("job", type=JOB)
@click.option("--reason", type=TEXT, help="Why, for whoever looks at the job later.")
@database_options
@pass_invocation
def pause(invocation: Invocation, job: JobName, reason: str | None, as_json: bool) -> None:
    """Pause a job: nothing new is claimed; what is claimed ends as it would."""
    from cronless_dagster.store import jobs

    row, _ = _carry_out(
        invocation, job, lambda connection, job_id: jobs.pause(connection, job_id, reason=reason)
    )
    if as_json:
        print_json({"job": job_json(row)})
        return
    running = " What is claimed of it ends as it would." if row.claim_id is not None else ""
    say(f"Paused {reference(row)} ({row.id}).{running}")


@click.command()
@click.argument("job", type=JOB)
@database_options
@pass_invocation
def resume(invocation: Invocation, job: JobName, as_json: bool) -> None:
    """Resume a job from now on; what fell into the pause is recorded as missed, not made up."""
    from cronless_dagster.cli.job_options import report
    from cronless_dagster.store import jobs

    row, now = _carry_out(invocation, job, jobs.resume)
    report(row, now, "Resumed", as_json=as_json)


@click.command()
@click.argument("job", type=JOB)
@database_options
@pass_invocation
def trigger(invocation: Invocation, job: JobName, as_json: bool) -> None:
    """Run a job once, at the next tick, beside its plan; also a paused one."""
    from cronless_dagster.store import jobs

    row, _ = _carry_out(invocation, job, jobs.trigger)
    if as_json:
        print_json({"job": job_json(row)})
    else:
        when = "once its present run has ended" if row.claim_id is not None else "at the next tick"
        say(f"{reference(row)} ({row.id}) runs {when}.")


@click.command()
@click.argument("job", type=JOB)
@database_options
@pass_invocation
def remove(invocation: Invocation, job: JobName, as_json: bool) -> None:
    """Remove a job; its history stays. A claimed one is gone once its holder has finished."""
    from cronless_dagster.store import jobs
    from cronless_dagster.store.database import transaction

    engine = invocation.engine()
    with transaction(engine) as connection:
        row = find_job(connection, job)
        gone = jobs.remove(connection, row.id)
    if as_json:
        print_json({"id": row.id, "removed": True, "gone": gone})
    else:
        later = "" if gone else " It is claimed: it is gone once its holder has finished."
        say(f"Removed {reference(row)} ({row.id}).{later}")


def _carry_out(
    invocation: Invocation, job: JobName, request: Callable[[Connection, UUID], None]
) -> tuple[Row[Any], datetime]:
    """Make a request in a transaction of its own; returns the job's row after it, and the database's time."""
    from cronless_dagster.store.clock import current_time
    from cronless_dagster.store.database import transaction

    engine = invocation.engine()
    with transaction(engine) as connection:
        now = current_time(connection)
        row = find_job(connection, job)
        request(connection, row.id)
        return find_job(connection, JobName(row.id)), now
