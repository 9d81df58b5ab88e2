"""Which traces are let out, and their way to the collector; the only place that knows the OpenTelemetry SDK."""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import StatusCode

from cronless_dagster.telemetry.events import event
from cronless_dagster.telemetry.tracing import STATUS, TraceCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import Span

logger = logging.getLogger(__name__)

MOST_TRACES = 1_000
MOST_SPANS = 500
"""Kept of one trace; what would be too many is dropped, its errors are seen all the same."""
MOST_WAITING = 2_048
"""Spans on their way to the collector."""


def provider_of(service: str, slow_seconds: float, error_status: int, counts: TraceCounts) -> TracerProvider:
    """Return a provider that lets only errors and slow operations out, over OTLP and HTTP."""
    # It would tell of each attempt; ours tells once that it fails, and once that it is well again.
    logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
    sending = BatchSpanProcessor(CountingExporter(OTLPSpanExporter(), counts), max_queue_size=MOST_WAITING)
    named = os.environ.get("OTEL_SERVICE_NAME") or service
    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: named}), shutdown_on_exit=False)
    provider.add_span_processor(LetOut(sending, slow_seconds, error_status, counts))
    return provider


class CountingExporter(SpanExporter):
    """Counts what the collector takes; while it takes nothing, that is said once."""

    def __init__(self, exporter: SpanExporter, counts: TraceCounts) -> None:
        """Prepare."""
        self._exporter, self._counts = exporter, counts
        self._well = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans; a failure is counted, and never raised."""
        try:
            result = self._exporter.export(spans)
        except Exception:  # noqa: BLE001 - whatever it was, they are not sent
            result = SpanExportResult.FAILURE
        well = result is SpanExportResult.SUCCESS
        if well:
            self._counts.sent += len(spans)
        else:
            self._counts.unsent += len(spans)
        if well != self._well:
            self._well = well
            if well:
                event(logger, "traces.sent_again")
            else:
                event(logger, "traces.unsent", logging.WARNING, spans=len(spans))
        return result

    def shutdown(self) -> None:
        """End."""
        self._exporter.shutdown()


@dataclass(slots=True)
class _Trace:
    open: int = 0
    wanted: bool = False
    surplus: int = 0
    spans: list[ReadableSpan] = field(default_factory=list)


class LetOut(SpanProcessor):
    """Holds the spans of each trace until none of them is open; then lets all of them out, or none."""

    def __init__(
        self,
        sending: SpanProcessor,
        slow_seconds: float,
        error_status: int,
        counts: TraceCounts,
    ) -> None:
        """Prepare.

        Args:
            sending: What is let out goes there.
            slow_seconds: From how long on a span is slow.
            error_status: From which HTTP status on an answer is an error.
            counts: To be added to; what it says is sent or unsent no longer waits.
        """
        self._sending, self._counts = sending, counts
        self._slow_ns, self._error_status = int(slow_seconds * 1e9), error_status
        self._lock = threading.Lock()
        self._traces: OrderedDict[int, _Trace] = OrderedDict()
        self._given = 0

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002 - OpenTelemetry's
        """Count a span as open."""
        with self._lock:
            trace = self._traces.get(_trace_id(span))
            if trace is None:
                if len(self._traces) >= MOST_TRACES:
                    # The oldest one, as likely as not, is never going to end.
                    self._traces.popitem(last=False)
                    self._counts.cut_off += 1
                trace = self._traces[_trace_id(span)] = _Trace()
            trace.open += 1

    def on_end(self, span: ReadableSpan) -> None:
        """Keep a span; with the last open one of its trace, decide."""
        with self._lock:
            trace = self._traces.get(_trace_id(span))
            if trace is None:
                self._counts.dropped += 1
                return
            trace.open -= 1
            trace.wanted = trace.wanted or self._is_wanted(span)
            if len(trace.spans) < MOST_SPANS or not trace.open:
                trace.spans.append(span)
            else:
                trace.surplus += 1
            if trace.open:
                return
            del self._traces[_trace_id(span)]
            if not trace.wanted:
                self._counts.held_back += 1
                return
            self._counts.let_out += 1
            self._counts.dropped += trace.surplus
            self._given += len(trace.spans)
            if self._given - self._counts.sent - self._counts.unsent > MOST_WAITING:
                self._given -= len(trace.spans)
                self._counts.dropped += len(trace.spans)
                return
        for one in trace.spans:
            self._sending.on_end(one)

    def shutdown(self) -> None:
        """Send what was let out."""
        self._sending.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send what was let out now."""
        return self._sending.force_flush(timeout_millis)

    def _is_wanted(self, span: ReadableSpan) -> bool:
        status = (span.attributes or {}).get(STATUS)
        return (
            span.status.status_code is StatusCode.ERROR
            or (span.end_time or 0) - (span.start_time or 0) >= self._slow_ns
            or (isinstance(status, int) and status >= self._error_status)
        )


def _trace_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    return 0 if context is None else context.trace_id
