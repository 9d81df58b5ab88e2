"""What clients and networks do: die, run with a wrong clock, call late, in any order and more than once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.client.calls import calls_of
from tests.engine.support import NOON, add, sql
from tests.outside.support import MINUTE, World, client, minutes, queue_types

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from uuid import UUID

    from sqlalchemy import Engine

    from cronless_dagster.client.calls import Call

MINUTES = 25
"""How long the clients call through a bad network."""


def add_some(engine: Engine, count: int = 10, every: int = 5) -> list[UUID]:
    """Add so many jobs of the type "work", each due every five minutes, two in each minute."""
    return [add(engine, f"{n % every}-59/{every} * * * *") for n in range(count)]


def due_minutes(number: int, start: datetime, count: int, every: int = 5) -> list[datetime]:
    """Return the minutes in which the n-th of those jobs is due."""
    return [at for at in minutes(start, count) if at.minute % every == number % every and at > start]


def on_time(world: World, ids: list[UUID], start: datetime, count: int) -> None:
    """Check that each of those jobs was served in each of its minutes, once, and in no other."""
    assert world.served == {
        (job_id, at): [at] for number, job_id in enumerate(ids) for at in due_minutes(number, start, count)
    }


def test_a_client_that_is_dead_for_an_hour_is_not_missed(virtual_engine: Engine) -> None:
    """The other region's goes on alone, and nothing comes a minute late; not even where its first call is lost."""
    ids = add_some(virtual_engine)
    one = client("[[check]]\nname = 'dispatch'\ngroups = 2\n")
    with World.of(virtual_engine, NOON, queue_types("work")) as world:

        async def more_than_an_hour() -> None:
            for number, minute in enumerate(minutes(NOON, 70)):
                await world.minute(minute, *([one] if 5 <= number < 65 else [one, one]))

        asyncio.run(more_than_an_hour())
        on_time(world, ids, NOON, 70)


@pytest.mark.parametrize("wrong_by", [3 * MINUTE, -3 * MINUTE])
def test_a_client_with_a_wrong_clock_shifts_its_windows_only(
    virtual_engine: Engine, wrong_by: timedelta
) -> None:
    """Alone, three minutes fast or slow: what is due each minute stays on time, since the database says what it is."""
    ids = add_some(virtual_engine)
    one = client("[[check]]\nname = 'dispatch'\ngroups = 2\n")
    with World.of(virtual_engine, NOON, queue_types("work")) as world:

        async def half_an_hour() -> None:
            for minute in minutes(NOON, 30):
                world.move_to(minute)
                await world.deliver(calls_of(one, minute + wrong_by))
                world.work()

        asyncio.run(half_an_hour())
        on_time(world, ids, NOON, 30)


def proxied(calls: list[Call], rng: random.Random) -> list[tuple[timedelta, Call]]:
    """Return the calls as a bad network delivers them: each up to five minutes late, and one to three times."""
    return [(rng.randrange(6) * MINUTE, call) for call in calls for _ in range(rng.randint(1, 3))]


def test_calls_that_come_late_in_any_order_and_more_than_once(virtual_engine: Engine) -> None:
    """Nothing is doubled or early; what is due waits for any call of its group, however old that is."""
    rng = random.Random(20260302)  # noqa: S311
    ids = add_some(virtual_engine)
    one = client("[[check]]\nname = 'dispatch'\ngroups = 2\n\n[[check]]\nname = 'rescue'\n")
    on_their_way: dict[datetime, list[Call]] = {}
    for minute in minutes(NOON, MINUTES):
        for late, call in proxied([*calls_of(one, minute), *calls_of(one, minute)], rng):
            on_their_way.setdefault(minute + late, []).append(call)
    with World.of(virtual_engine, NOON, queue_types("work")) as world:

        async def the_calls() -> None:
            for minute in sorted(on_their_way):
                world.move_to(minute)
                rng.shuffle(on_their_way[minute])
                await world.deliver(on_their_way[minute])
                world.work()

        asyncio.run(the_calls())

    assert set(world.statuses) == {200}
    sent = Counter((message.job_id, message.scheduled_for) for message in world.broker.sent)
    assert set(sent.values()) == {1}
    for (_, scheduled_for), [at] in world.served.items():
        assert at >= scheduled_for
    # In each of these minutes some call of each half arrives.
    first, last = NOON + 6 * MINUTE, NOON + (MINUTES - 1) * MINUTE
    for number, job_id in enumerate(ids):
        wanted = [at for at in due_minutes(number, NOON, MINUTES) if first <= at <= last]
        assert [at for at in wanted if world.served.get((job_id, at)) != [at]] == []


def test_calls_of_a_minute_long_gone_find_nothing(virtual_engine: Engine) -> None:
    """A proxy that gives up all it has held back for an hour costs a hundred cheap answers."""
    add_some(virtual_engine)
    one = client("[[check]]\nname = 'dispatch'\ngroups = 2\n")
    with World.of(virtual_engine, NOON, queue_types("work")) as world:

        async def flood() -> None:
            await world.minute(NOON, one)
            await world.minute(NOON + MINUTE, one)
            before = len(world.broker.sent)
            old = [call for minute in minutes(NOON - 60 * MINUTE, 25) for call in calls_of(one, minute)]
            answers = await world.deliver(old)
            assert len(answers) == 100
            assert {(got.status, got.json["acted"]) for got in answers} == {(200, 0)}
            assert len(world.broker.sent) == before == 2

        asyncio.run(flood())
    assert sql(virtual_engine, "SELECT 1 FROM cronless.job_claim WHERE state <> 'CLOSED'") == []
