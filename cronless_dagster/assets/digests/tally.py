"""What a run's digests came to, by local date."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC
from typing import TYPE_CHECKING

from cronless_dagster.assets.digests.errors import NotSent, Refused, Uncertain
from cronless_dagster.scheduling.errors import TimezoneError
from cronless_dagster.scheduling.zones import zone

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date

    from cronless_dagster.assets.digests.sending import Digests
    from cronless_dagster.engine.handlers import HandlerContext
    from cronless_dagster.store.rows import ClaimedJob

OUTCOMES = ("sent", "nothing_new", "already", "unsubscribed", "uncertain", "refused", "failed")
"""How a try of an occurrence can end; `already`: an earlier try had ended it, so there was nothing to do."""


@dataclass(slots=True)
class DateTally:
    """The tries of one local date, by outcome, and how late they began, in seconds."""

    counts: Counter[str] = field(default_factory=Counter)
    lateness: list[float] = field(default_factory=list)


class Tally:
    """Counts tries; any thread may add."""

    def __init__(self) -> None:
        self.dates: dict[date, DateTally] = {}
        self._lock = threading.Lock()

    def watching(self, digests: Digests) -> Callable[[ClaimedJob, HandlerContext], None]:
        """Return the handler of digests, each of its tries counted here."""

        def handle(job: ClaimedJob, context: HandlerContext) -> None:
            late = max((context.now - job.due_at).total_seconds(), 0.0)
            try:
                delivered = digests.deliver_job(job, context)
            except BaseException as error:
                self.add(_date_of(job), outcome_of(error), late)
                raise
            self.add(delivered.local_date, delivered.status, late)

        return handle

    def add(self, local_date: date, outcome: str, late: float) -> None:
        """Count one try."""
        with self._lock:
            tally = self.dates.setdefault(local_date, DateTally())
            tally.counts[outcome] += 1
            tally.lateness.append(late)


def outcome_of(error: BaseException) -> str:
    """Return as what a try that raised this is counted."""
    if isinstance(error, Uncertain):
        return "uncertain"
    return "refused" if isinstance(error, Refused | NotSent) else "failed"


def _date_of(job: ClaimedJob) -> date:
    # Of a failure the user's own zone may be what is wrong; the job was planned in its own.
    try:
        return job.scheduled_for.astimezone(zone(job.plan.timezone)).date()
    except TimezoneError:
        return job.scheduled_for.astimezone(UTC).date()
