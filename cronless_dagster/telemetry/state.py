"""How the schedule stands, read from the database when Prometheus asks.

Every process that shows metrics shows this too, so that any one of them is enough; a query takes the maximum over them.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction
from cronless_dagster.store.status import Status, read_status
from cronless_dagster.telemetry.events import event
from cronless_dagster.telemetry.metrics import MOST_VALUES, OTHER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from prometheus_client import Metric
    from prometheus_client.core import GaugeMetricFamily
    from sqlalchemy import Engine

CACHE_SECONDS = 15.0
PATIENCE_SECONDS = 2.0
"""A scrape waits no longer for the database: Prometheus gives up on it after some seconds, and then knows nothing."""
COUNT_BOUND = 10_000
_STATEMENT_TIMEOUT_MS = 2_000

_GAUGES = {
    "due": "Jobs whose instant has come and that nobody has claimed.",
    "late": "Jobs that are due and past their misfire grace.",
    "queued": "Jobs claimed and not started.",
    "running": "Jobs started and not finished.",
    "stuck": "Jobs whose holder's lease has run out.",
    "unclaimable": "Due jobs of a type that no running code declares.",
    "invalid": "Jobs whose schedule, zone or payload can't be used.",
    "paused": "Jobs that are paused.",
    "unplanned": "Jobs that wait for their next instant.",
}

logger = logging.getLogger(__name__)


class LatestStatus:
    """The latest status, at most so old; read by one thread at a time, however many ask."""

    def __init__(
        self, read: Callable[[], Status], cache: float = CACHE_SECONDS, patience: float = PATIENCE_SECONDS
    ) -> None:
        """Prepare; `cache` and `patience` in seconds."""
        self._read, self._cache, self._patience = read, cache, patience
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None
        self._status: Status | None = None
        self._read_at = float("-inf")
        self._well = True

    def get(self) -> Status | None:
        """Return it; None where the database doesn't answer, or not in time."""
        with self._lock:
            if time.monotonic() - self._read_at < self._cache:
                return self._status
            if self._reader is None or not self._reader.is_alive():
                self._reader = threading.Thread(target=self._ask, name="metrics-status", daemon=True)
                self._reader.start()
            reader = self._reader
        reader.join(self._patience)
        with self._lock:
            fresh = time.monotonic() - self._read_at < self._cache
            return self._status if fresh else None

    def _ask(self) -> None:
        status = None
        try:
            status = self._read()
        except Exception as error:  # noqa: BLE001 - whatever it was, there is nothing to show
            if self._well:
                reason = str(error).partition("\n")[0]
                event(logger, "metrics.database_unread", logging.WARNING, error=reason)
        with self._lock:
            self._well = status is not None
            self._status, self._read_at = status, time.monotonic()


class StateCollector:
    """Gauges of the database's state; none but `cronless_database_up 0` while it doesn't answer."""

    def __init__(
        self, engine: Engine, now: datetime | None = None, latest: LatestStatus | None = None
    ) -> None:
        """Prepare; `now` only where the clock is virtual."""
        self._engine, self._now = engine, now
        self._latest = latest or LatestStatus(self._read)

    def describe(self) -> Iterable[Metric]:
        """Return no description, so that nothing is read when this is registered."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges."""
        from prometheus_client.core import GaugeMetricFamily

        status = self._latest.get()
        yield GaugeMetricFamily(
            "cronless_database_up",
            "Whether the database answers the questions behind the gauges.",
            value=int(status is not None),
        )
        if status is not None:
            yield from self._jobs(status)
            yield from self._times(status)
            claims = GaugeMetricFamily(
                "cronless_open_claims", "Claims that are not closed.", labels=["state"]
            )
            for state, number in status.open_claims.items():
                claims.add_metric([state.lower()], number)
            yield claims

    def _read(self) -> Status:
        with transaction(self._engine, statement_timeout_ms=_STATEMENT_TIMEOUT_MS) as connection:
            return read_status(connection, current_time(connection, self._now), count_bound=COUNT_BOUND)

    @staticmethod
    def _jobs(status: Status) -> Iterator[GaugeMetricFamily]:
        from prometheus_client.core import GaugeMetricFamily

        # Any text may be a row's job type, and rows are written by others: the declared ones come first.
        types = sorted(status.types, key=lambda one: (not one.declared, one.job_type))
        for name, what in _GAUGES.items():
            numbers: dict[str, int] = {}
            for place, one in enumerate(types):
                label = one.job_type if place < MOST_VALUES else OTHER
                numbers[label] = numbers.get(label, 0) + getattr(one, name)
            gauge = GaugeMetricFamily(
                f"cronless_{name}_jobs", f"{what} Counted to {COUNT_BOUND:,}.", labels=["job_type"]
            )
            for label, number in numbers.items():
                gauge.add_metric([label], number)
            yield gauge

    @staticmethod
    def _times(status: Status) -> Iterator[GaugeMetricFamily]:
        from datetime import datetime

        from prometheus_client.core import GaugeMetricFamily

        waiting = 0.0
        if status.oldest_due_at is not None:
            waiting = (status.now - status.oldest_due_at).total_seconds()
        yield GaugeMetricFamily(
            "cronless_oldest_due_seconds", "How long the longest due job has been due.", value=waiting
        )
        if status.last_tick is not None:
            age = (status.now - datetime.fromisoformat(status.last_tick["at"])).total_seconds()
            yield GaugeMetricFamily(
                "cronless_last_tick_age_seconds",
                "Since the latest tick, by the database's clock; absent before the first.",
                value=max(age, 0.0),
            )
