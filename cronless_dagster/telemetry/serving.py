"""The telemetry of a process that serves no API: its metrics on an address of their own, and its traces."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cronless_dagster.telemetry import metrics, tracing
from cronless_dagster.telemetry.events import event

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cronless_dagster.settings import Settings
    from cronless_dagster.telemetry.worker_counts import Counted

logger = logging.getLogger(__name__)

_lock = threading.Lock()
_served: set[str] = set()
_warned: set[str] = set()


def start(settings: Settings, service: str, engine: Engine, worker: Counted | None = None) -> None:
    """Show metrics where CRONLESS_METRICS_BIND says and trace where OpenTelemetry's variables say; once a process.

    Whatever goes wrong is logged and never raised: work goes on without telemetry.

    Args:
        settings: Where to listen, and what is slow or an error.
        service: The name under which traces are sent.
        engine: The store's engine, for how the schedule stands.
        worker: Whose counts are shown too.
    """
    tracing.set_up(service, slow_ms=settings.trace_slow_ms, error_status=settings.trace_error_status)
    bind = settings.metrics_bind
    with _lock:
        if bind is None or bind in _served:
            return
        try:
            _serve(bind, engine, worker)
            _served.add(bind)
        except (OSError, metrics.MetricsUnavailable) as error:
            # A sensor asks at every tick: one warning is enough, and by the next one the code server that this one
            # follows may have left the address.
            if bind not in _warned:
                event(logger, "metrics.unavailable", logging.WARNING, bind=bind, error=error)
            _warned.add(bind)


def _serve(bind: str, engine: Engine, worker: Counted | None) -> None:
    registry = metrics.begin(engine).registry
    from prometheus_client import start_http_server

    address = urlsplit(f"//{bind}")
    server, _ = start_http_server(address.port or 0, address.hostname or "127.0.0.1", registry)
    if worker is not None:
        from cronless_dagster.telemetry.worker_counts import WorkerCollector

        registry.register(WorkerCollector(worker))
    event(logger, "metrics.served", host=server.server_address[0], port=server.server_address[1])
