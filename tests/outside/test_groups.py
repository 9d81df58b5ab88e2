"""64 groups over 10,000 accounts."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from cronless_dagster.client.calls import calls_of
from cronless_dagster.scheduling.id_space import place_of
from tests.engine.support import NOON, sql
from tests.outside.support import MINUTE, World, client, minutes, queue_types

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Engine

ACCOUNTS = 10_000
GROUPS = 64
WAVES = (1, 31)
"""The minutes of the hour in which a half of the accounts each is due."""


def add_accounts(engine: Engine) -> None:
    """Insert a job for each account, each due once in the hour; ids are places of made-up account numbers."""
    rows = [
        {"id": place_of(number), "name": str(number), "due": NOON + WAVES[number % len(WAVES)] * MINUTE}
        for number in range(ACCOUNTS)
    ]
    sql(
        engine,
        "INSERT INTO cronless.scheduled_job (id, tenant_id, job_type, name, schedule, next_run_at, scheduled_for)"
        " SELECT id, 't' || ordinal % 100, 'work', name, '0 0 1 1 *', due, due FROM unnest(CAST(:ids AS uuid[]),"
        " CAST(:names AS text[]), CAST(:dues AS timestamptz[])) WITH ORDINALITY AS given (id, name, due, ordinal)",
        ids=[row["id"] for row in rows],
        names=[row["name"] for row in rows],
        dues=[row["due"] for row in rows],
    )


def test_an_hour_of_ten_thousand_accounts_in_64_groups(virtual_engine: Engine) -> None:
    """Each account once in its minute, whichever of two calls comes first; no group has much more than its share."""
    add_accounts(virtual_engine)
    region = client(f"[[check]]\nname = 'dispatch'\ngroups = {GROUPS}\nminutes = {sorted([*WAVES, 16])}\n")
    of_group: Counter[str] = Counter()
    calls = 0
    with World.of(virtual_engine, NOON, queue_types("work")) as world:

        async def hour() -> None:
            nonlocal calls
            for minute in minutes(NOON, 60):
                world.move_to(minute)
                made = calls_of(region, minute)
                calls += len(made)
                for call, answer in zip(made, await world.deliver(made), strict=True):
                    of_group[call.query] += answer.json["counts"].get("claimed", 0)
                world.work()

        asyncio.run(hour())
    assert calls == 2 * GROUPS * 3
    assert set(world.statuses) == {200}
    served = {number: world.served.get(_occurrence(number)) for number in range(ACCOUNTS)}
    assert [number for number, at in served.items() if at != [_occurrence(number)[1]]] == []
    assert len(of_group) == GROUPS
    assert of_group.total() == ACCOUNTS
    fair = ACCOUNTS / GROUPS
    assert 0.7 * fair < min(of_group.values())
    assert max(of_group.values()) < 1.3 * fair


def _occurrence(number: int) -> tuple[UUID, datetime]:
    return place_of(number), NOON + WAVES[number % len(WAVES)] * MINUTE
