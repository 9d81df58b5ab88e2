"""Which traces leave the process: those with an error or something slow, whole, and no others."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import pytest

from cronless_dagster.engine.errors import JobTypeError
from cronless_dagster.telemetry import exporting, tracing
from cronless_dagster.telemetry.tracing import counts, span
from tests.engine.support import add, nothing, sql, tick, types_of

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from tests.telemetry.conftest import Collector

NEVER_SLOW = 3_600_000


def flush() -> None:
    """Send what is waiting to be sent."""
    provider = tracing._provider
    assert provider is not None
    provider.force_flush()


def attributes(found: Any) -> dict[str, Any]:
    """Return a span's attributes."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in found.attributes}


class TestWhatIsLetOut:
    """The decision falls for a whole trace."""

    def test_what_went_well_and_fast_stays(self, collector: Collector) -> None:
        """Nothing is sent of it, and it is counted."""
        assert tracing.set_up("test", slow_ms=NEVER_SLOW)
        for _ in range(3):
            with span("check", check="dispatch"), span("tick"):
                pass
        flush()
        assert collector.requests == []
        assert (counts().let_out, counts().held_back) == (0, 3)

    def test_an_error_lets_its_whole_trace_out(self, collector: Collector) -> None:
        """With the spans that went well, in their order of descent, under the service's name."""
        tracing.set_up("cronless-test", slow_ms=NEVER_SLOW)
        with span("check", check="dispatch"):
            with span("well"):
                pass
            with pytest.raises(JobTypeError), span("tick", ids="0-f"):
                raise JobTypeError("that went wrong\n[parameters: {'payload': 'hunter2'}]")
        with span("another"):
            pass
        flush()
        assert collector.names == ["check", "tick", "well"]
        by_name = {one.name: one for one in collector.spans}
        assert by_name["tick"].parent_span_id == by_name["well"].parent_span_id == by_name["check"].span_id
        assert by_name["tick"].status.message == "JobTypeError: that went wrong"
        assert attributes(by_name["tick"]) == {"cronless.ids": "0-f", "error.type": "JobTypeError"}
        assert not by_name["tick"].events
        assert "hunter2" not in str(collector.requests)
        [service] = [
            one.value.string_value
            for one in collector.requests[0].resource_spans[0].resource.attributes
            if one.key == "service.name"
        ]
        assert service == "cronless-test"
        assert (counts().let_out, counts().held_back, counts().sent) == (1, 1, 3)

    def test_something_slow_lets_it_out(self, collector: Collector) -> None:
        """From the threshold on an operation is slow, and at zero all are."""
        tracing.set_up("test", slow_ms=0)
        with span("check"):
            pass
        flush()
        assert collector.names == ["check"]

    @pytest.mark.parametrize(("status", "sent"), [(200, []), (429, []), (503, ["api"])])
    def test_an_answers_status_may_be_an_error(
        self, collector: Collector, status: int, sent: list[str]
    ) -> None:
        """From the threshold on."""
        tracing.set_up("test", slow_ms=NEVER_SLOW, error_status=500)
        with span("api") as traced:
            traced.set(status=status)
        flush()
        assert collector.names == sent

    def test_a_failure_that_is_no_exception(self, collector: Collector) -> None:
        """A block may say that it failed."""
        tracing.set_up("test", slow_ms=NEVER_SLOW)
        with span("tick") as traced:
            traced.failed("a step failed")
        flush()
        assert [one.status.message for one in collector.spans] == ["a step failed"]

    def test_what_outlives_its_root_is_waited_for(self, collector: Collector) -> None:
        """A call that was given up on is decided with the work that goes on in a thread."""
        tracing.set_up("test", slow_ms=NEVER_SLOW)
        going = threading.Event()

        def work() -> None:
            with span("check"):
                begun.set()
                going.wait(10)

        begun = threading.Event()
        with ThreadPoolExecutor() as pool:
            with span("api") as traced:
                waiting = pool.submit(copy_context().run, work)
                assert begun.wait(10)
                traced.set(status=503)
            flush()
            assert collector.names == []
            going.set()
            waiting.result(10)
        flush()
        assert collector.names == ["api", "check"]


