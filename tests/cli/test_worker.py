"""`cronless worker`: what it refuses, what it says, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.engine.support import sql
from tests.worker.support import Site, until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from sqlalchemy import Engine

    from cronless_dagster.rabbitmq.address import Broker
    from tests.cli.conftest import Ran
    from tests.processes import Spawner

COMMAND = (sys.executable, "-m", "cronless_dagster.cli", "worker")
LARGEST_BYTES = 150_000_000


@pytest.fixture
def site(run: Callable[..., Ran], engine: Engine, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The database of the command line's tests, with a broker named beside it."""
    monkeypatch.setenv("CRONLESS_JOB_TYPES", "tests.cli.declared_queue")
    monkeypatch.setenv("CRONLESS_BROKER_URL", broker.url)
    monkeypatch.setenv("CRONLESS_BROKER_PREFIX", broker.prefix)
    return Site(engine, broker)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing",), "job type 'nothing' is not declared here"),
        (("report",), "job type 'report' takes the run route"),
        (("work", "--concurrency", "0"), "0 is not in the range"),
        (("work", "--drain", "-1"), "-1.0 is not in the range"),
        (("work", "--handlers", "no.such.module"), "can't be imported"),
        (("work", "--handlers", "../x"), "--handlers holds '../x'"),
        (("--handlers", "tests.cli.declared"), "none of the 2 job types declared here takes the queue route"),
    ],
)
def test_refusals(run: Callable[..., Ran], site: Site, arguments: tuple[str, ...], said: str) -> None:
    """What can't be served is refused in a sentence before anything is connected to."""
    assert said in run("worker", *arguments).refused()


