"""The demo's processes: started again, refused, and ended as one."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.demo import processes as module
from cronless_dagster.demo.load import DemoError
from cronless_dagster.demo.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SLEEP = "import time; print('up', flush=True); time.sleep(600)"


def until(true: Callable[[], object]) -> None:
    """Wait until something is true; the limit is a guard against a hang."""
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ups(logs: Path, name: str) -> int:
    """Count how often a process has come up."""
    path = logs / f"{name}.log"
    return path.read_text().count("up\n") if path.exists() else 0


def guard(processes: Processes, name: str) -> int:
    """Return the process id of a process's guard, which is its group's too."""
    return processes._started[name].process.pid


def test_what_may_be_started_again_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said once, it appends to the same log, and its neighbour goes on; another one's end ends the demo."""
    monkeypatch.setattr(module, "_SOON_SECONDS", 0.0)
    with Processes(tmp_path, {}) as processes:
        processes.start("one", "python", "-c", SLEEP, restart=True)
        processes.start("two", "python", "-c", SLEEP)
        until(lambda: ups(tmp_path, "one") == ups(tmp_path, "two") == 1)
        assert list(processes.news()) == []
        neighbour = guard(processes, "two")
        os.killpg(guard(processes, "one"), signal.SIGKILL)
        news: list[str] = []
        until(lambda: news.extend(processes.news()) or news)
        assert news == ["one had ended and was started again"]
        until(lambda: ups(tmp_path, "one") == 2)
        assert guard(processes, "two") == neighbour
        assert list(processes.news()) == []
        os.killpg(neighbour, signal.SIGKILL)
        with pytest.raises(DemoError, match="two ended with status -9: up"):
            until(lambda: list(processes.news()))


@pytest.mark.parametrize("restart", [False, True])
def test_one_that_ends_at_once_is_no_use(tmp_path: Path, restart: bool) -> None:
    """The message has its status, its last words and where there are more; starting it again would only repeat it."""
    with Processes(tmp_path, {}) as processes:
        processes.start(
            "one", "python", "-c", "import sys; print('no\\n'); sys.exit('no such file')", restart=restart
        )
        with pytest.raises(DemoError, match=r"one ended with status 1: no such file \(more in .*one\.log\)"):
            until(lambda: list(processes.news()))


def test_waiting_ends_with_a_process_that_ends(tmp_path: Path) -> None:
    """Nobody waits two minutes for an address that can't answer any more."""
    with Processes(tmp_path, {}) as processes:
        processes.start("one", "python", "-c", "")
        with pytest.raises(DemoError, match="one ended with status 0: it said nothing"):
            processes.wait_for("one", lambda: False)
        processes.wait_for("nothing", lambda: True)


def test_leaving_ends_all_and_what_they_started(tmp_path: Path) -> None:
    """One that ignores SIGTERM and one that has a child are gone too; the environment reached them."""
    stubborn = "import os, signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    stubborn += (
        f"subprocess.Popen([sys.executable, '-c', {SLEEP!r}]); print(os.environ['NAME'], flush=True); {SLEEP}"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_TERM_SECONDS", 0.5)
        with Processes(tmp_path, {"NAME": "given"}) as processes:
            processes.start("one", "python", "-c", stubborn)
            processes.start("two", "python", "-c", SLEEP)
            until(lambda: ups(tmp_path, "one") == 2 and ups(tmp_path, "two") == 1)
            groups = [guard(processes, name) for name in ("one", "two")]
    assert "given" in (tmp_path / "one.log").read_text()
    for group in groups:
        until(lambda group=group: not _exists(group))


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
