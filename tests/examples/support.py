"""The Node.js worker in tests: its packages, its processes, and the user of the database that it works as."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.rabbitmq.confirms import Delivery
from cronless_dagster.rabbitmq.messages import JobMessage
from cronless_dagster.rabbitmq.publisher import Publisher
from tests.store.rows import row, sql

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from sqlalchemy import Engine

    from cronless_dagster.rabbitmq.address import Broker
    from tests.processes import Spawner

SOURCE = Path(__file__).parents[2] / "examples" / "node_worker"
HANG_SECONDS = 60
JOB_TYPE = "digest"


def install(directory: Path) -> Path:
    """Install the worker with its packages, once for all workers of a run; returns its directory."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            missing = f"{program} was not found: install Node.js 18 or newer with npm to run these tests"
            pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    target = directory / "node_worker"
    with (directory / "node_worker.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "node_modules" / ".package-lock.json").exists():
            shutil.copytree(SOURCE, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
            done = subprocess.run(
                ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"],
                cwd=target,
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
            assert done.returncode == 0, done.stderr[-2000:]
    return target


def wait_until(true: Callable[[], object], what: str) -> None:
    """Wait until something has come true; a guard against a hang, not a measure."""
    deadline = time.monotonic() + HANG_SECONDS
    while not true():
        assert time.monotonic() < deadline, f"still not so: {what}"
        time.sleep(0.05)


@dataclass
class NodeWorkers:
    """Workers in Node.js of one database and one broker.

    Attributes:
        engine: The database, as its owner.
        broker: The broker, with the prefix that the workers get.
        installed: Where the worker and its packages are.
        logs: A directory for what the workers print.
        user: The user of the database that the workers connect as.
    """

    engine: Engine
    broker: Broker
    installed: Path
    logs: Path
    spawn: Spawner
    user: str
    _started: int = field(default=0)

    @property
    def database_url(self) -> str:
        """Address of the database for the workers' user."""
        return self.engine.url.set(drivername="postgresql", username=self.user).render_as_string()

    def start(self, script: Path | None = None, **environment: str) -> NodeWorker:
        """Start a worker, of a script of the test's own where one is given."""
        self._started += 1
        log = self.logs / f"worker-{self._started}.log"
        process = self.spawn(
            "node",
            str(script or self.installed / "worker.mjs"),
            JOB_TYPE,
            output=log,
            env={
                "CRONLESS_BROKER_URL": self.broker.url,
                "CRONLESS_BROKER_PREFIX": self.broker.prefix,
                "CRONLESS_DATABASE_URL": self.database_url,
                **environment,
            },
        )
        return NodeWorker(process, log)

    def publish(self, *jobs: UUID, token: UUID | None = None, alone: bool = False) -> None:
        """Publish a message for each claimed job, with the token of its claim unless another one is given."""
        messages, published = [], []
        for job in jobs:
            claimed = row(self.engine, job)
            messages.append(
                JobMessage(
                    job_id=job,
                    token=token or claimed.claim_id,
                    job_type=claimed.job_type,
                    tenant_id=claimed.tenant_id,
                    scheduled_for=claimed.serving_at,
                    alone=alone,
                )
            )
        deadline = time.monotonic() + HANG_SECONDS
        while messages:
            assert time.monotonic() < deadline, f"the broker stored none of {published}"
            with Publisher(self.broker) as publisher:
                publisher.declare([JOB_TYPE])
                published = publisher.publish(JOB_TYPE, messages)
            # As the dispatcher does: what isn't confirmed is published again with the same id and token.
            messages = [one.message for one in published if one.delivery is not Delivery.STORED]

    def wait_for_reports(self, *jobs: UUID) -> None:
        """Wait until a worker has reported how each of these ended."""
        wait_until(
            lambda: all(row(self.engine, job).report is not None for job in jobs), f"{jobs} were reported"
        )

    def wait_for_start(self, *jobs: UUID) -> None:
        """Wait until a worker has started each of these."""
        wait_until(lambda: all(row(self.engine, job).status == "RUNNING" for job in jobs), f"{jobs} run")


@dataclass
class NodeWorker:
    """A worker's process and what it prints."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def said(self) -> str:
        """All that it has printed so far."""
        return self.log.read_text(encoding="utf-8")

    def wait_for(self, pattern: str) -> None:
        """Wait until it has printed something that matches, which may span lines."""
        wait_until(lambda: re.search(pattern, self.said, re.DOTALL), f"{pattern!r} in {self.log}")

    def terminate(self) -> int:
        """Ask it to end, and return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=HANG_SECONDS)


def make_user(engine: Engine) -> str:
    """Make a user that may log in and has the worker's role, nothing else."""
    name = f"cronless_test_{uuid.uuid4().hex}"
    sql(engine, f"CREATE ROLE {name} LOGIN IN ROLE cronless_worker")
    return name
