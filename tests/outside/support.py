"""Regions of clients and nodes of the API over one database, whose clock the test moves from minute to minute."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID, uuid4

from cronless_dagster.api.app import ApiLimits, CheckApi
from cronless_dagster.checks.built_in import built_in
from cronless_dagster.checks.declaring import Asked, Check
from cronless_dagster.client.calls import calls_of
from cronless_dagster.client.config import Config, parse_config
from cronless_dagster.engine.running import run_claim
from cronless_dagster.engine.runs import HandOver, RunView
from cronless_dagster.scheduling.schedules import parse_schedule
from cronless_dagster.store.clock import make_virtual
from cronless_dagster.store.database import create_store_engine
from tests.api.support import PATH, Got, access_of, ask
from tests.engine.queues import FakeBroker, work_off
from tests.engine.support import nothing, types_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Engine

    from cronless_dagster.api.calls import Call as Asking
    from cronless_dagster.client.calls import Call
    from cronless_dagster.engine.job_types import JobType, JobTypes

MINUTE = timedelta(minutes=1)
Served = tuple[UUID, datetime]
"""A job, and the instant that was planned."""


def client(checks: str) -> Config:
    """Return the configuration of a client that calls the nodes of both regions; these addresses are never used."""
    return parse_config(
        "[targets]\neu = 'https://eu.example.org'\nus = 'https://us.example.org'\n\n" + checks
    )


def minutes(start: datetime, count: int) -> Iterator[datetime]:
    """Yield so many minutes from one on."""
    return (start + n * MINUTE for n in range(count))


@dataclass
class FakeLauncher:
    """Dagster's web server: a run for each time that it is asked, as the real one makes it."""

    launched: list[HandOver] = field(default_factory=list)
    runs: dict[str, RunView] = field(default_factory=dict)

    def of_claims(self, claim_ids: Sequence[UUID]) -> list[RunView]:
        """Return the runs of these claims."""
        return [run for run in list(self.runs.values()) if run.claim_id in claim_ids]

    def why(self, run_id: str) -> str:
        """Say nothing: no run fails here."""
        raise NotImplementedError(run_id)

    def launch(self, one: HandOver, job_type: JobType) -> str:
        """Make a run, which waits for the test."""
        run_id = str(uuid4())
        self.runs[run_id] = RunView(run_id, one.claim_id, one.dispatch, "waiting")
        self.launched.append(one)
        return run_id

    def waiting(self) -> list[RunView]:
        """Return the runs that nobody has let run yet."""
        return [run for run in self.runs.values() if run.state == "waiting"]

    def ended(self, run: RunView) -> None:
        """Let a run have come to its end."""
        self.runs[run.run_id] = RunView(run.run_id, run.claim_id, run.dispatch, "success")


@dataclass
class World:
    """Two nodes, each with connections of its own, a broker, a Dagster, and whoever does the work between minutes.

    Attributes:
        at: Where the database's clock stands.
        served: In which minutes each planned instant was worked off.
        statuses: How often each status was answered.
    """

    engine: Engine
    nodes: Mapping[str, CheckApi]
    types: JobTypes
    broker: FakeBroker
    launcher: FakeLauncher
    at: datetime
    served: dict[Served, list[datetime]] = field(default_factory=lambda: defaultdict(list))
    statuses: Counter[int] = field(default_factory=Counter)
    _claims_run: list[UUID] = field(default_factory=list)

    @classmethod
    @contextmanager
    def of(
        cls, engine: Engine, at: datetime, types: JobTypes, checks: Mapping[str, Check] | None = None
    ) -> Iterator[Self]:
        """Build it on a database, whose clock is set."""
        make_virtual(engine, at)
        broker, launcher = FakeBroker(), FakeLauncher()
        pools = [create_store_engine(engine.url, pool_size=8) for _ in range(2)]
        served = built_in() if checks is None else checks

        def node(pool: Engine) -> CheckApi:
            def asked(call: Asking) -> Asked:
                return Asked(
                    engine=pool,
                    ids=call.ids,
                    now=call.now,
                    job_types=types,
                    launcher=launcher,
                    queue=broker,
                )

            return CheckApi(access_of(), served, asked, ApiLimits(calls_per_second=1_000_000))

        nodes = dict(zip(("eu", "us"), map(node, pools), strict=True))
        yield cls(engine, nodes, types, broker, launcher, at)
        for one in nodes.values():
            one.asking.close()
        for pool in pools:
            pool.dispose()

    def move_to(self, minute: datetime) -> None:
        """Set the database's clock."""
        self.at = minute
        make_virtual(self.engine, minute)

    async def deliver(self, calls: Iterable[Call]) -> list[Got]:
        """Let all these calls arrive at once; returns the answers, in the calls' order."""
        answers = await asyncio.gather(
            *(ask(self.nodes[call.target], f"/{PATH}/checks/{call.check}", call.query) for call in calls)
        )
        self.statuses.update(one.status for one in answers)
        return answers

    async def minute(self, minute: datetime, *clients: Config) -> list[Got]:
        """Let a minute pass: all these clients call, then what was handed over is worked off."""
        self.move_to(minute)
        answers = await self.deliver(call for one in clients for call in calls_of(one, minute))
        self.work()
        return answers

    def work(self) -> None:
        """Start and finish what lies in the queues, and let the runs run."""
        for name in [name for name, queue in self.broker.queues.items() if queue]:
            scheduled = {message.job_id: message.scheduled_for for message in self.broker.queues[name]}
            for job_id in work_off(self.engine, self.broker, self.at, name):
                self.served[job_id, scheduled[job_id]].append(self.at)
        for run in self.launcher.waiting():
            run_claim(self.engine, self.types, run.claim_id, execution_id=UUID(run.run_id), run_id=run.run_id)
            self.launcher.ended(run)

    def serve(self, job: Any) -> None:
        """Be the handler of the run route."""
        self.served[job.id, job.scheduled_for].append(self.at)


def queue_types(*names: str) -> JobTypes:
    """Declare job types of the queue route."""
    return types_of(nothing, *names, route="queue")


def minute_at_or_after(instant: datetime) -> datetime:
    """Return the first whole minute that isn't before an instant: when the calls come that can serve it."""
    rest = timedelta(seconds=instant.second, microseconds=instant.microsecond)
    return instant - rest + MINUTE if rest else instant


def occurrences(
    job_id: UUID, schedule: str, timezone: str, anchor: datetime, start: datetime, end: datetime
) -> list[datetime]:
    """Return a schedule's own instants from `start` (included) to `end` (not included)."""
    found = []
    for at in parse_schedule(schedule, timezone).instants_after(
        start - timedelta(microseconds=1), job_id=job_id, anchor=anchor
    ):
        if at >= end:
            break
        found.append(at)
    return found
