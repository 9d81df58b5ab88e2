"""What a check is, is asked with, and answers; and how users register their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from cronless_dagster.scheduling.errors import CronlessError

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy import Connection, Engine

    from cronless_dagster.engine.job_types import JobTypes
    from cronless_dagster.engine.queueing import Queue
    from cronless_dagster.engine.runs import Launcher
    from cronless_dagster.scheduling.shards import IdRange

State = TypeVar("State")

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST_NAME = 60
_SHORTEST = timedelta(minutes=1)


class CheckError(CronlessError, ValueError):
    """A check can't be declared as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a check is asked with.

    Attributes:
        engine: The store's.
        ids: The part of the check's id space that the call is for.
        now: An instant in place of the database's clock, where that is virtual.
        job_types: What this node's code can run.
        launcher: Dagster, for job types of the run route; None: they are left to others.
        queue: Connects to the broker of the queue route, if there is one.
        budget_seconds: Nothing new begins after so long.
        history_days: How long history is kept.
    """

    engine: Engine
    ids: IdRange
    now: datetime | None = None
    job_types: JobTypes
    launcher: Launcher | None = None
    queue: Queue | None = None
    budget_seconds: float = 20.0
    history_days: int = 30


@dataclass(frozen=True, slots=True)
class Answer:
    """What a check did.

    Attributes:
        acted: How much was done; 0: it was not time, or somebody else did it.
        counts: Of what, by name.
        notes: What went wrong or was left, a sentence each.
        now: The instant that it was asked about, aware UTC.
    """

    acted: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    now: datetime | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {"acted": self.acted, "counts": dict(self.counts), "notes": list(self.notes)}


@dataclass(frozen=True, slots=True)
class Action:
    """What a check of the user's own wants done, once.

    Attributes:
        entity: For whom; its place in the id space must lie within the call's range.
        window: Which time it is for, aware; None: the check's current window. Once for an entity and window.
        payload: Whatever carrying it out needs.
    """

    entity: UUID | str | int
    window: datetime | None = None
    payload: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A question about the state, called again and again.

    Attributes:
        name: In the address of a call: lower case words joined by dashes.
        ids: Whose ids its groups are cut from, in a word: "jobs", "tenants", or what the user calls them.
        every: How often a call is worth making; a user's check does each entity once in it.
        ask: Looks, and acts if it is time. Any number of calls, at once or late, do no more than one.

    Raises:
        CheckError: A name that isn't one, or a window below a minute.
    """

    name: str
    ids: str
    every: timedelta
    ask: Callable[[Asked], Answer]

    def __post_init__(self) -> None:
        if len(self.name) > _LONGEST_NAME or not _NAME.fullmatch(self.name):
            raise CheckError(
                f"the check's name is {self.name[:80]!r}: give lower case words joined by dashes, such as"
                f" trial-reminders, of at most {_LONGEST_NAME} characters"
            )
        if self.every < _SHORTEST:
            raise CheckError(
                f"check {self.name!r} is to be called every {self.every}: give a minute or more, since nobody calls"
                " more often"
            )


class Checks(Mapping[str, Check]):
    """Checks by name."""

    def __init__(self, checks: Iterable[Check] = ()) -> None:
        """Begin with these. Raises CheckError where two have one name."""
        self._checks: dict[str, Check] = {}
        for one in checks:
            self.add(one)

    def __getitem__(self, name: str) -> Check:
        return self._checks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._checks)

    def __len__(self) -> int:
        return len(self._checks)

    def add(self, check: Check) -> None:
        """Add a check. Raises CheckError where there is one of its name."""
        if check.name in self._checks:
            raise CheckError(f"there are two checks named {check.name!r}: give one of them another name")
        self._checks[check.name] = check

    def register(
        self,
        name: str,
        *,
        ids: str,
        load: Callable[[Connection, IdRange, datetime], State],
        carry_out: Callable[[Connection, Action], None],
        every: timedelta,
    ) -> Callable[
        [Callable[[datetime, IdRange, State], Iterable[Action]]],
        Callable[[datetime, IdRange, State], Iterable[Action]],
    ]:
        """Register the decorated function, which stays as it is: pure, `(now, ids, state) -> actions`.

        Args:
            name: The check's.
            ids: Whose ids they are, in a word.
            load: Reads the state of a part of the id space: `WHERE cronless.place_of(id::text) BETWEEN ids.low AND
                ids.high`, or the id itself where it is a uuid.
            carry_out: Does one action, in the transaction that notes it as done: both are committed, or neither.
            every: The window: an action that names none is done once in each. What was done is remembered until two
                days after its window's end, also of windows that actions name.

        Raises:
            CheckError: As of `Check`, or a second one of this name.
        """
        from cronless_dagster.checks.registering import OwnCheck

        def registered(
            decide: Callable[[datetime, IdRange, State], Iterable[Action]],
        ) -> Callable[[datetime, IdRange, State], Iterable[Action]]:
            own = OwnCheck(name, every, load, decide, carry_out)
            self.add(Check(name=name, ids=ids, every=every, ask=own.ask))
            return decide

        return registered
