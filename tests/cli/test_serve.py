"""`cronless serve`: a real process, called over HTTP and ended by a signal."""

from __future__ import annotations

import signal
import socket
import threading
import time
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.cli.serving import ACCESS, HEADERS, KEY, PATH, SLOW, TOKEN, started
from tests.engine.support import add, row

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sqlalchemy import Engine

    from tests.cli.conftest import Ran
    from tests.processes import Spawner


def until(condition: Callable[[], bool]) -> None:
    """Wait for something to come true; only a hang fails."""
    hang_guard = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < hang_guard
        time.sleep(0.02)


def test_it_serves_at_two_addresses(spawn: Spawner, tmp_path: Path, pg_url: str, engine: Engine) -> None:
    """Checks at one, health and metrics at the other; and its log holds no secret."""
    job = add(engine, job_type="digest")
    assert row(engine, job).next_run_at is None
    node = started(spawn, tmp_path, pg_url, "--linger", "0")
    answer = node.call(query="range=0-f")
    assert (answer.status_code, answer.json()["check"]) == (200, "dispatch")
    assert row(engine, job).next_run_at is not None  # planned, by a tick
    assert node.call(headers={"X-Cronless-Key": "wrong"}).status_code == 404
    refused = node.call(SLOW, "prefix=b&now=2026-03-02T12:00Z")
    assert (refused.status_code, "real time" in refused.json()["error"]) == (400, True)
    assert not (tmp_path / "began-b").exists()
    assert httpx.get(f"{node.public}/{PATH}/openapi.json", headers=HEADERS).json()["openapi"] == "3.1.0"
    for path in ("healthz", "readyz", "metrics"):
        assert httpx.get(f"{node.private}/{path}").status_code == 200
        assert httpx.get(f"{node.public}/{path}").status_code == 404
    metrics = httpx.get(f"{node.private}/metrics").text
    assert 'cronless_check_calls_total{check="dispatch"' in metrics
    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(60) == 0
    assert "check.answered caller=eu check=dispatch" in node.log
    assert "Traceback" not in node.log
    for secret in (PATH, TOKEN, KEY):
        assert secret not in node.log + metrics


def test_it_ends_in_order(spawn: Spawner, tmp_path: Path, pg_url: str) -> None:
    """First it isn't ready, but answers; then what runs ends, while nothing new is taken; then it exits well."""
    node = started(spawn, tmp_path, pg_url, "--json", "--linger", "60", "--drain", "60")
    answers: list[int] = []
    running = threading.Thread(target=lambda: answers.append(node.call(SLOW).status_code))
    running.start()
    until((tmp_path / "began-b").exists)
    node.process.send_signal(signal.SIGTERM)
    until(lambda: httpx.get(f"{node.private}/readyz").status_code == 503)
    assert httpx.get(f"{node.private}/readyz").json()["reasons"] == ["the node is draining"]
    assert node.call().status_code == 200
    # A second signal ends the time in which it only isn't ready.
    node.process.send_signal(signal.SIGTERM)
    until(lambda: not _listens(node.public))
    assert httpx.get(f"{node.private}/healthz").status_code == 200
    (tmp_path / "end").touch()
    running.join(60)
    assert node.process.wait(60) == 0
    assert answers == [200]
    names = [one["event"] for one in node.events if "event" in one]
    assert names[0] == "serve.started"
    assert names[-1] == "serve.drained"
    assert "serve.draining" in names


def test_what_does_not_end_is_cut_off(spawn: Spawner, tmp_path: Path, pg_url: str) -> None:
    """Its caller is told to come again, and the exit status says so."""
    node = started(spawn, tmp_path, pg_url, "--linger", "0", "--drain", "0.2")
    answers: list[int] = []
    running = threading.Thread(target=lambda: answers.append(node.call(SLOW).status_code))
    running.start()
    until((tmp_path / "began-b").exists)
    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(60) == 1
    running.join(60)
    assert answers == [503]
    assert "serve.drained cut_off=1" in node.log
    assert "Traceback" not in node.log


def test_a_proxy_that_is_named_is_believed(spawn: Spawner, tmp_path: Path, pg_url: str) -> None:
    """A caller's networks are then those that it tells of."""
    access = ACCESS + 'networks = ["192.0.2.0/24"]\n'
    node = started(spawn, tmp_path, pg_url, "--proxy", "127.0.0.0/8", "--linger", "0", access=access)
    assert node.call(headers={"X-Forwarded-For": "192.0.2.7"}).status_code == 200
    assert node.call(headers={"X-Forwarded-For": "192.0.3.7"}).status_code == 404
    assert node.call(headers={"X-Forwarded-For": "192.0.2.7, 192.0.3.7"}).status_code == 404
    assert node.call().status_code == 404


def test_a_proxy_that_is_not_named_is_not_believed(spawn: Spawner, tmp_path: Path, pg_url: str) -> None:
    """However near it is."""
    access = ACCESS + 'networks = ["192.0.2.0/24"]\n'
    node = started(spawn, tmp_path, pg_url, "--linger", "0", access=access)
    assert node.call(headers={"X-Forwarded-For": "192.0.2.7"}).status_code == 404


class TestRefusals:
    @pytest.fixture
    def access(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """An access file that the settings name."""
        file = tmp_path / "access.toml"
        file.write_text(ACCESS)
        monkeypatch.setenv("CRONLESS_API_ACCESS_FILE", str(file))
        return file

    def test_without_an_access_file(self, run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
        """It says how to make one, whether none is named or it isn't there."""
        assert "`cronless api caller NAME`" in run("serve").refused()
        monkeypatch.setenv("CRONLESS_API_ACCESS_FILE", "/nowhere/access.toml")
        assert "`cronless api caller NAME`" in run("serve").refused()

    def test_with_one_that_cant_be_used(self, run: Callable[..., Ran], access: Path) -> None:
        """It says why."""
        access.write_text(ACCESS.replace('"*"', '"dispach"'))
        assert "did you mean 'dispatch'" in run("serve").refused()

    def test_with_options_that_cant_be_used(self, run: Callable[..., Ran], access: Path) -> None:
        """One sentence each."""
        usual = ("serve", "--bind", "127.0.0.1:0", "--private-bind", "127.0.0.1:0")
        for option, value in (
            ("--bind", "nonsense"),
            ("--private-bind", "127.0.0.1"),
            ("--proxy", "proxy.example.org"),
            ("--threads", "0"),
        ):
            assert option in run(*usual, option, value).refused()

    def test_where_the_address_is_taken(self, run: Callable[..., Ran], access: Path) -> None:
        """It says which option gives another."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            bind = f"127.0.0.1:{taken.getsockname()[1]}"
            assert "--bind" in run("serve", "--bind", bind).refused(1)


def _listens(address: str) -> bool:
    host, _, port = address.removeprefix("http://").partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=60).close()
    except ConnectionRefusedError:
        return False
    return True
