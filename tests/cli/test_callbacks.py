"""`cronless callbacks`: a real process, asked over HTTP and ended by a signal."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from cronless_dagster.assets.migrate import upgrade_assets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.processes import Spawner


def started(spawn: Spawner, output: Path, url: str, *options: str) -> tuple[Any, str]:
    """Start the command on a free port; returns the process and its address."""
    command = (sys.executable, "-m", "cronless_dagster.cli", "callbacks", "--port", "0", *options)
    process = spawn(*command, env={"CRONLESS_DATABASE_URL": url}, output=output)
    hang_guard = time.monotonic() + 60
    while time.monotonic() < hang_guard and process.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+", output.read_text()):
            return process, found.group()
        time.sleep(0.05)
    pytest.fail(output.read_text())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_end(
    spawn: Spawner, tmp_path: Path, pg_url: str, number: signal.Signals
) -> None:
    """And then ends well; its log holds no id and no query."""
    upgrade_assets(pg_url)
    process, address = started(spawn, tmp_path / "log", pg_url)
    assert httpx.get(f"{address}/healthz").status_code == 200
    unknown = "3fa85f64-5717-4562-b3fc-2c963f66afa6"
    assert httpx.get(f"{address}/websub/{unknown}?hub.challenge=made-up").status_code == 404
    process.send_signal(number)
    assert process.wait(60) == 0
    log = (tmp_path / "log").read_text()
    assert "GET '/websub' 404" in log
    assert unknown not in log
    assert "made-up" not in log
    assert "Traceback" not in log


def test_with_json_each_line_is_one(spawn: Spawner, tmp_path: Path, pg_url: str) -> None:
    """For whoever collects logs."""
    upgrade_assets(pg_url)
    process, address = started(spawn, tmp_path / "log", pg_url, "--json")
    httpx.get(f"{address}/healthz")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert "GET '/healthz' 200" in " ".join(line["message"] for line in lines)
    assert all(line["at"].endswith("Z") for line in lines)


def test_missing_tables_are_told_at_once(run: Callable[..., Any]) -> None:
    """Not by an answer to a hub."""
    assert "--assets" in run("callbacks").refused(1)


def test_a_port_that_is_taken_is_told(spawn: Spawner, tmp_path: Path, pg_url: str) -> None:
    """And the command fails."""
    upgrade_assets(pg_url)
    _, address = started(spawn, tmp_path / "log", pg_url)
    command = (
        sys.executable,
        "-m",
        "cronless_dagster.cli",
        "callbacks",
        "--port",
        address.rpartition(":")[2],
    )
    second = spawn(*command, env={"CRONLESS_DATABASE_URL": pg_url}, output=tmp_path / "second")
    assert second.wait(60) == 1
    assert (tmp_path / "second").read_text().count("\n") == 1
    assert "Address already in use" in (tmp_path / "second").read_text()
