"""`cronless edit`: changes to a scheduled job."""

from __future__ import annotations

from typing import Any

import click

from cronless_dagster.cli import job_options
from cronless_dagster.cli.failures import InputError
from cronless_dagster.cli.invocation import Invocation, database_options, pass_invocation
from cronless_dagster.cli.parameters import JOB, JobName, column_values
from cronless_dagster.cli.views import find_job


@click.command(epilog=job_options.HELP)
@click.argument("job", type=JOB)
@job_options.job_options
@database_options
@pass_invocation
def edit(invocation: Invocation, /, job: JobName, as_json: bool, **options: Any) -> None:
    """Change a job. An edit never fires anything, and never drops what is due or claimed."""
    from sqlalchemy.exc import IntegrityError

    from cronless_dagster.store import jobs
    from cronless_dagster.store.clock import current_time
    from cronless_dagster.store.database import transaction
    from cronless_dagster.store.errors import JobError

    if all(value is None for value in options.values()):
        raise InputError(
            "nothing is to be changed: give an option such as --schedule (see `cronless edit --help`)"
        )
    engine = invocation.engine()
    try:
        with transaction(engine) as connection:
            now = current_time(connection)
            before = find_job(connection, job)
            values = column_values(options, options["timezone"] or before.timezone)
            limit = invocation.settings().max_payload_bytes
            jobs.change(connection, before.id, max_payload_bytes=limit, **values)
            row = find_job(connection, JobName(before.id))
    except IntegrityError as error:
        if getattr(error.orig, "sqlstate", None) != "23505":
            raise
        raise JobError(
            f"the name {options['name']!r} is taken by another job of the tenant and type"
        ) from error
    job_options.report(row, now, "Changed", as_json=as_json)
