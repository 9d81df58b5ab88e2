"""Removing what has had its time: old marks, old snapshots, notes of parts that nobody serves, ended jobs if wanted."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

from cronless_dagster.checks.declaring import Answer, CheckError
from cronless_dagster.store import garbage
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from cronless_dagster.checks.declaring import Asked

MARKS_KEPT = timedelta(days=2)
"""After the end of their window, which is what a mark's `over_at` says."""
NOTES_KEPT = timedelta(days=7)
BATCH = 1_000
"""Rows of one transaction."""
BATCHES = 20
"""Of one kind in one call, so that no kind keeps the others waiting; the next call goes on."""


def collect(asked: Asked) -> Answer:
    """Remove old marks, snapshots and notes; jobs that have ended stay.

    Marks, snapshots and notes belong to no job: whoever comes removes the oldest, whatever its part of the ids.
    """
    return _collect(asked, None)


def collect_ended(days: int) -> Callable[[Asked], Answer]:
    """Return what removes also DONE and FAILED jobs of the call's range that ended so many days ago.

    Raises:
        CheckError: Less than a day.
    """
    if days < 1:
        raise CheckError(f"ended jobs are to be kept for {days} days: give 1 or more")

    def collect_with_ended(asked: Asked) -> Answer:
        return _collect(asked, timedelta(days=days))

    return collect_with_ended


def _collect(asked: Asked, ended_kept: timedelta | None) -> Answer:
    deadline = time.monotonic() + asked.budget_seconds
    with transaction(asked.engine) as connection:
        now = current_time(connection, asked.now)
    snapshots_kept = timedelta(days=asked.history_days)
    kinds: dict[str, Callable[[Connection], int]] = {
        "marks": lambda connection: garbage.collect_marks(connection, now - MARKS_KEPT, BATCH),
        "snapshots": lambda connection: garbage.collect_snapshots(connection, now - snapshots_kept, BATCH),
        "notes": lambda connection: garbage.collect_notes(connection, now - NOTES_KEPT, BATCH),
    }
    if ended_kept is not None:
        ended_before = now - ended_kept
        kinds["ended_jobs"] = lambda connection: garbage.collect_ended(
            connection, asked.ids, ended_before, BATCH
        )
    counts = {}
    left = []
    for kind, remove in kinds.items():
        removed, finished = _in_batches(asked, remove, deadline)
        if removed:
            counts[kind] = removed
        if not finished:
            left.append(f"more old {kind.replace('_', ' ')} are left to the next call")
    return Answer(sum(counts.values()), counts, tuple(left), now)


def _in_batches(asked: Asked, remove: Callable[[Connection], int], deadline: float) -> tuple[int, bool]:
    """Return how many were removed, and whether nothing is left that nobody else is at."""
    total = 0
    for _ in range(BATCHES):
        if time.monotonic() >= deadline:
            return total, False
        with transaction(asked.engine, index_order=True) as connection:
            removed = remove(connection)
        total += removed
        if removed < BATCH:
            return total, True
    return total, False
