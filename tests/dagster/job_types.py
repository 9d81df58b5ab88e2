"""Job types that do what a test's payload says, and write down each call."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from sqlalchemy import text

from cronless_dagster.engine.job_types import JobTypes
from cronless_dagster.scheduling.limits import Limits
from tests.dagster import switches

if TYPE_CHECKING:
    from cronless_dagster.engine.handlers import HandlerContext
    from cronless_dagster.store.rows import ClaimedJob

CREATE_CALLS = text("CREATE TABLE public.calls (key text NOT NULL, pid integer NOT NULL, run_id text)")
_CALL = text("INSERT INTO public.calls VALUES (:key, :pid, :run_id)")
_LIMITS = Limits(open_claims=None)

job_types = JobTypes()


@job_types.job("digest", concurrency=1, limits=_LIMITS)
def digest(job: ClaimedJob, context: HandlerContext) -> None:
    """Write down the call, then wait, fail or die as the payload says."""
    with context.engine.begin() as connection:
        connection.execute(_CALL, {"key": job.idempotency_key, "pid": os.getpid(), "run_id": context.run_id})
    if "wait_for" in job.payload:
        (switches._directory() / f"{job.payload['wait_for']}.waiting").touch()
        switches.wait_for(job.payload["wait_for"])
    if "die_if" in job.payload:
        switches.die_if(job.payload["die_if"])
    if job.payload.get("kills"):
        os.kill(os.getpid(), signal.SIGKILL)


@job_types.job("renewal", limits=_LIMITS)
def renewal(job: ClaimedJob, context: HandlerContext) -> None:
    """Write down the call."""
    with context.engine.begin() as connection:
        connection.execute(_CALL, {"key": job.idempotency_key, "pid": os.getpid(), "run_id": context.run_id})
