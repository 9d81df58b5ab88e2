from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from sqlalchemy import text

from cronless_dagster.checks import registering
from cronless_dagster.checks.collecting import collect
from cronless_dagster.checks.declaring import Action, Answer, Checks
from cronless_dagster.scheduling.id_space import place_of
from cronless_dagster.scheduling.shards import shard
from tests.checks.support import asked
from tests.engine.support import NOON, after, sql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlalchemy import Connection, Engine

ENTITIES: tuple[UUID | str | int, ...] = (17, "acme", "\u00fc", UUID(int=0), UUID(int=2**128 - 1))


class Shop:
    """A check over a table of its own, which counts what was done."""

    def __init__(
        self, engine: Engine, entities: Iterable[UUID | str | int] = ENTITIES, **options: Any
    ) -> None:
        self.engine, self.wanted = engine, [Action(one) for one in entities]
        self.fails: Callable[[Action], bool] = lambda _: False
        self.holds: threading.Event | None = None
        self.checks = Checks()
        sql(engine, "CREATE TABLE IF NOT EXISTS done (entity text)")
        options = {"ids": "customers", "every": timedelta(minutes=10), **options}
        self.checks.register("mine", load=self.load, carry_out=self.carry_out, **options)(self.decide)

    def load(self, connection: Connection, ids: Any, now: datetime) -> list[Action]:
        """Read those of a part."""
        return [one for one in self.wanted if ids.contains(place_of(one.entity))]

    def decide(self, now: datetime, ids: Any, state: list[Action]) -> list[Action]:
        """Want them all."""
        return state

    def carry_out(self, connection: Connection, action: Action) -> None:
        """Do it, in the transaction given."""
        connection.execute(text("INSERT INTO done VALUES (:entity)"), {"entity": str(action.entity)})
        if self.holds is not None:
            assert self.holds.wait(60)
        if self.fails(action):
            raise RuntimeError("the mailer is away")

    def ask(self, **values: Any) -> Answer:
        """Call the check."""
        return self.checks["mine"].ask(asked(self.engine, **values))

    def done(self) -> list[str]:
        """Return what was done and committed."""
        return sorted(row.entity for row in sql(self.engine, "SELECT entity FROM done"))


def test_places_in_sql_are_those_of_the_code(engine: Engine) -> None:
    """A group that a query of the user's own takes is the group that the call is for."""
    texts = ["", "acme", "17", "\u00fc\U0001f600", "x" * 5_000, "a|b'; --", str(UUID(int=7))]
    rows = sql(
        engine,
        "SELECT one, cronless.place_of(one) AS place FROM unnest(CAST(:texts AS text[])) AS one",
        texts=texts,
    )
    assert {row.one: row.place for row in rows} == {one: place_of(one) for one in texts}


def test_once_for_each_entity_and_window(virtual_engine: Engine) -> None:
    """Whatever their ids look like, however often it is called; and again in the next window."""
    shop = Shop(virtual_engine)
    assert shop.ask() == Answer(5, {"done": 5}, (), NOON)
    assert shop.ask(now=after(minutes=9, seconds=59)) == Answer(0, {}, (), after(minutes=9, seconds=59))
    assert shop.done() == sorted(map(str, ENTITIES))
    assert shop.ask(now=after(minutes=10)).acted == 5


def test_groups_cover_all_of_them_once(virtual_engine: Engine) -> None:
    """Each entity is done by the group that its place lies in."""
    shop = Shop(virtual_engine, range(200))
    acted = [shop.ask(ids=shard(part, 7)).acted for part in range(7)]
    assert sum(acted) == 200
    assert all(acted)
    assert len(set(shop.done())) == 200


def test_a_window_of_its_own(virtual_engine: Engine) -> None:
    """An action may say which time it is for; one instant in two zones is one window."""
    shop = Shop(virtual_engine, [])
    day = datetime(2026, 3, 1, tzinfo=UTC)
    shop.wanted = [Action(1, day), Action(1, day.astimezone()), Action(1, day + timedelta(days=1)), Action(1)]
    assert shop.ask().counts == {"done": 3}
    assert shop.ask(now=after(minutes=10)).counts == {"done": 1}


def test_one_that_raises_costs_itself_alone(virtual_engine: Engine) -> None:
    """It leaves nothing behind, is told by its entity, and has its turn at the next call."""
    shop = Shop(virtual_engine)
    shop.fails = lambda action: action.entity == 17
    answer = shop.ask()
    assert (answer.acted, answer.counts) == (4, {"done": 4, "failed": 1})
    assert answer.notes == ("entity '17': RuntimeError: the mailer is away",)
    assert "17" not in shop.done()
    shop.fails = lambda _: False
    assert shop.ask().counts == {"done": 1}
    assert shop.done() == sorted(map(str, ENTITIES))


