"""A job type whose work is a program of its own, started through Dagster Pipes; and its code location.

The program gets what it needs of the job, logs into the run, and reports an outcome. It may have other dependencies
than this environment, or be written in another language.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from cronless_dagster import JobTypes, Outcome, PermanentFailure, build_definitions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cronless_dagster import ClaimedJob, HandlerContext

PROGRAM = Path(__file__).with_name("program.py")

job_types = JobTypes()


# Each job is a process: as many at once as the machine has to spare.
@job_types.job(
    "forecast",
    resources={"pipes_subprocess_client": dg.PipesSubprocessClient},
    concurrency=4,
    batch_size=100,
)
def forecast(job: ClaimedJob, context: HandlerContext) -> Outcome:
    """Forecast a tenant's demand, in a process of its own."""
    if context.dagster is None:
        raise PermanentFailure(
            "its process is started through Dagster Pipes, which only a Dagster run has: give the job type the route"
            " run"
        )
    finished = context.dagster.resources.pipes_subprocess_client.run(
        context=context.dagster,
        command=[sys.executable, str(PROGRAM)],
        extras={
            "job_id": str(job.id),
            "tenant_id": job.tenant_id,
            "idempotency_key": job.idempotency_key,
            "payload": dict(job.payload),
        },
    )
    return outcome_of(finished.get_custom_messages())


def outcome_of(messages: Sequence[Any]) -> Outcome:
    """Return the outcome that the program reported last.

    Raises:
        PermanentFailure: It reported none: another try of the same program would report none either.
    """
    reported = [message for message in messages if isinstance(message, dict) and "outcome" in message]
    if not reported:
        raise PermanentFailure('its program reported no outcome: let it report {"outcome": "success"}')
    last = reported[-1]
    return Outcome(last["outcome"], error=last.get("error"), retry=last.get("retry", True))


defs = build_definitions(job_types)