class TestBounds:
    """Memory is bounded, whatever happens."""

    def test_spans_of_a_long_trace(self, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
        """The first ones and the root are kept, the others counted; an error among them still counts."""
        monkeypatch.setattr(exporting, "MOST_SPANS", 5)
        tracing.set_up("test", slow_ms=NEVER_SLOW)
        with span("root"):
            for number in range(20):
                with span(f"{number}") as one:
                    if number == 19:
                        one.failed("late")
        flush()
        assert collector.names == ["0", "1", "2", "3", "4", "root"]
        assert counts().dropped == 15

    def test_traces_that_never_end(self, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
        """The oldest gives way, and is counted; what ends of it later is dropped."""
        monkeypatch.setattr(exporting, "MOST_TRACES", 2)
        tracing.set_up("test", slow_ms=0)
        tracer = tracing._tracer
        assert tracer is not None
        opened = [tracer.start_span(f"{number}") for number in range(3)]
        assert counts().cut_off == 1
        for one in opened:
            one.end()
        flush()
        assert collector.names == ["1", "2"]
        assert counts().dropped == 1

    def test_a_collector_that_is_away_costs_counts_alone(
        self, collector: Collector, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What it doesn't take is counted and told once; when it is back, that is told too."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        tracing.set_up("test", slow_ms=0)
        collector.status = 400
        with caplog.at_level(logging.INFO):
            for _ in range(2):
                with span("tick"):
                    pass
                flush()
            assert (counts().sent, counts().unsent) == (0, 2)
            collector.status = 200
            with span("tick"):
                pass
            flush()
        assert (counts().sent, counts().unsent) == (1, 2)
        lines = [one.getMessage() for one in caplog.records]
        assert lines == ["traces.unsent spans=1", "traces.sent_again"]

    def test_a_collector_that_is_too_slow(
        self, collector: Collector, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What would wait beyond the bound is dropped and counted; memory doesn't grow."""
        monkeypatch.setattr(exporting, "MOST_WAITING", 512)
        tracing.set_up("test", slow_ms=0)
        monkeypatch.setattr(exporting.CountingExporter, "export", lambda *_: None)
        for _ in range(600):
            with span("tick"):
                pass
        assert counts().dropped == 600 - 512
        assert collector.requests == []


class TestWithoutACollector:
    """Where no collector is named there is no provider at all."""

    def test_spans_are_nobodys(self) -> None:
        """They are one object that does nothing."""
        assert not tracing.set_up("test")
        assert span("tick", ids="0-f") is span("check")
        with span("tick") as traced:
            traced.set(status=503)
            traced.failed("no")
        assert counts() == tracing.TraceCounts()

    def test_nothing_of_opentelemetry_is_loaded(self) -> None:
        """Neither it nor prometheus-client, for whoever ticks without telemetry."""
        code = (
            "import sys; from cronless_dagster.engine.tick import tick; from cronless_dagster.telemetry import"
            " serving, metrics, tracing; tracing.set_up('x'); metrics.observe_tick(None, 1.0);"
            "print([one for one in sys.modules if one.startswith(('opentelemetry', 'prometheus'))])"
        )
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert found.stdout.strip() == "[]"

    def test_without_the_library_it_is_told(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A collector is named and the SDK isn't installed: a warning says what to install, work goes on."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
        monkeypatch.delitem(sys.modules, "cronless_dagster.telemetry.exporting")
        monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
        assert not tracing.set_up("test")
        assert "cronless-dagster[api]" in caplog.text
        with span("tick"):
            pass

    def test_a_variable_that_cannot_be_used_is_told(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """What OpenTelemetry refuses of its own variables is a warning, and work goes on."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
        monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "100000")
        assert not tracing.set_up("test")
        assert "traces.unavailable error=" in caplog.text


def test_a_tick_with_its_steps(engine: Engine, collector: Collector) -> None:
    """A step that fails lets the tick out, the steps below it; no parameter of a statement is in it."""
    tracing.set_up("cronless-tick", slow_ms=NEVER_SLOW)
    types = types_of(nothing)
    add(engine, payload={"password": "hunter2"})
    tick(engine, types, route="local")
    flush()
    assert collector.requests == []
    sql(engine, "ALTER TABLE cronless.job_claim RENAME COLUMN dispatches TO gone")
    report = tick(engine, types, route="local")
    flush()
    assert report.errors
    assert {"tick", "tick.step"} == set(collector.names)
    [root] = [one for one in collector.spans if one.name == "tick"]
    assert root.status.message == report.errors[0].partition("\n")[0][:300]
    steps = [attributes(one)["cronless.step"] for one in collector.spans if one.name == "tick.step"]
    assert {"plan", "reconcile", "claim"} <= set(steps)
    assert "hunter2" not in str(collector.requests)


def test_the_end_sends_what_waits(collector: Collector) -> None:
    """A process that ends sends first, and traces no more."""
    tracing.set_up("test", slow_ms=0)
    with span("tick"):
        pass
    tracing.shut_down()
    assert collector.names == ["tick"]
    assert span("tick") is span("check")
