"""`cronless add`: a new scheduled job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cronless_dagster.cli import job_options
from cronless_dagster.cli.invocation import Invocation, database_options, pass_invocation
from cronless_dagster.cli.parameters import TEXT, JobName, column_values
from cronless_dagster.cli.views import find_job

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection


@click.command(epilog=job_options.HELP)
@click.option("--tenant", "tenant_id", type=TEXT, required=True, help="Whose job it is.")
@click.option("--type", "job_type", type=TEXT, required=True, help="What it runs: a declared job type.")
@job_options.job_options
@click.option("--undeclared", is_flag=True, help="Allow a job type that no running code declares yet.")
@database_options
@pass_invocation
def add(
    invocation: Invocation,
    /,
    tenant_id: str,
    job_type: str,
    undeclared: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Add a scheduled job; the next tick plans it."""
    from cronless_dagster.store import jobs
    from cronless_dagster.store.clock import current_time
    from cronless_dagster.store.database import transaction

    if options["schedule"] is None:
        raise click.UsageError("Missing option '--schedule'.", click.get_current_context())
    values = column_values(options, options["timezone"] or "UTC")
    engine = invocation.engine()
    with transaction(engine) as connection:
        now = current_time(connection)
        if not undeclared:
            _require_declared(connection, invocation, job_type, now)
        limit = invocation.settings().max_payload_bytes
        job_id = jobs.add(
            connection, tenant_id=tenant_id, job_type=job_type, max_payload_bytes=limit, **values
        )
        row = find_job(connection, JobName(job_id))
    job_options.report(row, now, "Added", as_json=as_json)


def _require_declared(connection: Connection, invocation: Invocation, job_type: str, now: datetime) -> None:
    from cronless_dagster.engine.errors import UnknownJobType
    from cronless_dagster.store.declarations import declared_types

    known = declared_types(connection, now)
    if job_type in known:
        return
    # Code is only loaded for a type that no tick has declared lately: it may take seconds.
    here = invocation.job_types()
    if job_type not in here:
        names = ", ".join(sorted({*known, *(one.name for one in here)})) or "none"
        raise UnknownJobType(
            f"job type {job_type!r} is not declared (declared: {names}): correct it, or add the job with"
            " --undeclared before its code is deployed"
        )
