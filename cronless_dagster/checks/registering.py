"""The shell around a check of the user's own: it loads, asks the pure function, and carries out each action once."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any

from cronless_dagster.checks.declaring import Action, Answer
from cronless_dagster.engine.report import first_line
from cronless_dagster.scheduling.id_space import place_of
from cronless_dagster.store.checks import done_of, mark_done
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction
from cronless_dagster.store.errors import DatabaseNotMigrated, DatabaseUnavailable
from cronless_dagster.telemetry.events import event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import timedelta
    from uuid import UUID

    from sqlalchemy import Connection, Engine

    from cronless_dagster.checks.declaring import Asked
    from cronless_dagster.scheduling.shards import IdRange

logger = logging.getLogger(__name__)

MAX_ACTIONS = 1_000
"""The most that one call carries out; the next one goes on."""
MAX_WANTED = 100_000
"""The most that one call keeps of what the function wants and nobody has done."""
_TOGETHER = 10_000
"""Of which so many are asked about in one question."""
_MAX_NOTES = 5


@dataclass(frozen=True, slots=True)
class _Wanted:
    action: Action
    place: UUID
    window: datetime


@dataclass(frozen=True, slots=True)
class OwnCheck:
    """A user's check: see `Checks.register`."""

    name: str
    every: timedelta
    load: Callable[[Connection, IdRange, datetime], Any]
    decide: Callable[[datetime, IdRange, Any], Iterable[Action]]
    carry_out: Callable[[Connection, Action], None]

    def ask(self, asked: Asked) -> Answer:
        """Look, and carry out what nobody has done in its window.

        Raises:
            Exception: Whatever loading or the function raise: then nothing was done.
        """
        until = time.monotonic() + asked.budget_seconds
        with transaction(asked.engine) as connection:
            now = current_time(connection, asked.now)
            state = self.load(connection, asked.ids, now)
        counts: Counter[str] = Counter()
        notes: list[str] = []
        todo = self._todo(asked, state, now, until - asked.budget_seconds / 2, counts, notes)
        # From anywhere: some that always fail must not keep the others from their turn for ever.
        first = Random(now.isoformat()).randrange(len(todo)) if todo else 0  # noqa: S311 - nobody's secret
        tried = 0
        for one in (todo[first:] + todo[:first])[:MAX_ACTIONS]:
            if time.monotonic() > until:
                break
            tried += 1
            counts[self._done(asked.engine, one, now, notes)] += 1
        left = (f"{len(todo) - tried:,} more are left to the next call",) if tried < len(todo) else ()
        told = {name: number for name, number in sorted(counts.items()) if number}
        return Answer(counts["done"], told, (*notes[:_MAX_NOTES], *left), now)

    def _todo(
        self,
        asked: Asked,
        state: Any,
        now: datetime,
        until: float,
        counts: Counter[str],
        notes: list[str],
    ) -> list[_Wanted]:
        """Return what the function wants and nobody has done, past whatever is done already."""
        actions = iter(self.decide(now, asked.ids, state))
        todo: dict[tuple[UUID, datetime], _Wanted] = {}
        while len(todo) < MAX_WANTED and (some := list(islice(actions, _TOGETHER))):
            wanted = self._wanted(some, asked.ids, now, counts, notes)
            with transaction(asked.engine) as connection:
                done = done_of(connection, self.name, [(one.place, one.window) for one in wanted])
            for one in wanted:
                if (one.place, one.window) not in done:
                    todo.setdefault((one.place, one.window), one)
            if time.monotonic() > until:
                notes.insert(
                    0, "half of the call's time was up before all was looked at: call it for smaller parts"
                )
                break
        return list(todo.values())

    def _wanted(
        self, actions: Iterable[Action], ids: IdRange, now: datetime, counts: Counter[str], notes: list[str]
    ) -> list[_Wanted]:
        """Return what is wanted, each entity and window once; what isn't this call's to do is noted."""
        found: dict[tuple[UUID, datetime], _Wanted] = {}
        for action in actions:
            place = place_of(action.entity)
            window = self._window(now) if action.window is None else action.window
            if window.tzinfo is None:
                counts["refused"] += 1
                notes.append(
                    f"entity {_shown(action)}: its window {window.isoformat()} has no zone: give an aware one"
                )
            elif not ids.contains(place):
                counts["refused"] += 1
                notes.append(
                    f"entity {_shown(action)} lies outside the range of this call: load and return those within only"
                )
            else:
                window = window.astimezone(UTC)
                found.setdefault((place, window), _Wanted(action, place, window))
        return list(found.values())

    def _window(self, now: datetime) -> datetime:
        return datetime.fromtimestamp(
            now.timestamp() // self.every.total_seconds() * self.every.total_seconds(), UTC
        )

    def _done(self, engine: Engine, one: _Wanted, now: datetime, notes: list[str]) -> str:
        """Carry out one action, in the transaction that marks it; tells what became of it."""
        try:
            with transaction(engine) as connection:
                # Marks go some days after this: from the window's end on, however long it is.
                over = max(now, one.window + self.every)
                if not mark_done(connection, self.name, one.place, one.window, str(one.action.entity), over):
                    return "elsewhere"
                self.carry_out(connection, one.action)
        except (DatabaseUnavailable, DatabaseNotMigrated):
            raise
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything, and costs its own entity alone
            notes.append(f"entity {_shown(one.action)}: {type(error).__name__}: {first_line(error)}"[:300])
            event(logger, "check.action_failed", logging.WARNING, check=self.name, error=type(error).__name__)
            return "failed"
        return "done"


def _shown(action: Action) -> str:
    return repr(str(action.entity)[:80])
