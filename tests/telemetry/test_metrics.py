"""What a process counts."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cronless_dagster.engine.report import TickReport
from cronless_dagster.engine.runs import HandOver
from cronless_dagster.telemetry import metrics

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


@dataclass
class Answer:
    """What is counted of a check's answer."""

    acted: int


def shown() -> dict[str, float]:
    """Return what Prometheus reads: `name{label=value,…}` to value, without buckets and creation times."""
    body, content_type = metrics.render()
    assert content_type.startswith("text/plain; version=0.0.4")
    found = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            if not sample.name.endswith(("_bucket", "_created")):
                labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def a_report() -> TickReport:
    """Return a report with something of everything."""
    report = TickReport(now=NOON, planned=3, invalid=1, finished=2)
    report.claimed = {"work": 10, "mail": 5}
    report.count_misfired("work", 4)
    report.count("submitted", 2)
    report.hand_over = [HandOver(uuid4(), "work", 0, 5, manual=False) for _ in range(2)]
    report.published = {"mail": 5}
    report.errors = ["claim: no", f"claim {uuid4()}: lost", "work: locked"]
    report.seconds = {"claim": 0.5, "plan": 0.1}
    return report


def test_nothing_is_counted_before_it_begins() -> None:
    """A process that shows no metrics counts none, and loads no library for it."""
    metrics.observe_check("dispatch", "acted", 0.01)
    metrics.observe_tick(a_report(), 1.0)
    metrics.observe_refused()
    assert metrics._metrics is None


def test_checks_are_counted_by_name_and_outcome() -> None:
    """Calls, their time and what they did, by check; unauthorised requests only as a number."""
    metrics.begin()
    metrics.observe_check("dispatch", "acted", 0.02, Answer(3))
    metrics.observe_check("dispatch", "nothing", 0.001, Answer(0))
    metrics.observe_check("dispatch", "error", 2.0)
    metrics.observe_refused()
    found = shown()
    assert found["cronless_check_calls_total{check=dispatch,outcome=acted}"] == 1
    assert found["cronless_check_calls_total{check=dispatch,outcome=error}"] == 1
    assert found["cronless_check_duration_seconds_sum{check=dispatch,outcome=acted}"] == pytest.approx(0.02)
    assert found["cronless_check_actions_total{check=dispatch}"] == 3
    assert found["cronless_api_refused_total"] == 1


def test_ticks_are_counted_by_job_type_and_step() -> None:
    """Rows, claims, messages by job type; time and errors by step, and never an id as a label."""
    metrics.begin()
    metrics.observe_tick(a_report(), 0.7)
    metrics.observe_tick(TickReport(now=NOON), 0.1)
    metrics.observe_tick(None, 5.0)
    found = shown()
    assert {name: value for name, value in found.items() if name.startswith("cronless_ticks_total")} == {
        "cronless_ticks_total{outcome=done}": 1,
        "cronless_ticks_total{outcome=errors}": 1,
        "cronless_ticks_total{outcome=failed}": 1,
    }
    assert found["cronless_tick_duration_seconds_count"] == 3
    assert found["cronless_tick_step_duration_seconds_sum{step=claim}"] == 0.5
    assert found["cronless_tick_errors_total{step=claim}"] == 1
    assert found["cronless_tick_errors_total{step=(other)}"] == 2
    assert found["cronless_rows_claimed_total{job_type=work}"] == 10
    assert found["cronless_rows_misfired_total{job_type=work}"] == 4
    assert found["cronless_claims_reconciled_total{what=submitted}"] == 2
    assert found["cronless_claims_handed_over_total{job_type=work}"] == 2
    assert found["cronless_messages_published_total{job_type=mail}"] == 5
    assert found["cronless_rows_planned_total"] == 3
    assert found["cronless_rows_invalid_total"] == 1
    assert found["cronless_outcomes_taken_total"] == 2


def test_labels_are_bounded() -> None:
    """Whatever is asked for, a metric has no more than so many series; the rest is one."""
    metrics.begin()
    for number in range(metrics.MOST_VALUES + 50):
        metrics.observe_check(f"check{number}", "acted", 0.01)
    metrics.observe_check("check0", "acted", 0.01)
    calls = {name: value for name, value in shown().items() if name.startswith("cronless_check_calls_total")}
    assert len(calls) == metrics.MOST_VALUES + 1
    assert calls["cronless_check_calls_total{check=(other),outcome=(other)}"] == 50
    assert calls["cronless_check_calls_total{check=check0,outcome=acted}"] == 2


def test_beginning_twice_keeps_the_counts() -> None:
    """A second beginning in the same process is the same set of metrics."""
    metrics.begin()
    metrics.observe_refused()
    metrics.begin()
    assert shown()["cronless_api_refused_total"] == 1


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for metrics that can't be had is told in one sentence; counting stays silent."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(metrics.MetricsUnavailable, match=r"pip install cronless-dagster\[api\]"):
        metrics.begin()
    metrics.observe_check("dispatch", "acted", 0.01)


def test_names_follow_prometheus_conventions() -> None:
    """Every family has a help text; counters end with _total, times with _seconds, all begin with ours."""
    for family in metrics.begin().registry.collect():
        assert family.documentation.endswith(".")
        if not family.name.startswith("process_"):
            assert family.name.startswith("cronless_")
            assert family.type != "histogram" or family.name.endswith("_seconds")
