"""The tick's claim step: what is due, type by type, within the limits and the tick's time."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from sqlalchemy.exc import SQLAlchemyError

from cronless_dagster.engine.claiming import ClaimResult, claim_one
from cronless_dagster.engine.report import first_line
from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.store.database import transaction
from cronless_dagster.store.errors import DatabaseNotMigrated, DatabaseUnavailable
from cronless_dagster.store.fairness import Waiting, waiting_types
from cronless_dagster.telemetry.events import event

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Engine

    from cronless_dagster.engine.job_types import JobTypes
    from cronless_dagster.engine.queueing import QueueRoute
    from cronless_dagster.engine.report import TickReport
    from cronless_dagster.scheduling.shards import IdRange

logger = logging.getLogger(__name__)


class Ticking(Protocol):
    """What the step needs of its tick."""

    engine: Engine
    job_types: JobTypes
    now: datetime | None
    ids: IdRange
    report: TickReport

    def may_claim(self) -> bool:
        """Tell whether there is time for another claim."""

    def can_launch(self) -> bool:
        """Tell whether whoever would run the claims answers."""


@dataclass(slots=True)
class _Room:
    """How many claims may still be made that are handed over as runs."""

    left: int


class ClaimStep:
    """Claims what is due, one claim of each type in turn, beginning with the type that waits longest.

    So a type with a backlog keeps no other waiting. Claims for runs come first: they are few and quickly made.
    Those for queues follow, each published at once, so that nothing is claimed that this tick has no time to publish.
    """

    def __init__(self, tick: Ticking, routes: dict[str, str], queues: QueueRoute | None) -> None:
        """Prepare; `routes` names the job types that may be claimed, with the route of each."""
        self._tick, self._routes, self._queues = tick, routes, queues
        self._report = tick.report

    def claim(self, room: int) -> None:
        """Claim; at most `room` claims of those that are handed over as runs."""
        tick, now = self._tick, self._report.now
        with transaction(tick.engine) as connection:
            sizes = {name: tick.job_types[name].batch_size for name in self._routes}
            waiting = waiting_types(connection, sizes, now, tick.ids)
        longest_first = sorted(waiting, key=lambda name: waiting[name].since or now)
        runs = [name for name in longest_first if self._routes[name] != "queue"]
        if runs and not tick.can_launch():
            runs = []
        shared = _Room(room)
        in_turn = deque(self._guarded(name, waiting[name], shared) for name in runs)
        while in_turn:
            claims = in_turn.popleft()
            if next(claims, None) is not None:
                in_turn.append(claims)
        if self._queues is not None:
            queued = [name for name in longest_first if self._routes[name] == "queue"]
            doubtful = self._queues.doubtful
            self._in_turn(self._queues, [name for name in queued if name not in doubtful], waiting)
            for name in doubtful:
                self._queues.publish_waiting(tick.may_claim, name)
                self._in_turn(self._queues, [name] if name in queued else [], waiting)

    def _in_turn(self, queues: QueueRoute, names: Sequence[str], waiting: Mapping[str, Waiting]) -> None:
        """Claim and publish, one claim of each type after the other."""
        in_turn = deque((name, self._guarded(name, waiting[name], None)) for name in names)
        held_up = []
        while in_turn and queues.usable:
            name, claims = in_turn.popleft()
            if not queues.takes(name):
                held_up.append(name)
                continue
            made = next(claims, None)
            if made is None:
                continue
            if made.claim_id is not None:
                queues.publish(made.claim_id, name)
            in_turn.append((name, claims))
        for name in [*held_up, *(name for name, _ in in_turn)]:
            self._report.left.setdefault(name, "may have more due: the queue takes no more at this tick")

    def _guarded(self, name: str, waiting: Waiting, room: _Room | None) -> Iterator[ClaimResult]:
        """Yield the claims of a type, those that came to nothing too.

        What fails is the type's own affair, unless the database is gone.
        """
        try:
            yield from self._claims(name, waiting, room)
        except (DatabaseUnavailable, DatabaseNotMigrated):
            raise
        except (CronlessError, SQLAlchemyError) as error:
            event(logger, "job_type.not_claimed", logging.ERROR, exc_info=True, job_type=name)
            self._report.errors.append(f"{name}: {first_line(error)}")

    def _claims(self, name: str, waiting: Waiting, room: _Room | None) -> Iterator[ClaimResult]:
        # What people asked for comes beside what is due, not in its place: one claim of it, as long as something is.
        job_type, route = self._tick.job_types[name], self._routes[name]
        most, batch_size = job_type.most_claims(route), job_type.batch_size
        counted = taken = 0
        requests = True
        while True:
            full = room is not None and room.left <= 0
            if counted == most or full:
                # Whether anything is left is for the next tick to see; say so only where it is known.
                if taken >= counted * batch_size:
                    why = "the tick hands over no more claims" if full else "one tick's claims are made"
                    self._report.left[name] = f"may have more due: {why}"
                return
            if not self._tick.may_claim():
                self._report.left[name] = "has more due: the tick's time is up"
                return
            result = claim_one(
                self._tick.engine,
                job_type,
                waiting,
                route=route,
                ids=self._tick.ids,
                now=self._tick.now,
                requests=requests and (room is None or room.left > 1),
                more=self._tick.may_claim,
            )
            self._report.count_misfired(name, result.misfired)
            if result.reason is not None:
                self._report.left[name] = f"has more due: {result.reason}"
            if result.claim_id is None and result.misfired == 0:
                if waiting.due_since is None or waiting.triggered_since is None or result.reason is not None:
                    return
                # Nothing is due any more: the rest of the tick is for requests.
                waiting = replace(waiting, due_since=None)
                continue
            if result.claim_id is None:
                # All were past their grace and wait for their next occurrence: that costs a turn, and no run.
                yield result
                continue
            if room is not None:
                room.left -= 1
            requests = requests and not result.manual
            counted += not result.manual
            taken += 0 if result.manual else result.rows
            self._report.claims += 1
            self._report.claimed[name] = self._report.claimed.get(name, 0) + result.rows
            yield result
