"""The job type of the queue route's benchmarks, which their worker imports: a handler that does nothing."""

from __future__ import annotations

from cronless_dagster.engine.job_types import JobType, JobTypes
from cronless_dagster.scheduling.limits import Limits

NAME = "email_digest"
BATCH = 1_000


def no_operation(_job: object) -> None:
    """Do nothing."""


job_types = JobTypes(
    (
        JobType(
            name=NAME, handler=no_operation, route="queue", batch_size=BATCH, limits=Limits(open_claims=None)
        ),
    )
)
