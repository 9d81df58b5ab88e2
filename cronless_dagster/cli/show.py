"""`cronless show`: one job, its plan in its own zone, and its history."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from cronless_dagster.cli.invocation import Invocation, database_options, pass_invocation
from cronless_dagster.cli.output import (
    away,
    counted,
    distance,
    facts,
    iso,
    local_text,
    print_json,
    say,
    utc_text,
)
from cronless_dagster.cli.output import show as print_parts
from cronless_dagster.cli.parameters import JOB, JobName
from cronless_dagster.cli.views import find_job, job_json, state

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from sqlalchemy import Row

HISTORY = 20
_STYLES = {"success": "green", "failure": "yellow", "missed": "yellow", "superseded": "yellow"}


@click.command()
@click.argument("job", type=JOB)
@database_options
@pass_invocation
def show(invocation: Invocation, job: JobName, as_json: bool) -> None:
    """Show a job, its plan in its own zone and in UTC, and its last executions."""
    from cronless_dagster.cli.job_options import expected_run
    from cronless_dagster.store import history
    from cronless_dagster.store.clock import current_time
    from cronless_dagster.store.database import transaction
    from cronless_dagster.store.declarations import declared_types

    engine = invocation.engine()
    with transaction(engine) as connection:
        now = current_time(connection)
        row = find_job(connection, job, removed=True)
        past = history.of_job(connection, row.id, HISTORY)
        declared = row.job_type in declared_types(connection, now)
    links = _Links(_dagster_url(invocation))
    run_at = expected_run(row, now)
    if as_json:
        print_json(
            {
                "job": job_json(row),
                "state": state(row, now),
                "expected_run_at": iso(run_at),
                "claim_url": links.claim(row.claim_id),
                "history": [{**one._asdict(), "run_url": links.run(one.run_id)} for one in past],
            }
        )
        return
    shown = _facts(row, now, run_at, links)
    if not declared and row.status == "PENDING":
        shown["unclaimable"] = (
            f"no running code has declared {row.job_type} lately: deploy it, or mend the name"
        )
    print_parts(facts(shown))
    _print_history(past, row.timezone, links)


def _dagster_url(invocation: Invocation) -> str | None:
    # Its default is where a laptop's Dagster listens: no address to print where nobody set it.
    return invocation.settings().dagster_url if os.environ.get("CRONLESS_DAGSTER_URL") else None


class _Links:
    """Addresses in Dagster's UI, where one is set."""

    def __init__(self, base: str | None) -> None:
        self._base = base

    def run(self, run_id: str | None) -> str | None:
        return None if self._base is None or run_id is None else f"{self._base}/runs/{quote(run_id, safe='')}"

    def claim(self, claim_id: UUID | None) -> str | None:
        if self._base is None or claim_id is None:
            return None
        return f"{self._base}/runs?q=tag:{quote(f'cronless/claim={claim_id}', safe='/=')}"


def _facts(row: Row[Any], now: datetime, run_at: datetime | None, links: _Links) -> dict[str, Any]:
    def instant(at: datetime | None) -> str | None:
        return None if at is None else f"{local_text(at, row.timezone)}, {utc_text(at)}, {away(at, now)}"

    planned = instant(run_at)
    if row.paused_at is not None:
        planned = None
    elif row.next_run_at is None and planned is not None:
        planned = f"{planned} (once a tick has planned it)"
    return {
        "id": str(row.id),
        "tenant": row.tenant_id,
        "type": row.job_type,
        "name": row.name or None,
        "state": state(row, now),
        "schedule": f"{row.schedule} ({row.timezone}, {row.dst_policy})",
        "next run": planned,
        "of occurrence": instant(row.scheduled_for)
        if planned is not None and row.next_run_at is not None and row.scheduled_for != row.next_run_at
        else None,
        "starts at": instant(row.starts_at),
        "ends at": instant(row.ends_at),
        "paused": instant(row.paused_at),
        "pause reason": row.pause_reason,
        "triggered": instant(row.trigger_requested_at),
        "removed": instant(row.removed_at),
        "unusable": row.invalid_reason,
        "claim": None
        if row.claim_id is None
        else " ".join(filter(None, (str(row.claim_id), links.claim(row.claim_id)))),
        "misfires": f"{row.misfire_policy}, grace {row.misfire_grace_seconds} s",
        "jitter": f"{row.jitter_seconds} s" if row.jitter_seconds else None,
        "retries": _retries(row),
        "tries so far": str(row.attempt) if row.attempt else None,
        "failed in a row": str(row.consecutive_failures) if row.consecutive_failures else None,
        "holders killed": str(row.crashes) if row.crashes else None,
        "last outcome": None
        if row.last_outcome is None
        else f"{row.last_outcome}, {instant(row.last_finished_at)}",
        "last error": row.last_error,
        "payload": json.dumps(row.payload, ensure_ascii=False),
    }


def _retries(row: Row[Any]) -> str | None:
    parts = [
        f"{name} {value}{unit}"
        for name, value, unit in (
            ("attempts", row.max_attempts, ""),
            ("delay", row.retry_delay_seconds, " s"),
            ("longest delay", row.retry_max_delay_seconds, " s"),
            ("pause after", row.pause_after, " failed"),
        )
        if value is not None
    ]
    return ", ".join(parts) or None


def _print_history(past: Sequence[Row[Any]], timezone: str, links: _Links) -> None:
    """Print an execution a line, what it said and where it ran below: addresses stay whole to be clicked."""
    say("")
    if not past:
        say("No executions yet.", "dim")
        return
    say(f"Last {len(past)} executions" if len(past) > 1 else "Last execution", "bold")
    for one in past:
        served = (
            utc_text(one.recorded_at)
            if one.scheduled_for is None
            else local_text(one.scheduled_for, timezone)
        )
        say(
            f"{served}  {', '.join(filter(None, (one.outcome, _tries(one), _late(one))))}",
            _STYLES.get(one.outcome, "red"),
        )
        for line in (_words(one, timezone), links.run(one.run_id) or (one.run_id and f"run {one.run_id}")):
            if line:
                say(f"    {line}")


def _tries(one: Row[Any]) -> str:
    return " ".join(
        filter(None, (f"try {one.attempt}" if one.attempt else "", "by hand" if one.manual else ""))
    )


def _late(one: Row[Any]) -> str:
    if one.started_at is None or one.due_at is None:
        return ""
    late = one.started_at - one.due_at
    return f"{distance(late)} late" if late >= timedelta(seconds=1) else "on time"


def _words(one: Row[Any], timezone: str) -> str:
    if one.missed_count:
        last = local_text(one.missed_last, timezone)
        return f"{counted(one.missed_count, 'occurrence')} ({one.missed_reason}), the last {last}"
    return one.error or ""
