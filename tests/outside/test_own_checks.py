"""Checks of one's own, over integers and over texts: once for each entity and window, however often they are called."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import text

from cronless_dagster.checks.declaring import Action, Checks
from cronless_dagster.client.calls import calls_of
from cronless_dagster.scheduling.shards import FULL
from examples.own_check.trials import checks as trial_checks
from examples.own_check.trials import trial_reminders
from tests.engine.support import NOON, sql
from tests.outside.support import MINUTE, World, client, minutes, queue_types

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Engine

    from cronless_dagster.scheduling.shards import IdRange

SHOP = Path(__file__).parents[2] / "examples" / "own_check" / "shop.sql"
CUSTOMERS = 200
DAY = timedelta(days=1)


def open_shop(engine: Engine) -> None:
    """Make the example's tables, with customers whose trials end in one to ten days, some on none."""
    with engine.begin() as connection:
        connection.exec_driver_sql(SHOP.read_text())
    sql(
        engine,
        "INSERT INTO shop.customer SELECT n, CASE WHEN n % 11 > 0"
        " THEN CAST(:noon AS timestamptz) + make_interval(days => n % 11) END FROM generate_series(1, :most) AS n",
        noon=NOON,
        most=CUSTOMERS,
    )


def mails(engine: Engine) -> Counter[int]:
    """Count the mails by customer."""
    rows = sql(engine, "SELECT customer_id, count(*) FROM shop.mail GROUP BY customer_id")
    return Counter({row.customer_id: row.count for row in rows})


def test_the_examples_check_is_a_function() -> None:
    """Without a database: three days before the end the reminders begin, and end with the trial."""
    state = [(days, NOON + timedelta(days=days)) for days in range(-1, 6)]
    wanted = list(trial_reminders(NOON, FULL, state))
    assert [one.entity for one in wanted] == [1, 2, 3]
    assert wanted[0].payload == "your trial ends on 2026-03-03"


def test_the_example_reminds_each_customer_once_a_day(virtual_engine: Engine) -> None:
    """Integers as ids, four calls for each group each minute at once: one mail a customer and day."""
    open_shop(virtual_engine)
    region = client("[[check]]\nname = 'trial-reminders'\nprefix_length = 1\n")
    with World.of(virtual_engine, NOON, queue_types("work"), trial_checks) as world:

        async def two_days() -> None:
            for start in (NOON, NOON + DAY):
                for minute in minutes(start, 3):
                    await world.minute(minute, region, region)

        asyncio.run(two_days())
    assert set(world.statuses) == {200}
    # Whose trial ends in two or three days is reminded on both; in one day: then it is over; in four: from tomorrow.
    by_days = {1: 1, 2: 2, 3: 2, 4: 1}
    assert mails(virtual_engine) == Counter(
        {n: by_days[n % 11] for n in range(1, CUSTOMERS + 1) if n % 11 in by_days}
    )


class Tenants:
    """A check over texts, whose carrying out fails in the middle for some of them."""

    def __init__(self, engine: Engine) -> None:
        sql(engine, "CREATE TABLE tenant (name text PRIMARY KEY)")
        sql(engine, "CREATE TABLE report (tenant text, at timestamptz)")
        sql(
            engine, "INSERT INTO tenant SELECT 'Tenant ' || n || ' - Zürich' FROM generate_series(1, 60) AS n"
        )
        self.failing: set[str] = set()
        self.checks = Checks()
        self.checks.register(
            "usage-reports", ids="tenants", load=self.load, carry_out=self.write, every=timedelta(minutes=5)
        )(self.decide)

    @staticmethod
    def load(connection: Connection, ids: IdRange, _now: datetime) -> Sequence[str]:
        """Return the tenants of this part."""
        found = text("SELECT name FROM tenant WHERE cronless.place_of(name) BETWEEN :low AND :high")
        return connection.scalars(found, {"low": ids.low, "high": ids.high}).all()

    @staticmethod
    def decide(_now: datetime, _ids: IdRange, state: Sequence[str]) -> Iterator[Action]:
        """Want a report of each."""
        return (Action(name, window=None) for name in state)

    def write(self, connection: Connection, action: Action) -> None:
        """Write the report, and then fail for some."""
        connection.execute(
            text("INSERT INTO report VALUES (:name, cronless.clock_now())"), {"name": action.entity}
        )
        if action.entity in self.failing:
            raise RuntimeError("the mail server hung up")


def reports(engine: Engine) -> set[int]:
    """Return how many reports a tenant has, whichever."""
    rows = sql(
        engine, "SELECT count(r.at) FROM tenant LEFT JOIN report AS r ON r.tenant = name GROUP BY name"
    )
    return {row.count for row in rows}


def test_what_fails_half_way_is_done_at_the_next_call(virtual_engine: Engine) -> None:
    """Texts as ids: a failure takes what it wrote back, costs no other tenant its report, and is made good later."""
    tenants = Tenants(virtual_engine)
    names = [row.name for row in sql(virtual_engine, "SELECT name FROM tenant ORDER BY name")]
    tenants.failing = set(names[::3])
    region = client("[[check]]\nname = 'usage-reports'\ngroups = 5\n")
    with World.of(virtual_engine, NOON, queue_types("work"), tenants.checks) as world:

        async def ten_minutes() -> None:
            await world.minute(NOON, region, region)
            done = {row.tenant for row in sql(virtual_engine, "SELECT tenant FROM report")}
            assert done == set(names) - tenants.failing
            tenants.failing = set()
            for minute in minutes(NOON + MINUTE, 4):
                await world.minute(minute, region, region)
                assert reports(virtual_engine) == {1}
            for minute in minutes(NOON + 5 * MINUTE, 5):
                await world.minute(minute, region, region)
                assert reports(virtual_engine) == {2}

        asyncio.run(ten_minutes())
    assert set(world.statuses) == {200}


def test_a_check_spread_over_minutes_has_each_entity_once(virtual_engine: Engine) -> None:
    """With clients whose clocks differ by six minutes, and every call made late by up to four minutes."""
    tenants = Tenants(virtual_engine)
    region = client("[[check]]\nname = 'usage-reports'\nspread_minutes = 5\ngroups = 3\n")
    with World.of(virtual_engine, NOON, queue_types("work"), tenants.checks) as world:

        async def five_minutes() -> None:
            for number, minute in enumerate(minutes(NOON, 5)):
                world.move_to(minute)
                for wrong_by in (3 * MINUTE, -3 * MINUTE, -number * MINUTE):
                    await world.deliver(calls_of(region, minute + wrong_by))

        asyncio.run(five_minutes())
    assert reports(virtual_engine) == {1}
