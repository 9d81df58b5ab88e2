"""`cronless tick`: one tick, a shard's tick, the loop, and what can't be ticked."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from tests.cli.conftest import QUEUED_TYPES
from tests.rabbitmq.support import drain

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sqlalchemy import Engine

    from cronless_dagster.rabbitmq.address import Broker
    from tests.cli.conftest import Ran
    from tests.processes import Spawner


def test_due_jobs_run_here(run: Callable[..., Ran], add: Callable[..., str], virtual_engine: Engine) -> None:
    """Planned by the first tick, claimed and run by the one after its instant, and planned anew."""
    job_id = add(schedule="@hourly")
    first = run("tick", "--now", "2026-03-02T12:00:00Z", "--json").json
    assert (first["tick"]["planned"], first["claims"]) == (1, [])
    second = run("tick", "--now", "2026-03-02T13:00:00Z", "--json").json
    assert second["tick"]["now"] == "2026-03-02T13:00:00Z"
    assert [(one["job_type"], one["recorded"]) for one in second["claims"]] == [("digest", {"success": 1})]
    assert run("show", job_id, "--json").json["job"]["next_run_at"] == "2026-03-02T14:00:00Z"


def test_a_failed_job_is_said_with_what_follows(
    run: Callable[..., Ran], add: Callable[..., str], virtual_engine: Engine
) -> None:
    """A job that fails is the job's affair: the tick itself did well."""
    add(job_type="refresh", schedule="@hourly", name="r")
    run("tick", "--now", "2026-03-02T12:00:00Z")
    ran = run("tick", "--now", "2026-03-02T13:00:00Z")
    assert ran.status == 0
    assert "  refresh: 0 done, 1 failed" in ran.stdout
    assert "acme/refresh/r: RuntimeError: the site is down (retry at 2026-03-02 13:01" in ran.stdout


def test_only_ids_with_the_prefix(run: Callable[..., Ran], engine: Engine) -> None:
    """A shard's tick takes its own and leaves its neighbours' jobs."""
    with engine.begin() as connection:
        for digit in ("a", "b"):
            connection.execute(
                text(
                    "INSERT INTO cronless.scheduled_job (id, tenant_id, job_type, name, schedule, next_run_at)"
                    " VALUES (CAST(:id AS uuid), 't', 'digest', :digit, '@daily', now())"
                ),
                {"id": digit * 32, "digit": digit},
            )
    for prefix, expected in (("b", 1), ("b", 0), ("A" * 32, 1)):
        ticked = run("tick", "--prefix", prefix, "--json").json
        assert sum(one["jobs"] for one in ticked["claims"]) == expected