@pytest.mark.parametrize("minutes", [1, 60], ids=["each minute", "each hour"])
def test_some_that_always_fail_keep_no_other_from_its_turn(
    virtual_engine: Engine, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    """Each call begins elsewhere, however far they are apart."""
    monkeypatch.setattr(registering, "MAX_ACTIONS", 5)
    shop = Shop(virtual_engine, range(20))
    shop.fails = lambda action: action.entity != 19
    for call in range(20):
        answer = shop.ask(now=after(minutes=minutes * call))
        if call == 0:
            assert answer.notes[-1].endswith("more are left to the next call")
    assert set(shop.done()) == {"19"}


def test_many_that_are_done_hide_no_other(virtual_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call keeps of the function's wishes is what nobody has done."""
    monkeypatch.setattr(registering, "MAX_WANTED", 6)
    monkeypatch.setattr(registering, "_TOGETHER", 4)
    shop = Shop(virtual_engine, range(20), every=timedelta(days=1))
    assert [shop.ask(now=after(minutes=minute)).acted for minute in range(4)] == [8, 8, 4, 0]
    assert sorted(map(int, shop.done())) == list(range(20))


def test_looking_leaves_time_to_act(virtual_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that wants without end is asked for a part of the call's time only, and the answer says so."""
    monkeypatch.setattr(registering, "_TOGETHER", 2)
    shop = Shop(virtual_engine)
    answer = shop.ask(budget_seconds=0.0)
    assert answer.acted == 0
    assert "before all was looked at" in answer.notes[0]
    assert answer.notes[-1] == "2 more are left to the next call"


def test_a_long_window_outlasts_the_garbage_collection(virtual_engine: Engine) -> None:
    """What is done once a month stays done, and its mark goes some days after the month."""
    shop = Shop(virtual_engine, [], every=timedelta(days=30))
    shop.wanted = [Action(17, NOON)]
    assert shop.ask().acted == 1
    for days in (3, 29):
        later = NOON + timedelta(days=days)
        assert collect(asked(virtual_engine, now=later)).acted == 0
        assert shop.ask(now=later).acted == 0
    assert collect(asked(virtual_engine, now=NOON + timedelta(days=33))).counts == {"marks": 1}


def test_a_window_at_the_end_of_time(virtual_engine: Engine) -> None:
    """It costs its own entity, and no other."""
    shop = Shop(virtual_engine, [])
    shop.wanted = [Action(17, datetime.max.replace(tzinfo=UTC)), Action(18)]
    assert shop.ask().counts == {"done": 1, "failed": 1}
    assert shop.done() == ["18"]


def test_outside_the_range_of_the_call(virtual_engine: Engine) -> None:
    """Two groups would do it, so none does."""
    shop = Shop(virtual_engine, [])
    shop.decide = lambda *_: [Action(17), Action(18, datetime(2026, 3, 2))]  # type: ignore[method-assign]  # noqa: DTZ001
    checks = Checks()
    checks.register("mine", ids="x", load=shop.load, carry_out=shop.carry_out, every=timedelta(minutes=1))(
        shop.decide
    )
    shop.checks = checks
    part = next(one for one in (shard(0, 2), shard(1, 2)) if not one.contains(place_of(17)))
    answer = shop.ask(ids=part)
    assert answer.counts == {"refused": 2}
    assert "'17' lies outside the range" in answer.notes[0]
    assert "'18': its window 2026-03-02T00:00:00 has no zone" in answer.notes[1]
    assert shop.done() == []


def test_doubled_calls_at_once(virtual_engine: Engine) -> None:
    """Whoever comes second neither waits nor does it again."""
    shop = Shop(virtual_engine)
    shop.holds = threading.Event()
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(shop.ask) for _ in range(4)]
        try:
            # Each of them gets through all that the others aren't at.
            while sum(call.done() for call in calls) < 3 and not shop.holds.wait(0.05):
                if (
                    sql(virtual_engine, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")[0][0]
                    >= 4
                ):
                    break
        finally:
            shop.holds.set()
        answers = [call.result(60) for call in calls]
    assert sum(answer.acted for answer in answers) == 5
    assert shop.done() == sorted(map(str, ENTITIES))


def test_what_loading_raises_is_the_callers(virtual_engine: Engine) -> None:
    """Nothing was done, and the call fails."""
    shop = Shop(virtual_engine)
    checks = Checks()

    def load(*_: object) -> None:
        raise RuntimeError("no such table")

    checks.register("mine", ids="x", load=load, carry_out=shop.carry_out, every=timedelta(minutes=1))(
        shop.decide  # type: ignore[arg-type]
    )
    with pytest.raises(RuntimeError, match="no such table"):
        checks["mine"].ask(asked(virtual_engine))
