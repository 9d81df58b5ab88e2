"""`cronless list`: scheduled jobs, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cronless_dagster.cli.invocation import Invocation, database_options, pass_invocation
from cronless_dagster.cli.output import cell, print_json, say, show, table, terminal_width, utc_text
from cronless_dagster.cli.parameters import JOB, TEXT, JobName
from cronless_dagster.cli.views import find_job, job_json, state

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from rich.table import Table
    from sqlalchemy import Connection, Row

STATES = ("PENDING", "QUEUED", "RUNNING", "DONE", "FAILED", "INVALID", "PAUSED")
_ROOM_FOR_ZONES = 100
_STYLES = {"INVALID": "red", "FAILED": "red", "paused": "yellow", "due": "cyan", "RUNNING": "green"}


@click.command("list")
@click.option("--tenant", "tenant_id", type=TEXT, help="Only this tenant's jobs.")
@click.option("--type", "job_type", type=TEXT, help="Only jobs of this type.")
@click.option("--status", type=click.Choice(STATES, case_sensitive=False), help="Only jobs in this state.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many."
)
@click.option("--after", type=JOB, help="Go on behind this job: the last one of the page before.")
@database_options
@pass_invocation
def list_jobs(
    invocation: Invocation,
    tenant_id: str | None,
    job_type: str | None,
    status: str | None,
    limit: int,
    after: JobName | None,
    as_json: bool,
) -> None:
    """List scheduled jobs by tenant, type and name."""
    from cronless_dagster.store.clock import current_time
    from cronless_dagster.store.database import transaction

    engine = invocation.engine()
    with transaction(engine) as connection:
        now = current_time(connection)
        rows = _page(connection, tenant_id, job_type, status, after, limit + 1)
    more, rows = len(rows) > limit, rows[:limit]
    following = rows[-1].id if more else None
    if as_json:
        print_json({"jobs": [job_json(row) for row in rows], "next": following})
        return
    if not rows:
        say("No jobs.")
        return
    show(_table(rows, now))
    if more:
        say("")
        say(f"There are more: repeat with --after {following}", "dim")


def _page(
    connection: Connection,
    tenant_id: str | None,
    job_type: str | None,
    status: str | None,
    after: JobName | None,
    limit: int,
) -> Sequence[Row[Any]]:
    from sqlalchemy import select, tuple_

    from cronless_dagster.store.tables import scheduled_job as job

    key = (job.c.tenant_id, job.c.job_type, job.c.name)
    query = select(job).where(job.c.removed_at.is_(None)).order_by(*key).limit(limit)
    if tenant_id is not None:
        query = query.where(job.c.tenant_id == tenant_id)
    if job_type is not None:
        query = query.where(job.c.job_type == job_type)
    if status == "PAUSED":
        query = query.where(job.c.paused_at.is_not(None))
    elif status is not None:
        query = query.where(job.c.status == status)
    if after is not None:
        last = find_job(connection, after)
        query = query.where(tuple_(*key) > tuple_(last.tenant_id, last.job_type, last.name))
    return connection.execute(query).all()


def _table(rows: Sequence[Row[Any]], now: datetime) -> Table:
    with_zone = terminal_width() >= _ROOM_FOR_ZONES
    made = table(
        ["tenant", "type", "name", "schedule", *(["zone"] if with_zone else []), "state", "next run"]
    )
    for column in made.columns[-2:]:
        column.no_wrap = True
    for row in rows:
        word = state(row, now)
        made.add_row(
            *(cell(value) for value in (row.tenant_id, row.job_type, row.name, row.schedule)),
            *([cell(row.timezone)] if with_zone else []),
            cell(word, _STYLES.get(word, "")),
            # To the minute: a second of jitter says nothing here.
            cell(utc_text(row.next_run_at and row.next_run_at.replace(second=0, microsecond=0))),
        )
    return made
