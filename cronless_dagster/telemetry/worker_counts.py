"""What a worker has done, from its own counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client import Metric

_MESSAGES = ("stale", "doubled", "poisoned", "returned")
_LOST = ("discarded", "lost", "given_back", "unwritten")


class Counted(Protocol):
    """A worker; see `worker.counts.Counts`."""

    @property
    def counts(self) -> Any:
        """What it did so far."""


class WorkerCollector:
    """Reads a worker's counts when Prometheus asks."""

    def __init__(self, worker: Counted) -> None:
        """Prepare."""
        self._worker = worker

    def describe(self) -> Iterable[Metric]:
        """Return no description: the counts need a worker that has begun."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the counters and gauges."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        counts = self._worker.counts
        types: Mapping[str, Any] = counts.types
        ended = CounterMetricFamily(
            "cronless_worker_jobs",
            'Results accepted, by job type: "done", or "failed" for every other outcome.',
            labels=["job_type", "outcome"],
        )
        in_flight = GaugeMetricFamily(
            "cronless_worker_jobs_in_flight",
            "Jobs started here, their result not written.",
            labels=["job_type"],
        )
        for name, one in types.items():
            ended.add_metric([name, "done"], one.done)
            ended.add_metric([name, "failed"], one.failed)
            in_flight.add_metric([name], one.in_flight)
        yield ended
        yield in_flight
        messages = CounterMetricFamily(
            "cronless_worker_messages_unused",
            "Messages that started no job here: stale, doubled, poisoned, or returned unstarted.",
            labels=["why"],
        )
        for why in _MESSAGES:
            messages.add_metric([why], getattr(counts, why))
        yield messages
        lost = CounterMetricFamily(
            "cronless_worker_jobs_not_recorded",
            "Jobs taken and not recorded: lost before their handler, discarded after it, given back, unwritten.",
            labels=["why"],
        )
        for why in _LOST:
            lost.add_metric([why], getattr(counts, why))
        yield lost
        yield CounterMetricFamily(
            "cronless_worker_reconnects", "Connections to the broker made anew.", value=counts.reconnects
        )
        for name, what, value in (
            ("messages_held", "Messages here that are not started.", counts.held),
            ("connected", "Whether there is a connection to the broker.", counts.connected),
            ("database_up", "Whether the last start of jobs was answered by the database.", counts.database),
            ("paused", "Whether no further messages are being taken.", counts.paused),
        ):
            yield GaugeMetricFamily(f"cronless_worker_{name}", what, value=int(value))
