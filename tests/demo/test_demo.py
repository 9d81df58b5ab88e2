"""The demo as a person starts it: whole, ended by Ctrl-C, and killed."""

from __future__ import annotations

import mailbox
import os
import signal
import sys
import time
from pathlib import Path

import psycopg
import pytest

from cronless_dagster.rabbitmq import private
from cronless_dagster.rabbitmq.errors import BrokerMissing
from cronless_dagster.store.embedded import EmbeddedPostgres

pytestmark = [pytest.mark.dagster, pytest.mark.slow, pytest.mark.xdist_group("dagster")]
SCHEDULES = """\
tenant,job_type,name,expr,timezone,system,source_repo,source_path
made-up,account_research,acme,0 3 * * *,,x,x,x
made-up,webhook_renewal,hook,0 3 * * *,,x,x,x
"""
"""Both run at once: an account's first refresh is now, and so is a webhook's first request."""
CRONLESS = str(Path(sys.executable).parent / "cronless")
WAIT_SECONDS = 240


def start(spawn, home: Path, output: Path, *arguments: str):
    """Start a demo of its own on any free port, which heeds no broker but its own, and no mail server."""
    environment = {
        "CRONLESS_HOME": str(home),
        "CRONLESS_DATABASE_URL": "",
        "CRONLESS_JOB_TYPES": "",
        "CRONLESS_BROKER_URL": "amqp://127.0.0.1:1/%2F",
        "CRONLESS_SMTP_URL": "smtp://127.0.0.1:1",
    }
    return spawn(CRONLESS, "demo", "--port", "0", *arguments, env=environment, output=output)


def wait_for(words: str, output: Path, process) -> None:
    """Wait until the demo has said something; fail with all it said if it ends or takes too long."""
    deadline = time.monotonic() + WAIT_SECONDS
    while words not in output.read_text():
        assert process.poll() is None, output.read_text()
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.5)


def wait_until_alone(spawn) -> None:
    """Wait until nothing is left of what the demo started."""
    deadline = time.monotonic() + 60
    while alive := spawn.alive():
        assert time.monotonic() < deadline, [process.cmdline() for process in alive]
        time.sleep(0.5)


@pytest.fixture
def rabbitmq_is_installed() -> None:
    """Skip where a demo can't have a broker; in continuous integration that is a failure."""
    try:
        private.programs()
    except BrokerMissing as missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(missing))


def kill_worker(spawn) -> None:
    """Kill one of the demo's workers, and leave its guard alone."""
    for process in spawn.alive():
        command = process.cmdline()
        if "worker" in command and not any("guarded" in part for part in command):
            process.kill()
            return
    pytest.fail("there is no worker")


def tenants_seen(home: Path) -> set[str]:
    """Return the partitions of `account_research` that were materialized; make all digests due meanwhile."""
    from dagster import AssetKey, DagsterInstance

    with EmbeddedPostgres(home / "postgres") as server, pytest.MonkeyPatch.context() as patch:
        url = server.url("cronless")
        patch.setenv("DAGSTER_POSTGRES_URL", url)
        with psycopg.connect(url) as connection:
            connection.execute(
                "UPDATE cronless.scheduled_job SET next_run_at = now() WHERE job_type = 'email_digest'"
            )
        with DagsterInstance.from_config(str(home / "dagster")) as instance:
            return instance.get_materialized_partitions(AssetKey("account_research"))


@pytest.mark.crash
def test_a_demo_runs_jobs_ends_by_itself_and_goes_on_with_its_data(spawn, tmp_path, server_directory):
    """It exits with 0, a table and what came of it; a second one has the same jobs, mails a digest and ends by Ctrl-C.

    A third is killed. Each time no process is left behind, whether it could clean up or not.
    """
    schedules = tmp_path / "schedules.csv"
    schedules.write_text(f"{SCHEDULES}made-up,email_digest,yearly,0 9 1 1 *,Asia/Tokyo,x,x,x\n")
    home = server_directory
    first = tmp_path / "first.log"
    process = start(spawn, home, first, "--exit-after-runs", "2", "--schedules", str(schedules))
    assert process.wait(timeout=WAIT_SECONDS) == 0, first.read_text()
    said = first.read_text()
    assert "3 real schedules loaded" in said
    assert "1 account_research: 1 done, 0 failed" in said
    assert "1 webhook_renewal: 1 done, 0 failed" in said
    assert "this demo" in said
    assert "of 1 accounts, whose 1 tenants" in said
    assert "digests: no mails yet" in said
    assert "webhooks: 1 of 1 are active" in said
    # Dagster takes what lies in DAGSTER_HOME/logs for its own, and uploads it.
    logs = {path.stem for path in (home / "logs").iterdir()}
    assert logs == {"callbacks", "code-server", "dagster-daemon", "dagster-webserver", "web"}
    wait_until_alone(spawn)
    assert tenants_seen(home) == {"made-up"}

    second = tmp_path / "second.log"
    process = start(spawn, home, second)
    wait_for("1 email_digest: 1 done, 0 failed", second, process)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(timeout=90) == 0, second.read_text()
    assert "going on with 3 jobs" in second.read_text()
    assert "digests: 1 made-up mails" in second.read_text()
    assert "Traceback" not in second.read_text()
    [mail] = mailbox.Maildir(home / "maildir")
    assert mail["From"] == "Made-up digests <digests@example.com>"
    wait_until_alone(spawn)

    third = tmp_path / "third.log"
    process = start(spawn, home, third)
    wait_for("Dagster's UI", third, process)
    process.kill()
    process.wait(timeout=10)
    wait_until_alone(spawn)


@pytest.mark.crash
@pytest.mark.rabbitmq
def test_a_demo_with_a_broker_runs_jobs_by_its_workers(
    spawn, tmp_path, server_directory, rabbitmq_is_installed
):
    """One type's jobs go through the queue and the other's through a run; a killed worker is started again.

    A second one is killed itself. Each time no process is left behind, the broker's included.
    """
    schedules = tmp_path / "schedules.csv"
    schedules.write_text(SCHEDULES)
    home = server_directory
    first = tmp_path / "first.log"
    process = start(spawn, home, first, "--broker", "--exit-after-runs", "1", "--schedules", str(schedules))
    wait_for("; workers: 3", first, process)
    kill_worker(spawn)
    assert process.wait(timeout=WAIT_SECONDS) == 0, first.read_text()
    said = first.read_text()
    assert "had ended and was started again" in said
    assert "claimed     1 account_research" in said
    assert "queued      1 webhook_renewal" in said
    assert "1 webhook_renewal: 1 done, 0 failed  by the workers" in said
    assert "webhooks: 1 of 1 are active" in said
    assert "guest" not in said
    wait_until_alone(spawn)

    second = tmp_path / "second.log"
    process = start(spawn, home, second, "--broker")
    wait_for("starting Dagster", second, process)
    process.kill()
    process.wait(timeout=10)
    wait_until_alone(spawn)
