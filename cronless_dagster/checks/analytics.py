"""How late and how healthy each job type is, noted once in each quarter of an hour."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cronless_dagster.checks.declaring import Answer
from cronless_dagster.scheduling.id_space import place_of
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction
from cronless_dagster.store.declarations import declared_types
from cronless_dagster.store.snapshots import take, untaken, window_of

if TYPE_CHECKING:
    from cronless_dagster.checks.declaring import Asked

TOGETHER = 20
"""Job types of one transaction, which reads the quarter's history once for all of them."""


def analytics(asked: Asked) -> Answer:
    """Take the snapshot of the current quarter of an hour for each job type whose name lies in the range.

    For those that some running code has declared lately, and this node's own. What isn't done within the budget is
    left to the next call of the window.
    """
    deadline = time.monotonic() + asked.budget_seconds
    with transaction(asked.engine) as connection:
        now = current_time(connection, asked.now)
        known = {*declared_types(connection, now), *(one.name for one in asked.job_types)}
        names = sorted(name for name in known if asked.ids.contains(place_of(name)))
        window = window_of(now)
        wanted = untaken(connection, names, window) if names else []
    taken = 0
    while wanted and time.monotonic() < deadline:
        batch, wanted = wanted[:TOGETHER], wanted[TOGETHER:]
        with transaction(asked.engine) as connection:
            taken += take(connection, batch, window, now)
    notes = (f"{len(wanted)} job types are left to the window's next call",) if wanted else ()
    return Answer(taken, {"snapshots": taken} if taken else {}, notes, now)
