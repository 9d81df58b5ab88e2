"""When a failed occurrence is tried again."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cronless_dagster.scheduling.hashing import stable_hash

if TYPE_CHECKING:
    from cronless_dagster.scheduling.models import PlannedJob, RetryPolicy

_MICROSECOND = timedelta(microseconds=1)


def pause(policy: RetryPolicy, attempt: int) -> timedelta:
    """Return the pause after try number ``attempt`` (from 1), without its spread.

    It is ``delay * factor ** (attempt - 1)``, at most ``max_delay``.
    """
    steps = max(attempt - 1, 0)
    if not policy.delay:
        return timedelta(0)
    if policy.delay >= policy.max_delay:
        return policy.max_delay
    # Compared as logarithms, because the power itself overflows for a job that is tried for ever.
    if steps * math.log(policy.factor) >= math.log(policy.max_delay / policy.delay):
        return policy.max_delay
    return policy.delay * policy.factor**steps


def retry_at(job: PlannedJob, now: datetime) -> datetime:
    """Return when the occurrence being served is tried again: the pause, and up to 10 % more.

    The addition is a hash of id, occurrence and try, so that jobs which failed together don't come back
    together, and the answer is the same whoever asks.
    """
    wait = pause(job.retry, job.attempt)
    spread = wait // 10
    if spread:
        key = stable_hash("retry", job.id, job.scheduled_for or now, str(job.attempt))
        wait += _MICROSECOND * (key % (spread // _MICROSECOND + 1))
    return now + wait