def test_no_broker_is_named(run: Callable[..., Ran], site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an address the sentence names the variable."""
    monkeypatch.delenv("CRONLESS_BROKER_URL")
    assert "set CRONLESS_BROKER_URL" in run("worker", "work").refused()


def test_a_wrong_password_ends_it(site: Site, spawn: Spawner, tmp_path: Path) -> None:
    """What waiting doesn't mend is one sentence with the address and without the password, and status 1."""
    out = tmp_path / "out"
    wrong = site.broker.url.replace("guest:guest@", "guest:secret@")
    process = spawn(*COMMAND, "work", env={"CRONLESS_BROKER_URL": wrong}, output=out)
    assert process.wait(timeout=90) == 1
    last = out.read_text().splitlines()[-1]
    assert last.startswith("Error: ")
    assert "password" in last
    assert "secret" not in out.read_text()
    assert "Traceback" not in out.read_text()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_what_runs_end(site: Site, spawn: Spawner, tmp_path: Path, end: signal.Signals) -> None:
    """What ran is recorded, what didn't is back in its queue, the status is 0 and the last line has the sums."""
    out, begun, go = tmp_path / "out", tmp_path / "begun", tmp_path / "go"
    process = _started(spawn, out, "work", "--concurrency", "1", "--json")
    messages = site.claimed(4)
    _tell(site, {"wait_for": str(go), "begun": str(begun)})
    site.publish(messages)
    until(begun.exists, "running")
    process.send_signal(end)
    until(lambda: site.depth() == 3, "the others are back")
    assert process.poll() is None
    go.touch()
    assert process.wait(timeout=60) == 0
    last = json.loads(out.read_text().splitlines()[-1])
    assert (last["done"], last["failed"], last["in_flight"], last["held"]) == (1, 0, 0, 0)
    assert last["types"]["work"]["done"] == 1
    assert site.statuses() == {"PENDING": 1, "QUEUED": 3}


def test_beyond_its_limit_it_goes_and_says_what_still_ran(site: Site, spawn: Spawner, tmp_path: Path) -> None:
    """A handler that doesn't end is named by its job's id, which is due again; the status is 0."""
    out, begun = tmp_path / "out", tmp_path / "begun"
    process = _started(spawn, out, "work", "--drain", "0.1")
    messages = site.claimed(1)
    _tell(site, {"wait_for": str(tmp_path / "never"), "begun": str(begun)})
    site.publish(messages)
    until(begun.exists, "running")
    process.terminate()
    assert process.wait(timeout=60) == 0
    assert f"job.given_back job={messages[0].job_id}" in out.read_text()
    assert site.statuses() == {"PENDING": 1}


def test_a_second_signal_ends_it_at_once(site: Site, spawn: Spawner, tmp_path: Path) -> None:
    """Whoever asks twice doesn't wait for handlers."""
    out, begun = tmp_path / "out", tmp_path / "begun"
    process = _started(spawn, out, "work", "--drain", "3600")
    messages = site.claimed(1)
    _tell(site, {"wait_for": str(tmp_path / "never"), "begun": str(begun)})
    site.publish(messages)
    until(begun.exists, "running")
    process.terminate()
    until(lambda: "ending" in out.read_text(), "it says that it ends")
    process.terminate()
    assert process.wait(timeout=60) == 128 + signal.SIGTERM


def test_lines_for_people(site: Site, spawn: Spawner, tmp_path: Path) -> None:
    """Without a type it serves all of the queue route; failures are logged, the sums are in the last line."""
    out = tmp_path / "out"
    process = _started(spawn, out)
    good, bad = site.claimed(5, "play"), site.claimed(1, "work")
    _tell(site, {"fails": True})
    site.publish(good)
    site.publish([*bad, *bad])
    until(lambda: site.statuses() == {"PENDING": 6}, "all ended")
    process.terminate()
    assert process.wait(timeout=60) == 0
    lines = out.read_text().splitlines()
    assert any(str(bad[0].job_id) in line and "the site is down" in line for line in lines), lines
    assert "5 done, 1 failed, 0 in flight" in lines[-1]
    assert "play 5/0" in lines[-1]
    assert "fails" not in out.read_text()
    assert "Traceback" not in out.read_text()


def test_a_table_on_a_terminal(site: Site, spawn: Spawner) -> None:
    """On a terminal there is a table by type, which is redrawn, and the cursor comes back at the end."""
    mine, theirs = pty.openpty()
    site.due(3, "play")
    process = spawn(
        *COMMAND, stdin=theirs, stdout=theirs, stderr=theirs, env={"TERM": "xterm", "COLUMNS": "100"}
    )
    os.close(theirs)
    shown = b""

    def read_until(wanted: bytes) -> None:
        nonlocal shown
        deadline = time.monotonic() + 90
        while wanted not in shown:
            assert time.monotonic() < deadline, shown
            try:
                shown += os.read(mine, 65_536)
            except OSError:
                # Linux says EIO once nobody has the other end.
                assert wanted in shown, shown
                return

    read_until(b"connected")
    until(lambda: site.statuses() == {"PENDING": 3}, "done")
    process.terminate()
    read_until(b"\x1b[?25h")
    assert process.wait(timeout=60) == 0
    os.close(mine)
    assert b"in flight" in shown
    assert b"play" in shown


def test_it_is_small(site: Site, spawn: Spawner, tmp_path: Path) -> None:
    """After two thousand jobs a worker holds less than its limit, having imported neither Dagster nor pandas."""
    out = tmp_path / "out"
    process = _started(spawn, out, "play", "--json")
    site.due(2_000, "play")
    until(lambda: site.statuses() == {"PENDING": 2_000}, "all done")
    seen = psutil.Process(process.pid)
    assert seen.memory_info().rss < LARGEST_BYTES
    loaded = {os.path.realpath(one.path) for one in seen.memory_maps()}
    assert not [path for path in loaded if "/pandas/" in path or "/numpy/" in path or "/grpc/" in path]
    process.terminate()
    assert process.wait(timeout=60) == 0


def _started(spawn: Spawner, out: Path, *arguments: str) -> subprocess.Popen[bytes]:
    process = spawn(*COMMAND, *arguments, output=out)

    def connected() -> bool:
        assert process.poll() is None, out.read_text()
        return "connected" in out.read_text()

    until(connected, "connected")
    return process


def _tell(site: Site, payload: dict[str, Any]) -> None:
    sql(
        site.engine,
        "UPDATE cronless.scheduled_job SET payload = CAST(:payload AS jsonb) WHERE job_type = 'work'",
        payload=json.dumps(payload),
    )
