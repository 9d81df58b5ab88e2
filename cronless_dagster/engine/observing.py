"""What operators see of a tick, whoever called it: its metrics, its trace, and a line of the log."""

from __future__ import annotations

import logging
import time
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

from cronless_dagster.telemetry.events import event
from cronless_dagster.telemetry.metrics import observe_tick
from cronless_dagster.telemetry.tracing import span

if TYPE_CHECKING:
    from collections.abc import Callable

    from cronless_dagster.engine.report import TickReport

logger = logging.getLogger(__name__)

_P = ParamSpec("_P")


def observed(tick: Callable[_P, TickReport]) -> Callable[_P, TickReport]:
    """Count, trace and log a tick; one that raises is counted and traced, and its caller says why."""

    @wraps(tick)
    def observing(*args: _P.args, **kwargs: _P.kwargs) -> TickReport:
        started = time.monotonic()
        report = None
        try:
            with span("tick") as traced:
                report = tick(*args, **kwargs)
                traced.set(claimed=report.claimed_rows, handed_over=len(report.hand_over))
                if report.errors:
                    traced.failed(report.errors[0])
        finally:
            observe_tick(report, time.monotonic() - started)
        _log(report, time.monotonic() - started)
        return report

    return observing


def _log(report: TickReport, seconds: float) -> None:
    published = sum(report.published.values())
    idle = not (report.claimed or report.hand_over or published or report.errors)
    event(
        logger,
        "tick.done",
        logging.DEBUG if idle else logging.INFO,
        claimed=report.claimed_rows,
        handed_over=len(report.hand_over),
        published=published,
        misfired=report.misfired,
        errors=len(report.errors),
        seconds=round(seconds, 3),
    )
