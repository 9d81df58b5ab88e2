"""`cronless replan`: plan anew what lies ahead, after rows were loaded or changed with triggers off."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import click

from cronless_dagster.cli.invocation import Invocation, database_options, pass_invocation
from cronless_dagster.cli.output import counted, print_json, say
from cronless_dagster.cli.parameters import TEXT

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cronless_dagster.engine.report import TickReport

BATCH = 2_000


@click.command()
@click.option("--type", "job_type", type=TEXT, help="Only jobs of this type.")
@click.option("--tenant", "tenant_id", type=TEXT, help="Only this tenant's jobs.")
@database_options
@pass_invocation
def replan(invocation: Invocation, job_type: str | None, tenant_id: str | None, as_json: bool) -> None:
    """Plan anew every job whose instant lies ahead, and those without one.

    What is due, claimed or waiting for a retry stays as it is, and so do the instants that handlers chose. Works
    in batches; interrupted, it leaves the rest as it was.
    """
    from cronless_dagster.engine.report import TickReport
    from cronless_dagster.store.clock import current_time
    from cronless_dagster.store.database import transaction

    engine = invocation.engine()
    with transaction(engine) as connection:
        report = TickReport(now=current_time(connection))
    cleared = _replan(engine, report, job_type, tenant_id)
    if as_json:
        print_json({"replanned": cleared, "planned": report.planned, "invalid": report.invalid})
        return
    unusable = (
        f", {report.invalid:,} found unusable (see `cronless list --status INVALID`)"
        if report.invalid
        else ""
    )
    say(f"{counted(cleared, 'instant')} dropped; {counted(report.planned, 'job')} planned{unusable}.")


def _replan(engine: Engine, report: TickReport, job_type: str | None, tenant_id: str | None) -> int:
    """Drop and plan batch by batch, so that no job is without an instant for longer than a batch takes."""
    from cronless_dagster.engine.planning import plan_rows
    from cronless_dagster.scheduling.shards import FULL
    from cronless_dagster.store.clock import current_time
    from cronless_dagster.store.database import transaction
    from cronless_dagster.store.replan import clear_future

    cleared, after = 0, UUID(int=0)
    while True:
        with transaction(engine) as connection:
            last, number = clear_future(
                connection, after, BATCH, current_time(connection), job_type=job_type, tenant_id=tenant_id
            )
        cleared += number
        if number:
            plan_rows(engine, report, FULL, None, lambda: True)
        if last is None:
            # Rows that were loaded without an instant too, whatever their type.
            plan_rows(engine, report, FULL, None, lambda: True)
            return cleared
        after = last
