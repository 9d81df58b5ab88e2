"""The tick and its rescue, called from outside: most calls find nothing to do, by one cheap question."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from cronless_dagster.checks.declaring import Answer
from cronless_dagster.engine.tick import is_noted, note_key, tick
from cronless_dagster.store.checks import anything_open, anything_to_do, take_turn
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import statements_apart, transaction

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from typing import Literal

    from sqlalchemy import Connection

    from cronless_dagster.checks.declaring import Asked
    from cronless_dagster.engine.report import TickReport

QUIET = timedelta(seconds=50)
"""So often one of all callers notes that somebody looks, and makes a whole tick where anything is in flight."""
WHOLE = timedelta(minutes=10)
"""And so often with nothing in flight: a whole tick also keeps the history's days and the zones."""
PATIENCE = timedelta(seconds=30)
"""Within it somebody's hand-over is under way."""
_NOTHING = {"claimed": 0, "handed_over": 0, "errors": 0, "left": []}
RESCUE_EVERY = timedelta(seconds=50)
"""Within it a second call for a part of the id space mends nothing more."""


def dispatch(asked: Asked) -> Answer:
    """Plan, claim and hand over what is due in a part of the id space."""
    with _looking(asked) as connection:
        now, why = anything_to_do(
            connection,
            _served(asked),
            asked.ids,
            asked.now,
            key=note_key(asked.ids) if is_noted(asked.ids) else None,
            quiet=QUIET,
            patience=PATIENCE,
        )
    if why == "quiet" and not _whole_turn(asked, now):
        why = None
    return Answer(now=now) if why is None else _ticked(asked, "all")


def rescue(asked: Asked) -> Answer:
    """Compare what is in flight in a part of the id space with runs and queues, and mend it."""
    with _looking(asked) as connection:
        now, wanted = anything_open(connection, asked.ids)
    if wanted and is_noted(asked.ids):
        with transaction(asked.engine) as connection:
            wanted = take_turn(connection, note_key(asked.ids, "rescue"), now, RESCUE_EVERY)
    return _ticked(asked, "rescue") if wanted else Answer(now=now)


@contextmanager
def _looking(asked: Asked) -> Iterator[Connection]:
    """Lend a connection for one question; where the clock is virtual, in the transaction that sets it."""
    if asked.now is None:
        with statements_apart(asked.engine) as connection:
            yield connection
        return
    with transaction(asked.engine) as connection:
        current_time(connection, asked.now)
        yield connection


def _whole_turn(asked: Asked, now: datetime) -> bool:
    """Note that somebody looks; tell one of all who do whether it is a whole tick's turn though nothing is due."""
    ids = asked.ids
    with transaction(asked.engine) as connection:
        return take_turn(connection, note_key(ids), now, QUIET, **_NOTHING) and (
            anything_open(connection, ids)[1] or take_turn(connection, note_key(ids, "whole"), now, WHOLE)
        )


def _served(asked: Asked) -> list[str]:
    """Return the job types that this node can hand over."""
    return [
        one.name
        for one in asked.job_types
        if (one.route == "queue" and asked.queue is not None)
        or (asked.launcher is not None and one.dagster_job is None)
    ]


def _ticked(asked: Asked, part: Literal["all", "rescue"]) -> Answer:
    report = tick(
        asked.engine,
        asked.job_types,
        now=asked.now,
        ids=asked.ids,
        launcher=asked.launcher,
        queue=asked.queue,
        part=part,
        budget_seconds=asked.budget_seconds,
        history_days=asked.history_days,
    )
    counts = _counts(report)
    left = [f"{name} {reason}" for name, reason in report.left.items()]
    return Answer(sum(counts.values()), counts, (*report.errors, *left), report.now)


def _counts(report: TickReport) -> dict[str, int]:
    counts = {
        "planned": report.planned,
        "invalid": report.invalid,
        "finished": report.finished,
        "claimed": report.claimed_rows,
        "launched": sum(report.launched.values()),
        "published": sum(report.published.values()),
        **report.reconciled,
    }
    return {name: number for name, number in counts.items() if number}
