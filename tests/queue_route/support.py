"""The whole queue route in a few words: due jobs, ticks, processes of workers, and the counts afterwards."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pika

from cronless_dagster.engine.tick import tick
from cronless_dagster.rabbitmq import topology
from cronless_dagster.rabbitmq.publisher import Publisher
from tests.engine.support import sql
from tests.queue_route.job_types import CALLS_VARIABLE, LEASE_SECONDS, job_types
from tests.worker.support import until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Engine

    from cronless_dagster.engine.report import TickReport
    from cronless_dagster.rabbitmq.address import Broker
    from tests.processes import Spawner

ROOT = Path(__file__).parents[2]
# Their next occurrence is some twelve hours off: no test sees a second one.
_ADD = (
    "INSERT INTO cronless.scheduled_job (tenant_id, job_type, name, schedule, payload, next_run_at, scheduled_for)"
    " SELECT 't', 'work', gen_random_uuid()::text,"
    " format('0 %s * * *', (extract(hour FROM cronless.clock_now() AT TIME ZONE 'UTC')::int + 12) % 24),"
    " CAST(:payload AS jsonb), cronless.clock_now(), cronless.clock_now()"
    " FROM generate_series(1, :count) RETURNING id"
)
_FORWARD = """\
UPDATE cronless.job_claim SET created_at = created_at - :span, submitted_at = submitted_at - :span,
    handed_over_at = handed_over_at - :span, started_at = started_at - :span;
UPDATE cronless.scheduled_job SET lease_expires_at = lease_expires_at - :span, plan_count = plan_count + 1
    WHERE status = 'RUNNING';
