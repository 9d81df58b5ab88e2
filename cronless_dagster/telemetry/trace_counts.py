"""How many traces left this process, and how many did not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cronless_dagster.telemetry.tracing import counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client import Metric


class TraceCollector:
    """Reads the tracing's counts when Prometheus asks."""

    def describe(self) -> Iterable[Metric]:
        """Return no description: it is told with the counts."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the counters, also where nothing is traced."""
        from prometheus_client.core import CounterMetricFamily

        found = counts()
        traces = CounterMetricFamily(
            "cronless_traces",
            'Traces: "let_out" (an error, or slow), "held_back" (well and fast), "cut_off" (too many were open).',
            labels=["outcome"],
        )
        spans = CounterMetricFamily(
            "cronless_spans",
            'Spans of traces let out: "sent", "unsent" (the collector took none), "dropped" (for lack of room).',
            labels=["outcome"],
        )
        for outcome in ("let_out", "held_back", "cut_off"):
            traces.add_metric([outcome], getattr(found, outcome))
        for outcome in ("sent", "unsent", "dropped"):
            spans.add_metric([outcome], getattr(found, outcome))
        yield traces
        yield spans
