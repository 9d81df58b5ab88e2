"""Traces, of which only those with an error or something slow leave the process; without a collector they cost nothing.

The tracer is our own and not the process's global one: what users trace themselves is not touched.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cronless_dagster.telemetry.events import event

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

logger = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
STATUS = "http.response.status_code"
_SHUT_DOWN_SECONDS = 5.0
_LONGEST = 300


@dataclass(slots=True)
class TraceCounts:
    """Of one process.

    Attributes:
        let_out: Traces with an error or something slow.
        held_back: Traces that went well and fast.
        cut_off: Traces of which nothing is known any more, since too many were open.
        sent: Spans that the collector took.
        unsent: Spans that it did not take.
        dropped: Spans of long traces, or of traces that came while the collector was too slow.
    """

    let_out: int = 0
    held_back: int = 0
    cut_off: int = 0
    sent: int = 0
    unsent: int = 0
    dropped: int = 0


class Span:
    """What a block may add to its span; this one is nobody's."""

    def set(self, **attributes: str | bool | float) -> None:
        """Set attributes; `status` is the answer's HTTP status. Never a secret, a URL's path or a payload."""

    def failed(self, reason: str) -> None:
        """Mark the block as failed though it raised nothing."""


class _Nothing(Span, AbstractContextManager[Span]):
    """The span of a process that doesn't trace."""

    def __exit__(self, *_: object) -> None:
        pass


class _Recorded(Span):
    def __init__(self, span: OtelSpan) -> None:
        self._span = span

    def set(self, **attributes: str | bool | float) -> None:
        self._span.set_attributes(_named(attributes))

    def failed(self, reason: str) -> None:
        from opentelemetry.trace import Status, StatusCode

        self._span.set_status(Status(StatusCode.ERROR, reason[:_LONGEST]))


_NOTHING = _Nothing()
_lock = threading.Lock()
_tracer: Tracer | None = None
_provider: TracerProvider | None = None
_counts = TraceCounts()


def span(name: str, **attributes: str | bool | float) -> AbstractContextManager[Span]:
    """Trace a block of code; an exception that leaves it is the error of its span.

    `with span("check", name="dispatch") as traced: …` sends the attribute `cronless.name`.
    """
    if _tracer is None:
        return _NOTHING
    return _recorded(_tracer, name, attributes)


@contextmanager
def _recorded(tracer: Tracer, name: str, attributes: Mapping[str, Any]) -> Iterator[Span]:
    # The library's own record of an exception holds its whole text: a database's repeats the parameters.
    with tracer.start_as_current_span(
        name, attributes=_named(attributes), record_exception=False, set_status_on_exception=False
    ) as found:
        ours = _Recorded(found)
        try:
            yield ours
        except Exception as error:
            ours.failed(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
            found.set_attribute("error.type", type(error).__qualname__)
            raise


def _named(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        STATUS if name == "status" else f"cronless.{name}": value
        for name, value in attributes.items()
        if value is not None
    }


def set_up(service: str, *, slow_ms: int = 1_000, error_status: int = 500) -> bool:
    """Begin to trace, once a process, where OpenTelemetry's own variable names a collector; tells whether it does.

    What can't be set up is logged, and never raised. It is sent as OTLP over HTTP. The variables of OpenTelemetry's
    specification hold, such as OTEL_EXPORTER_OTLP_HEADERS and OTEL_SERVICE_NAME.

    Args:
        service: The name of the service, where OTEL_SERVICE_NAME gives no other.
        slow_ms: From how many milliseconds an operation is slow.
        error_status: From which HTTP status an answer is an error.
    """
    global _tracer, _provider  # noqa: PLW0603 - a process has one tracer
    if not any(os.environ.get(name) for name in ENDPOINTS):
        return False
    with _lock:
        if _provider is not None:
            return True
        try:
            from cronless_dagster.telemetry.exporting import provider_of

            _provider = provider_of(service, slow_ms / 1_000, error_status, _counts)
        except ModuleNotFoundError as error:
            why = f"{error.name} is not installed: run `pip install cronless-dagster[api]`"
            event(logger, "traces.unavailable", logging.WARNING, error=why)
            return False
        except Exception as error:  # noqa: BLE001 - what OpenTelemetry makes of its variables stops no work
            event(logger, "traces.unavailable", logging.WARNING, error=error)
            return False
        _tracer = _provider.get_tracer("cronless_dagster")
    return True


def counts() -> TraceCounts:
    """Return the counts of this process, which go on."""
    return _counts


def shut_down() -> None:
    """Send what waits to be sent, for some seconds at most, and trace no more."""
    global _tracer, _provider
    with _lock:
        provider, _tracer, _provider = _provider, None, None
    if provider is not None:
        # A collector that hangs must not keep the process from its end.
        ending = threading.Thread(target=provider.shutdown, name="traces-end", daemon=True)
        ending.start()
        ending.join(_SHUT_DOWN_SECONDS)