def test_a_step_that_fails_is_a_failing_system(
    run: Callable[..., Ran], add: Callable[..., str], engine: Engine
) -> None:
    """The other steps went on, their report is printed, and the exit status is 1."""
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE cronless.job_execution CASCADE"))
        connection.execute(text("DROP FUNCTION cronless.ensure_history_partition"))
    # In a process of its own, since what is logged goes elsewhere in this one.
    command = [sys.executable, "-m", "cronless_dagster.cli", "tick"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 1
    assert "error: history: " in ran.stdout
    assert ran.stderr == ""


class TestQueueRoute:
    """What `cronless worker` is there for is published, where a broker is named."""

    def test_jobs_are_published_for_the_workers(
        self, run: Callable[..., Ran], queued: Broker, add: Callable[..., str]
    ) -> None:
        """The others run here, and the line says what was published."""
        for_worker = add("--next-run-at", "2026-01-01T00:00Z", job_type="mail")
        add("--next-run-at", "2026-01-01T00:00Z")
        told = run("tick", "--json").json
        assert told["tick"]["published"] == {"mail": 1}
        assert [one["job_type"] for one in told["claims"]] == ["digest"]
        assert {str(job): number for job, number in drain(queued, "mail").items()} == {for_worker: 1}
        add("--next-run-at", "2026-01-01T00:00Z", job_type="mail", name="second")
        assert "published 1 message; mail queue: 0 waiting, 0 consumers" in run("tick").stdout

    def test_without_a_broker_they_run_here(self, run: Callable[..., Ran], add: Callable[..., str]) -> None:
        """A laptop needs none."""
        add("--next-run-at", "2026-01-01T00:00Z", "--undeclared", job_type="mail")
        [claim] = run("tick", "--job-types", QUEUED_TYPES, "--json").json["claims"]
        assert (claim["job_type"], claim["recorded"]) == ("mail", {"success": 1})

    def test_a_broker_that_is_away_is_a_failing_system(
        self,
        run: Callable[..., Ran],
        queued: Broker,
        add: Callable[..., str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """It is said in one line without its password; the others' jobs have run, and this one waits."""
        monkeypatch.setenv("CRONLESS_BROKER_URL", "amqp://app:honey@127.0.0.1:1/%2F")
        waiting = add("--next-run-at", "2026-01-01T00:00Z", job_type="mail")
        add("--next-run-at", "2026-01-01T00:00Z")
        # In a process of its own, since what is logged goes elsewhere in this one.
        command = [sys.executable, "-m", "cronless_dagster.cli", "tick"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert ran.returncode == 1
        assert "error: broker: RabbitMQ at amqp://127.0.0.1:1/%2F can't be used at the moment" in ran.stdout
        assert "  digest: 1 done" in ran.stdout
        assert ran.stderr == ""
        assert "honey" not in ran.stdout
        assert run("show", waiting, "--json").json["job"]["status"] == "PENDING"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--now", "2026-12-01T09:00Z"), "runs on real time"),
        (("--now", "2026-12-01T09:00"), "has no offset"),
        (("--now", "2026-12-01T09:00Z", "--loop"), "exclude each other"),
        (("--now", "now"), "can't be read"),
        (("--every", "5"), "needs --loop"),
        (("--prefix", "g"), "hexadecimal"),
        (("--prefix", ""), "hexadecimal"),
        (("--prefix", "b" * 33), "hexadecimal"),
        (("--job-types", "no.such.module"), "can't be imported"),
        (("--job-types", "tests.cli.broken"), "can't be imported (RuntimeError: no such configuration)"),
        (("--job-types", "json"), "is no JobTypes"),
        (("--job-types", "../x"), "--job-types holds '../x'"),
        (("--job-types", "tests.cli.declared,tests.cli.declared"), "declared twice"),
    ],
)
def test_refusals(run: Callable[..., Ran], engine: Engine, arguments: tuple[str, ...], said: str) -> None:
    """What can't be ticked is refused before anything is claimed."""
    assert said in run("tick", *arguments).refused()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM cronless.progress")).scalar() == 0


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_the_loop_ticks_until_it_is_told_to_end(
    run: Callable[..., Ran], add: Callable[..., str], spawn: Spawner, tmp_path: Path, end: signal.Signals
) -> None:
    """Ctrl-C and SIGTERM end it between two ticks with status 0 and without a traceback."""
    add("--next-run-at", "2026-01-01T00:00Z")
    out = tmp_path / "out"
    loop = spawn(
        sys.executable, "-m", "cronless_dagster.cli", "tick", "--loop", "--every", "1", "--json", output=out
    )
    _wait_for(loop, lambda: out.exists() and out.read_text().count("\n") >= 2)
    loop.send_signal(end)
    assert loop.wait(timeout=60) == 0
    lines = out.read_text().splitlines()
    assert lines[-1] == "stopped"
    ticks = [json.loads(line) for line in lines[:-1]]
    assert sum(one["recorded"].get("success", 0) for tick in ticks for one in tick["claims"]) == 1


def test_the_loop_outlives_a_database_that_is_away(
    run: Callable[..., Ran], engine: Engine, spawn: Spawner, tmp_path: Path
) -> None:
    """A tick that can't be made says why; the next one is made all the same."""
    out = tmp_path / "out"
    loop = spawn(
        sys.executable, "-m", "cronless_dagster.cli", "tick", "--loop", "--every", "1", "--json", output=out
    )
    _wait_for(loop, lambda: '"tick"' in (out.read_text() if out.exists() else ""))
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE cronless.progress RENAME TO gone"))
    _wait_for(loop, lambda: '"error": "' in out.read_text())
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE cronless.gone RENAME TO progress"))
    before = out.read_text().count('"tick"')
    _wait_for(loop, lambda: out.read_text().count('"tick"') > before)
    loop.send_signal(signal.SIGINT)
    assert loop.wait(timeout=60) == 0
    assert "Traceback" not in out.read_text()


def _wait_for(loop: subprocess.Popen[bytes], happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120  # a guard against a hang, on a machine that may be busy
    while not happened():
        assert time.monotonic() < deadline
        assert loop.poll() is None
        time.sleep(0.1)
