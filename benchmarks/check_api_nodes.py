"""What the check API's benchmark serves: the benchmarks' job types, and a check that does nothing at all."""

from __future__ import annotations

from datetime import timedelta

from benchmarks.support import job_types as benchmarks_job_types
from cronless_dagster.checks.declaring import Answer, Asked, Check, Checks

job_types = benchmarks_job_types()
NOTHING = "nothing"


def nothing(_: Asked) -> Answer:
    """Answer, and that is all."""
    return Answer(0, {}, ())


checks = Checks((Check(name=NOTHING, ids="none", every=timedelta(minutes=1), ask=nothing),))
