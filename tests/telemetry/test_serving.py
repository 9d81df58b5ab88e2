"""The telemetry of processes that serve no API."""

from __future__ import annotations

import logging
import re
import socket
import urllib.request
from typing import TYPE_CHECKING

from cronless_dagster.settings import Settings
from cronless_dagster.telemetry import metrics, serving
from cronless_dagster.worker.counts import Counts, TypeCounts

if TYPE_CHECKING:
    import pytest
    from sqlalchemy import Engine

LOOPBACK = Settings(metrics_bind="127.0.0.1:0")


class Worker:
    """A worker that has done something."""

    counts = Counts(
        types={"mail": TypeCounts(done=7, failed=2, in_flight=1)},
        stale=1, doubled=2, discarded=3, lost=4, poisoned=5, returned=6, given_back=8, unwritten=9,
        held=10, reconnects=11, connected=True, database=True, paused=False,
    )  # fmt: skip


def served(caplog: pytest.LogCaptureFixture) -> str:
    """Return what is shown where the log says it is served."""
    [port] = re.findall(r"metrics\.served host=127\.0\.0\.1 port=(\d+)", caplog.text)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def test_a_workers_counts_are_shown(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """Over HTTP, beside the state of the schedule and the process's own numbers."""
    with caplog.at_level(logging.INFO):
        serving.start(LOOPBACK, "cronless-worker", engine, Worker())
    lines = served(caplog).splitlines()
    for line in (
        'cronless_worker_jobs_total{job_type="mail",outcome="done"} 7.0',
        'cronless_worker_jobs_total{job_type="mail",outcome="failed"} 2.0',
        'cronless_worker_jobs_in_flight{job_type="mail"} 1.0',
        'cronless_worker_messages_unused_total{why="poisoned"} 5.0',
        'cronless_worker_jobs_not_recorded_total{why="unwritten"} 9.0',
        "cronless_worker_messages_held 10.0",
        "cronless_worker_reconnects_total 11.0",
        "cronless_worker_connected 1.0",
        "cronless_worker_paused 0.0",
        "cronless_database_up 1.0",
        'cronless_traces_total{outcome="held_back"} 0.0',
    ):
        assert line in lines
    assert "process_resident_memory_bytes" in "".join(lines)


def test_it_begins_once(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """A sensor asks at every tick; one server is enough."""
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            serving.start(LOOPBACK, "cronless-sensor", engine)
    assert caplog.text.count("metrics.served") == 1


def test_an_address_in_use_is_a_warning(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """A second worker on the machine works on without metrics, and says once why it has none."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        for _ in range(2):
            serving.start(Settings(metrics_bind=bind), "cronless-worker", engine)
    [line] = [one.getMessage() for one in caplog.records if "metrics.unavailable" in one.getMessage()]
    assert bind in line


def test_an_address_that_becomes_free_is_taken(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """A code server begins before the one it follows has ended; the sensor's next tick shows its metrics."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = Settings(metrics_bind=f"127.0.0.1:{taken.getsockname()[1]}")
        serving.start(settings, "cronless-sensor", engine, Worker())
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            serving.start(settings, "cronless-sensor", engine, Worker())
    assert served(caplog).count('cronless_worker_jobs_total{job_type="mail",outcome="done"} 7.0') == 1


def test_without_an_address_nothing_is_counted(engine: Engine) -> None:
    """Metrics are for those who ask for them."""
    serving.start(Settings(), "cronless-worker", engine)
    assert metrics._metrics is None
