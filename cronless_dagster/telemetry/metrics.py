"""What a process counts, for Prometheus.

Nothing is counted before `begin`, and without prometheus-client nothing ever is: callers needn't know. Labels are few
and bounded: job types, checks, steps and outcomes; never a tenant, an id or what somebody sent.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Protocol

from cronless_dagster.scheduling.errors import CronlessError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Engine

MOST_VALUES = 200
"""So many values a label has; what comes after them is counted as `OTHER`."""
OTHER = "(other)"
_FINE = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_COARSE = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 20, 60)


class MetricsUnavailable(CronlessError):
    """Metrics were asked for where prometheus-client isn't installed."""


class Ticked(Protocol):
    """What is counted of a tick's report; see `engine.report.TickReport`."""

    planned: int
    invalid: int
    finished: int
    claimed: dict[str, int]
    misfires: dict[str, int]
    reconciled: dict[str, int]
    published: dict[str, int]
    errors: list[str]
    seconds: dict[str, float]

    @property
    def hand_over(self) -> Sequence[HandedOver]:
        """The claims that were handed over."""


class HandedOver(Protocol):
    """A claim that was handed over."""

    @property
    def job_type(self) -> str:
        """Its job type."""


class Metrics:
    """A process's instruments in a registry of their own, beside whatever else the process measures."""

    def __init__(self) -> None:
        """Make them.

        Raises:
            MetricsUnavailable: prometheus-client isn't installed.
        """
        try:
            from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
        except ModuleNotFoundError as error:
            raise MetricsUnavailable(
                f"{error.name} is not installed, so there are no metrics: run `pip install cronless-dagster[api]`"
            ) from error

        def counter(name: str, what: str, *labels: str) -> _Labelled:
            return _Labelled(Counter(name, what, labels, registry=registry), len(labels))

        def histogram(name: str, what: str, buckets: Sequence[float], *labels: str) -> _Labelled:
            return _Labelled(Histogram(name, what, labels, registry=registry, buckets=buckets), len(labels))

        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.check_calls = counter(
            "cronless_check_calls_total", "Calls of checks, by what came of them.", "check", "outcome"
        )
        self.check_seconds = histogram(
            "cronless_check_duration_seconds", "How long checks took to answer.", _FINE, "check", "outcome"
        )
        self.check_actions = counter(
            "cronless_check_actions_total", "What checks found to be time for, and did.", "check"
        )
        self.refused = counter("cronless_api_refused_total", "Requests that were answered by 404.")
        self.ticks = counter(
            "cronless_ticks_total",
            'Ticks: "done", "errors" (a step failed, the others went on) or "failed" (nothing could be done).',
            "outcome",
        )
        self.tick_seconds = histogram("cronless_tick_duration_seconds", "How long ticks took.", _COARSE)
        self.step_seconds = histogram(
            "cronless_tick_step_duration_seconds", "How long a tick's steps took.", _COARSE, "step"
        )
        self.tick_errors = counter(
            "cronless_tick_errors_total",
            f'What failed at ticks, by step; "{OTHER}": one claim or one job type within a step.',
            "step",
        )
        self.planned = counter("cronless_rows_planned_total", "Rows that got their next instant from a tick.")
        self.invalid = counter("cronless_rows_invalid_total", "Rows that a tick found unusable.")
        self.finished = counter(
            "cronless_outcomes_taken_total", "Outcomes reported in SQL that a tick planned."
        )
        self.claimed = counter("cronless_rows_claimed_total", "Rows claimed.", "job_type")
        self.misfired = counter(
            "cronless_rows_misfired_total", "Claimed rows that were past their misfire grace.", "job_type"
        )
        self.reconciled = counter(
            "cronless_claims_reconciled_total",
            "Open claims by what a tick found to be done with them.",
            "what",
        )
        self.handed_over = counter(
            "cronless_claims_handed_over_total",
            "Hand-overs of claims: runs asked for or launched.",
            "job_type",
        )
        self.published = counter(
            "cronless_messages_published_total", "Messages that the broker has confirmed.", "job_type"
        )

    def check(self, name: str, outcome: str, seconds: float, acted: int) -> None:
        """Count a call of a check."""
        self.check_calls.of(name, outcome).inc()
        self.check_seconds.of(name, outcome).observe(seconds)
        self.check_actions.of(name).inc(acted)

    def tick(self, report: Ticked, seconds: float) -> None:
        """Count a tick that came to its end."""
        self.ticks.of("errors" if report.errors else "done").inc()
        self.tick_seconds.of().observe(seconds)
        for step, spent in report.seconds.items():
            self.step_seconds.of(step).observe(spent)
        for error in report.errors:
            # The other words in front of a colon are ids.
            step = error.partition(":")[0]
            self.tick_errors.of(step if step in report.seconds else OTHER).inc()
        for counter, number in (
            (self.planned, report.planned),
            (self.invalid, report.invalid),
            (self.finished, report.finished),
        ):
            counter.of().inc(number)
        handed_over: dict[str, int] = {}
        for one in report.hand_over:
            handed_over[one.job_type] = handed_over.get(one.job_type, 0) + 1
        self._add(self.claimed, report.claimed)
        self._add(self.misfired, report.misfires)
        self._add(self.reconciled, report.reconciled)
        self._add(self.handed_over, handed_over)
        self._add(self.published, report.published)

    @staticmethod
    def _add(counter: _Labelled, numbers: Mapping[str, int]) -> None:
        for value, number in numbers.items():
            counter.of(value).inc(number)