UPDATE cronless.progress SET value = to_jsonb(CAST(value #>> '{}' AS timestamptz) - :span)
    WHERE key LIKE 'queue:%' AND value #>> '{}' IS NOT NULL"""


@dataclass
class Started:
    """A process of a command."""

    process: subprocess.Popen[bytes]
    output: Path

    def stop(self) -> dict[str, Any]:
        """End a worker in order; return its last counts."""
        until(lambda: "{" in self.output.read_text() or self.process.poll() is not None, "it takes signals")
        self.process.terminate()
        assert self.process.wait(timeout=90) == 0, self.output.read_text()
        lines = self.output.read_text().splitlines()
        counts: dict[str, Any] = json.loads([line for line in lines if line.startswith("{")][-1])
        assert counts["unwritten"] == 0, lines
        return counts

    def kill(self) -> None:
        """Kill it as the kernel would."""
        self.process.kill()
        self.process.wait(timeout=30)


@dataclass
class Route:
    """A database, a broker, and whatever was started between them."""

    engine: Engine
    broker: Broker
    spawn: Spawner
    directory: Path
    processes: list[Started] = field(default_factory=list)

    def add(self, count: int, **payload: Any) -> list[UUID]:
        """Add jobs that are due."""
        rows = sql(self.engine, _ADD, count=count, payload=json.dumps(payload))
        return [row.id for row in rows]

    def tick(self, now: datetime | None = None) -> TickReport:
        """Tick in this process."""
        return tick(self.engine, job_types, now=now, queue=partial(Publisher, self.broker))

    def clean_tick(self) -> TickReport:
        """Tick in this process, without an error."""
        report = self.tick()
        assert not report.errors, report.errors
        return report

    def worker(self, *, concurrency: int = 4) -> Started:
        """Start a worker."""
        command = (sys.executable, "-m", "cronless_dagster.cli")
        return self._start(*command, "worker", "work", "--json", "--concurrency", str(concurrency))

    def kill_at(self, point: str, *arguments: str) -> None:
        """Run a command up to a point, and kill it there."""
        file = self.directory / point
        process = self._start(
            sys.executable, "-m", "tests.queue_route.stopping", point, str(file), *arguments
        )
        until(lambda: file.exists() or process.process.poll() is not None, point)
        assert process.process.poll() is None, process.output.read_text()
        process.kill()

    def _start(self, *command: str) -> Started:
        output = self.directory / f"process-{len(self.processes)}"
        settings = {
            "CRONLESS_DATABASE_URL": self.engine.url.render_as_string(hide_password=False),
            "CRONLESS_BROKER_URL": self.broker.url,
            "CRONLESS_BROKER_PREFIX": self.broker.prefix,
            "CRONLESS_HOME": str(self.directory),
            "CRONLESS_JOB_TYPES": "tests.queue_route.job_types",
            CALLS_VARIABLE: str(self.calls_path),
        }
        inherited = {name: "" for name in os.environ if name.startswith("CRONLESS_BROKER_")}
        process = self.spawn(*command, env=inherited | settings, cwd=str(ROOT), output=output)
        self.processes.append(Started(process, output))
        return self.processes[-1]

    @property
    def calls_path(self) -> Path:
        """The file that handlers write to."""
        return self.directory / "calls"

    def calls(self) -> Counter[UUID]:
        """Count the handler's calls by job."""
        if not self.calls_path.exists():
            return Counter()
        return Counter(UUID(line) for line in self.calls_path.read_text().splitlines())

    def forward(self, seconds: float = LEASE_SECONDS + 1) -> None:
        """Let time pass for what was claimed, published, leased and seen so far; what is due stays so."""
        for statement in _FORWARD.split(";"):
            sql(self.engine, statement.replace(":span", "make_interval(secs => :seconds)"), seconds=seconds)

    def channel(self) -> Any:
        """Open a channel, in a `with` block, to do to queues what nobody should."""
        return pika.BlockingConnection(self.broker.parameters()).channel()

    def depth(self) -> int:
        """Return how many messages wait in the queue."""
        return self._queue().messages

    def consumers(self) -> int:
        """Return how many consumers the queue has."""
        return self._queue().consumers

    def _queue(self) -> topology.QueueDepth:
        with pika.BlockingConnection(self.broker.parameters()) as connection:
            return topology.depths(connection, self.broker.prefix, ["work"])["work"]

    def statuses(self) -> dict[str, int]:
        """Count the rows by status."""
        rows = sql(self.engine, "SELECT status, count(*) FROM cronless.scheduled_job GROUP BY status")
        return {row.status: row.count for row in rows}

    def outcomes(self) -> dict[str, int]:
        """Count the history by outcome."""
        rows = sql(self.engine, "SELECT outcome, count(*) FROM cronless.job_execution GROUP BY outcome")
        return {row.outcome: row.count for row in rows}

    def dispatches(self) -> set[int]:
        """Return how often claims were handed over anew."""
        return {row.dispatches for row in sql(self.engine, "SELECT dispatches FROM cronless.job_claim")}

    def tries(self) -> dict[UUID, int]:
        """Return at which try each job succeeded."""
        rows = sql(
            self.engine, "SELECT job_id, attempt FROM cronless.job_execution WHERE outcome = 'success'"
        )
        return {row.job_id: row.attempt for row in rows}

    def wait_until_done(self, count: int) -> None:
        """Wait until so many jobs have succeeded."""
        until(lambda: self.outcomes().get("success", 0) >= count, f"{count} jobs are done")

    def assert_all_done_once(self, ids: Sequence[UUID], *, others: int = 0) -> None:
        """Check that no job was lost and none accepted twice, that all are planned and no counter has moved.

        Args:
            ids: The jobs that succeeded.
            others: How many jobs there are that did not.
        """
        # What a worker's finish leaves open, since somebody else had it locked, is closed by the next tick.
        report = self.clean_tick()
        assert (report.published, report.claimed, self.depth()) == ({}, {}, 0)
        succeeded = sql(self.engine, "SELECT job_id FROM cronless.job_execution WHERE outcome = 'success'")
        assert Counter(row.job_id for row in succeeded) == Counter(ids)
        rows = sql(
            self.engine,
            "SELECT status, attempt, crashes, consecutive_failures, claim_id, execution_id, lease_expires_at,"
            " next_run_at > cronless.clock_now() AS planned, count(*) AS number"
            " FROM cronless.scheduled_job WHERE id = ANY (:ids) GROUP BY 1, 2, 3, 4, 5, 6, 7, 8",
            ids=list(ids),
        )
        assert [tuple(row) for row in rows] == [("PENDING", 0, 0, 0, None, None, None, True, len(ids))]
        assert sql(self.engine, "SELECT count(*) FROM cronless.scheduled_job")[0].count == len(ids) + others
        assert sql(self.engine, "SELECT * FROM cronless.job_claim WHERE state <> 'CLOSED'") == []
        miscounted = "close_reason = 'done' AND done_count + failed_count <> job_count"
        assert sql(self.engine, f"SELECT * FROM cronless.job_claim WHERE {miscounted}") == []


def dropped(*counts: dict[str, Any]) -> int:
    """Return how many messages workers have refused as copies, or as outdated."""
    return sum(one["stale"] + one["doubled"] for one in counts)
