"""The loop of a worker: from messages to handlers, and on the way out what is owed to everybody else."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy.exc import SQLAlchemyError

from cronless_dagster.engine.errors import JobTypeError
from cronless_dagster.engine.handlers import HandlerContext, Tried, trier
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import (
    engine_for_threads,
    patiently,
    transaction,
)
from cronless_dagster.store.errors import DatabaseUnavailable
from cronless_dagster.store.executions import give_back
from cronless_dagster.telemetry.events import event
from cronless_dagster.telemetry.tracing import span
from cronless_dagster.worker.completing import Completer
from cronless_dagster.worker.counts import Counts, Tally, TypeCounts
from cronless_dagster.worker.intake import MOST_STARTED_AT_ONCE, Intake
from cronless_dagster.worker.leases import Leases
from cronless_dagster.worker.outage import Outage
from cronless_dagster.worker.started import StartedJobs
from cronless_dagster.worker.starting import Batch, Unstarted, start_batch
from cronless_dagster.worker.threads import HandlerThreads

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from sqlalchemy import Engine

    from cronless_dagster.engine.job_types import JobType, JobTypes
    from cronless_dagster.rabbitmq.consumer import Consumer
    from cronless_dagster.store.rows import ClaimedJob

logger = logging.getLogger(__name__)

IDLE_SECONDS = 0.1
MOST_AHEAD = 1_000
MOST_UNWRITTEN = 5_000
AHEAD_SECONDS = 15.0
# A worker that ends: how long the broker, and the results of what ended just in time, may take beyond the limit.
_BROKER_SECONDS = 5.0
_RESULT_SECONDS = 10.0


class _Work(NamedTuple):
    job: ClaimedJob
    call: Callable[[ClaimedJob], Tried]
    since: float


class Worker:
    """Runs the jobs of some job types until it is told to stop; built for one call of `run`."""

    def __init__(
        self,
        engine: Engine,
        job_types: JobTypes,
        names: Sequence[str],
        consumer: Consumer,
        *,
        concurrency: int = 8,
        drain_seconds: float = 30.0,
        now: datetime | None = None,
    ) -> None:
        """Prepare.

        Args:
            engine: The store's engine.
            job_types: Where the handlers are declared.
            names: The job types to serve, those of the consumer.
            consumer: Not started yet.
            concurrency: How many handlers are called at once, those of all types together.
            drain_seconds: How long handlers that run when the worker is told to stop may take to end.
            now: An instant in place of the clock; only where the clock is virtual.

        Raises:
            UnknownJobType: A type isn't declared.
            JobTypeError: A type isn't on the queue route, or none is named.
        """
        self._types = _on_the_queue_route(job_types, names)
        self._engine, self._consumer, self._now = engine, consumer, now
        self._drain_seconds = drain_seconds
        self._handlers_engine = engine
        self._tally, self._started = Tally(), StartedJobs()
        self._intake = Intake(consumer, self._tally)
        self._threads: HandlerThreads[_Work] = HandlerThreads(concurrency, self._call)
        self._completer = Completer(engine, self._started, self._tally, now)
        self._leases = Leases(engine, self._types, self._started, now)
        self._alone = False
        self._outage = Outage()

    @property
    def counts(self) -> Counts:
        """What was done so far, from any thread."""
        numbers, done, failed = self._tally.read()
        in_flight, consumed = self._started.by_type(), self._consumer.counts
        return Counts(
            types={name: TypeCounts(done[name], failed[name], in_flight[name]) for name in self._types},
            stale=numbers["stale"],
            doubled=numbers["doubled"],
            discarded=numbers["discarded"],
            lost=numbers["lost"],
            poisoned=consumed.poisoned,
            returned=numbers["returned"],
            given_back=numbers["given_back"],
            unwritten=numbers["unwritten"],
            held=self._consumer.held,
            reconnects=consumed.reconnects,
            connected=self._consumer.connected,
            database=not self._outage.lasts,
            paused=self._intake.paused,
        )

    def run(self, stopping: threading.Event) -> list[ClaimedJob]:
        """Serve until `stopping` is set; then end in order, within the drain's limit and some seconds.

        Returns:
            The jobs whose handlers still ran at the end. They were given back, and are due again.

        Raises:
            BrokerError: The broker will never let us in, or has other queues of our names. What ran was ended first.
        """
        with engine_for_threads(self._engine, self._threads.size) as self._handlers_engine:
            for part in (self._threads, self._completer, self._leases, self._consumer):
                part.start()
            try:
                self._serve(stopping)
            finally:
                left = self._drain()
        return left

    def _serve(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            self._raise_if_broken()
            self._intake.receive(0)
            if not len(self._intake):
                # Messages are only taken again once it answers, so none of them will find out.
                self._outage.ask(self._engine)
            self._give_back_stuck()
            recent = self._threads.recent()
            room = self._room(recent)
            self._intake.steer(room, recent, idle=self._idle, able=not self._outage.lasts)
            ready = self._intake.ready()
            batch = self._next(ready, room)
            if batch:
                self._start(batch, room, recent)
            elif not ready:
                self._intake.receive(IDLE_SECONDS)
            else:
                self._wait_for_room(ready, recent, stopping)

    @property
    def _idle(self) -> bool:
        return not len(self._started) and not self._threads.load

    def _room(self, recent: float) -> int:
        """Return how many more jobs to start now: for the free threads, and what these do in half a second."""
        if self._alone and self._idle:
            self._alone = False
        if self._alone or not self._outage.may_ask or len(self._started) > MOST_UNWRITTEN:
            return 0
        ahead, load = min(math.floor(recent), MOST_AHEAD), self._threads.load
        if load > self._enough(recent):
            # Wait until a batch is worth its transaction.
            return 0
        return self._threads.size + ahead - load

    def _enough(self, recent: float) -> int:
        return self._threads.size - 1 + min(math.floor(recent), MOST_AHEAD) // 2

    def _next(self, ready: Sequence[Unstarted], room: int) -> list[Unstarted]:
        """Return what to start now, at most one message a job; what must run alone only when nothing else runs."""
        if ready and ready[0].received.message.alone:
            return [ready[0]] if room and self._idle else []
        batch: dict[object, Unstarted] = {}
        most = min(room, MOST_STARTED_AT_ONCE)
        for one in ready:
            if len(batch) >= most:
                break
            batch.setdefault(one.received.message.job_id, one)
        return list(batch.values())

    def _wait_for_room(self, ready: Sequence[Unstarted], recent: float, stopping: threading.Event) -> None:
        enough = 0 if self._alone or ready[0].received.message.alone else self._enough(recent)
        if self._threads.load > enough:
            self._threads.wait_for_load(enough, IDLE_SECONDS)
        else:
            # For results to be written, or for the database.
            stopping.wait(IDLE_SECONDS / 5)

    def _start(self, messages: Sequence[Unstarted], room: int, recent: float) -> None:
        try:
            with span("worker.batch", messages=len(messages)):
                batch = start_batch(self._engine, self._types, messages, self._now)
        except (DatabaseUnavailable, SQLAlchemyError) as error:
            self._outage.note(error)
            self._intake.unanswered(messages)
            return
        self._outage.end()
        self._alone = messages[0].received.message.alone
        for name, jobs in batch.jobs.items():
            self._started.add(jobs, self._types[name].lease_seconds / 3)
        started = sum(len(jobs) for jobs in batch.jobs.values())
        if started >= room and recent < 1:
            # Before the acknowledgement makes the broker send the next ones.
            self._intake.pause()
        self._intake.settle(batch.settled, batch.locked)
        self._tally.add("stale", batch.stale)
        self._tally.add("doubled", batch.doubled)
        self._hand_over(batch)

    def _hand_over(self, batch: Batch) -> None:
        for name, jobs in batch.jobs.items():
            if jobs:
                context = HandlerContext(self._handlers_engine, logging.getLogger(name), batch.at)
                call = trier(self._types[name], context)
                since = time.monotonic()
                self._threads.add([_Work(job, call, since) for job in jobs])

    def _call(self, work: _Work) -> None:
        if self._started.is_current(work.job):
            # Nothing else begins here before what ran alone is written.
            self._completer.add(work.call(work.job), at_once=self._alone)
        else:
            self._tally.add("lost")

    def _give_back_stuck(self) -> None:
        """Put back what was started ahead of handlers that have become slow: other workers may be idle."""
        first = self._threads.first_waiting()
        if first is not None and time.monotonic() - first.since > AHEAD_SECONDS:
            self._give_back([work.job for work in self._threads.withdraw()])

    def _raise_if_broken(self) -> None:
        broken = self._threads.broken or self._completer.broken
        if broken is not None:
            raise broken

    def _drain(self) -> list[ClaimedJob]:
        deadline = time.monotonic() + self._drain_seconds
        self._consumer.stop(_BROKER_SECONDS)
        self._give_back([work.job for work in self._threads.withdraw()])
        self._threads.wait_for_load(0, deadline - time.monotonic())
        left = [work.job for work in self._threads.running()]
        self._threads.stop()
        unwritten = self._completer.close(max(deadline - time.monotonic(), _RESULT_SECONDS))
        self._leases.stop()
        if unwritten:
            event(logger, "results.not_recorded", logging.ERROR, jobs=unwritten)
        for job in left:
            # Ended with this process, they died of nothing: a lease that runs out would put the blame on them.
            event(logger, "job.given_back", logging.WARNING, job=job.id, job_type=job.job_type)
        self._give_back(left)
        counts = self.counts
        event(logger, "worker.drained", done=counts.done, failed=counts.failed, given_back=counts.given_back)
        return left

    def _give_back(self, jobs: Sequence[ClaimedJob]) -> None:
        if not jobs:
            return

        def put_back() -> int:
            with transaction(self._engine) as connection:
                return len(give_back(connection, jobs, current_time(connection, self._now)))

        try:
            self._tally.add("given_back", patiently(put_back, _BROKER_SECONDS))
        except (DatabaseUnavailable, SQLAlchemyError) as error:
            event(logger, "job.not_given_back", logging.WARNING, jobs=len(jobs), error=error)
        self._started.forget(jobs)


def _on_the_queue_route(job_types: JobTypes, names: Sequence[str]) -> dict[str, JobType]:
    types = {name: job_types[name] for name in names}
    if not types:
        raise JobTypeError("no job type is named for this worker: name one on the queue route")
    for job_type in types.values():
        if job_type.route != "queue":
            raise JobTypeError(
                f"job type {job_type.name!r} takes the {job_type.route} route, where Dagster runs it: declare it with"
                ' route="queue", or leave it out here'
            )
    return types
