"""Metrics of what people start: the command line's loop and Dagster's tick sensor."""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.request
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from cronless_dagster.resources.database import CronlessResource
from cronless_dagster.sensors.tick import TickFailed, build_tick_sensor
from cronless_dagster.telemetry import metrics
from tests.engine.support import add, nothing, sql, types_of

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from sqlalchemy import Engine

    from cronless_dagster.rabbitmq.address import Broker
    from tests.processes import Spawner


def shown_by(process: subprocess.Popen[bytes], out: Path, line: str, served: str) -> str:
    """Return a process's metrics once a line is among them; `served` finds the port in what it writes."""
    hang_guard = time.monotonic() + 60
    shown = ""
    while line not in shown:
        assert time.monotonic() < hang_guard, out.read_text() + shown
        assert process.poll() is None, out.read_text()
        time.sleep(0.1)
        found = re.search(served, out.read_text()) if out.exists() else None
        if found:
            with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/metrics", timeout=10) as answer:
                shown = answer.read().decode()
    return shown


def test_a_loop_shows_its_metrics(
    engine: Engine, pg_url: str, spawn: Spawner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cronless tick --loop` says where, and there are the ticks, what they claimed and how the schedule stands."""
    add(engine, next_run_at=None)
    sql(engine, "UPDATE cronless.scheduled_job SET next_run_at = now(), job_type = 'mail'")
    monkeypatch.setenv("CRONLESS_DATABASE_URL", pg_url)
    monkeypatch.setenv("CRONLESS_METRICS_BIND", "127.0.0.1:0")
    monkeypatch.setenv("CRONLESS_JOB_TYPES", "tests.cli.declared")
    out = tmp_path / "out"
    loop = spawn(sys.executable, "-m", "cronless_dagster.cli", "tick", "--loop", "--every", "1", output=out)
    served = r"metrics\.served host=127\.0\.0\.1 port=(\d+)"
    shown = shown_by(loop, out, 'cronless_ticks_total{outcome="done"}', served)
    assert "cronless_database_up 1.0" in shown
    assert 'cronless_late_jobs{job_type="' in shown
    loop.terminate()
    assert loop.wait(timeout=60) == 0


def test_a_worker_shows_its_counts(
    engine: Engine,
    pg_url: str,
    broker: Broker,
    spawn: Spawner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`cronless worker` shows that it is connected, and with --json its log lines are JSON."""
    monkeypatch.setenv("CRONLESS_DATABASE_URL", pg_url)
    monkeypatch.setenv("CRONLESS_METRICS_BIND", "127.0.0.1:0")
    monkeypatch.setenv("CRONLESS_JOB_TYPES", "tests.cli.declared_queue")
    monkeypatch.setenv("CRONLESS_BROKER_URL", broker.url)
    monkeypatch.setenv("CRONLESS_BROKER_PREFIX", broker.prefix)
    out = tmp_path / "out"
    worker = spawn(sys.executable, "-m", "cronless_dagster.cli", "worker", "work", "--json", output=out)
    shown = shown_by(
        worker, out, "cronless_worker_connected 1.0", r'"event": "metrics\.served".*"port": (\d+)'
    )
    assert 'cronless_worker_jobs_total{job_type="work",outcome="done"} 0.0' in shown
    worker.terminate()
    assert worker.wait(timeout=60) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["done"] for line in lines if line.get("event") == "worker.drained"] == [0]


@pytest.mark.dagster
def test_a_sensor_counts_its_ticks(engine: Engine, pg_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sensor's process shows metrics from the first tick on; a tick that fails is counted as failed."""
    monkeypatch.setenv("CRONLESS_METRICS_BIND", "127.0.0.1:0")
    monkeypatch.delenv("CRONLESS_BROKER_URL", raising=False)
    add(engine)
    sql(engine, "UPDATE cronless.scheduled_job SET next_run_at = now()")
    sensor = build_tick_sensor(types_of(nothing))
    resources = {"cronless": CronlessResource(database_url=pg_url)}
    with dg.DagsterInstance.ephemeral() as instance:
        for _ in range(2):
            with dg.build_sensor_context(instance=instance, resources=resources) as context:
                sensor.evaluate_tick(context)
        sql(engine, "ALTER SCHEMA cronless RENAME TO gone")
        with (
            dg.build_sensor_context(instance=instance, resources=resources) as context,
            pytest.raises(TickFailed),
        ):
            sensor.evaluate_tick(context)
    shown = metrics.render()[0].decode()
    assert 'cronless_ticks_total{outcome="done"} 2.0' in shown
    assert 'cronless_ticks_total{outcome="failed"} 1.0' in shown
    assert 'cronless_rows_claimed_total{job_type="work"} 1.0' in shown
    # No run came of the first one, since nobody launches any here.
    assert 'cronless_claims_handed_over_total{job_type="work"} 2.0' in shown