class _Labelled:
    """An instrument that makes no more than `MOST_VALUES` series, whatever it is asked for."""

    def __init__(self, instrument: Any, labels: int) -> None:
        self._instrument, self._labels = instrument, labels
        self._seen: set[tuple[str, ...]] = set()

    def of(self, *values: str) -> Any:
        if not self._labels:
            return self._instrument
        if values not in self._seen:
            if len(self._seen) >= MOST_VALUES:
                values = (OTHER,) * self._labels
            self._seen.add(values)
        return self._instrument.labels(*values)


_lock = threading.Lock()
_metrics: Metrics | None = None
_watched = False


def begin(engine: Engine | None = None) -> Metrics:
    """Count from now on in this process; with an engine, show how the schedule stands in its database too.

    May be called any number of times; a process has one database, that of the first engine given.

    Raises:
        MetricsUnavailable: prometheus-client isn't installed.
    """
    global _metrics, _watched  # noqa: PLW0603 - a process has one set of metrics
    with _lock:
        if _metrics is None:
            from cronless_dagster.telemetry.trace_counts import TraceCollector

            made = Metrics()
            made.registry.register(TraceCollector())
            _metrics = made
        if engine is not None and not _watched:
            from cronless_dagster.telemetry.state import StateCollector

            _watched = True
            _metrics.registry.register(StateCollector(engine))
        return _metrics


def observe_check(name: str, outcome: str, seconds: float, answer: Any = None) -> None:
    """Count one call of a check.

    Args:
        name: The name of a check that there is: what callers send never becomes a label.
        outcome: One of a few words.
        seconds: How long it took.
        answer: What the check answered, if it did; its `acted` is counted.
    """
    if _metrics is not None:
        _metrics.check(name, outcome, seconds, 0 if answer is None else answer.acted)


def observe_refused() -> None:
    """Count one request that was not authorised."""
    if _metrics is not None:
        _metrics.refused.of().inc()


def observe_tick(report: Ticked | None, seconds: float) -> None:
    """Count one tick; None: it failed as a whole."""
    if _metrics is None:
        return
    if report is None:
        _metrics.ticks.of("failed").inc()
        _metrics.tick_seconds.of().observe(seconds)
    else:
        _metrics.tick(report, seconds)


def render() -> tuple[bytes, str]:
    """Return what Prometheus reads, and its content type; may wait some seconds for the database.

    Raises:
        MetricsUnavailable: prometheus-client isn't installed.
    """
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

    return generate_latest(begin().registry), CONTENT_TYPE_PLAIN_0_0_4
