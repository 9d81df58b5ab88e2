"""The checks that come with it."""

from __future__ import annotations

from datetime import timedelta

from cronless_dagster.checks.analytics import analytics
from cronless_dagster.checks.collecting import collect
from cronless_dagster.checks.declaring import Check, Checks
from cronless_dagster.checks.dispatching import dispatch, rescue

MINUTE = timedelta(minutes=1)


def built_in() -> Checks:
    """Return them: `dispatch`, `rescue`, `analytics`, `garbage-collect`."""
    return Checks(
        (
            Check(name="dispatch", ids="jobs", every=MINUTE, ask=dispatch),
            Check(name="rescue", ids="jobs", every=MINUTE, ask=rescue),
            Check(name="analytics", ids="job types", every=15 * MINUTE, ask=analytics),
            Check(name="garbage-collect", ids="jobs", every=60 * MINUTE, ask=collect),
        )
    )
