"""Telemetry that a test has for itself, and a collector that reads what it is sent."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from cronless_dagster.telemetry import metrics, serving, tracing

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def own_telemetry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin without metrics and traces, and end whatever the test began."""
    for name in tracing.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(metrics, "_metrics", None)
    monkeypatch.setattr(metrics, "_watched", False)
    monkeypatch.setattr(serving, "_served", set())
    monkeypatch.setattr(serving, "_warned", set())
    monkeypatch.setattr(tracing, "_counts", tracing.TraceCounts())
    yield
    tracing.shut_down()


class Collector:
    """An OTLP collector over HTTP; answers `status` and keeps what it was sent."""

    def __init__(self) -> None:
        """Listen on a free port of the loopback."""
        self.status = 200
        self.requests: list[ExportTraceServiceRequest] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/v1/traces":
                    collector.requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(collector.status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def spans(self) -> list[Any]:
        """All spans that were sent, as OTLP's messages."""
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def names(self) -> list[str]:
        """Their names, sorted."""
        return sorted(span.name for span in self.spans)

    def stop(self) -> None:
        """End."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that OpenTelemetry's variable names."""
    made = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
    yield made
    made.stop()
