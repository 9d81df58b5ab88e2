"""A simulated day of two regions' clients against two nodes, each call made four times, against the schedules' own."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.engine.job_types import JobType, JobTypes
from cronless_dagster.store import jobs
from cronless_dagster.store.clock import make_virtual
from cronless_dagster.store.database import transaction
from tests.engine.support import nothing, sql
from tests.outside.support import World, client, minute_at_or_after, minutes, occurrences

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy import Engine

    from cronless_dagster.engine.handlers import HandlerContext
    from cronless_dagster.store.rows import ClaimedJob

# North America has an hour twice: 01:00 to 02:00 in New York begins at 05:00 and again at 06:00 UTC.
MIDNIGHT = datetime(2026, 11, 1, tzinfo=UTC)
DAY = timedelta(days=1)
BEFORE = MIDNIGHT - timedelta(minutes=2)

SCHEDULES = [
    ("mail", "*/20 * * * *", "UTC"),
    ("mail", "30 1 * * *", "America/New_York"),
    ("mail", "*/30 1 * * *", "America/New_York"),
    ("mail", "0 9 * * *", "America/New_York"),
    ("mail", "0 9 * * MON-FRI", "Asia/Tokyo"),
    ("mail", "15 2 1 * *", "Europe/London"),
    ("mail", "@hourly", "Asia/Kolkata"),
    ("mail", "@daily", "Pacific/Chatham"),
    ("mail", "59 23 * * *", "Europe/Berlin"),
    ("mail", "0 0 1 11 *", "UTC"),
    ("report", "@every 95m", "UTC"),
    ("report", "@every 7h", "America/Chicago"),
    ("report", "@once 2026-11-01T01:30", "America/Chicago"),
    ("report", "@once 2026-11-01T12:34:56", "UTC"),
    ("report", "RRULE:FREQ=DAILY;BYHOUR=8,17;BYMINUTE=5;BYSECOND=0", "Australia/Lord_Howe"),
    ("report", "RRULE:FREQ=MONTHLY;BYDAY=1SU;BYHOUR=1;BYMINUTE=45;BYSECOND=0", "America/New_York"),
    ("report", "@window 6h", "UTC"),
    ("report", "@window 1d", "UTC"),
]
"""Job types and schedules of every kind, in zones with and without a change on the day."""
TENANTS = 3
CHECKS = """\
[[check]]
name = "dispatch"
groups = 2

[[check]]
name = "rescue"
minutes = [0, 10, 20, 30, 40, 50]
"""


def add_all(engine: Engine) -> dict[UUID, tuple[str, str]]:
    """Add a job of each schedule for each tenant; returns schedule and zone by id."""
    with transaction(engine) as connection:
        return {
            jobs.add(
                connection,
                tenant_id=f"tenant-{tenant}",
                job_type=job_type,
                name=str(number),
                schedule=schedule,
                timezone=zone,
                starts_at=MIDNIGHT,
                ends_at=MIDNIGHT + DAY - timedelta(seconds=1),
            ): (schedule, zone)
            for tenant in range(TENANTS)
            for number, (job_type, schedule, zone) in enumerate(SCHEDULES)
        }


@pytest.mark.slow
def test_each_due_job_is_dispatched_once_in_its_minute(virtual_engine: Engine) -> None:
    """Not early, not late, not twice, on both routes, by whichever node and client comes first."""
    worlds: list[World] = []

    def serve(job: ClaimedJob, _context: HandlerContext) -> None:
        worlds[0].serve(job)

    types = JobTypes(
        (
            JobType(name="mail", handler=nothing, route="queue"),
            JobType(name="report", handler=serve, concurrency=1),
        )
    )
    make_virtual(virtual_engine, BEFORE)
    schedules = add_all(virtual_engine)
    region = client(CHECKS)
    with World.of(virtual_engine, BEFORE, types) as world:
        worlds.append(world)

        async def day() -> None:
            for minute in minutes(BEFORE, 2 + 24 * 60):
                await world.minute(minute, region, region)

        asyncio.run(day())

    expected = {
        (job_id, at): [minute_at_or_after(at)]
        for job_id, (schedule, zone) in schedules.items()
        for at in occurrences(job_id, schedule, zone, MIDNIGHT, MIDNIGHT, MIDNIGHT + DAY)
    }
    assert world.served == expected
    assert set(world.statuses) == {200}
    sent = Counter((message.job_id, message.scheduled_for) for message in world.broker.sent)
    assert set(sent.values()) == {1}
    assert set(Counter(one.claim_id for one in world.launcher.launched).values()) == {1}
    left = sql(virtual_engine, "SELECT DISTINCT status, claim_id, next_run_at FROM cronless.scheduled_job")
    assert [tuple(row) for row in left] == [("DONE", None, None)]
    assert sql(virtual_engine, "SELECT 1 FROM cronless.job_claim WHERE state <> 'CLOSED'") == []
