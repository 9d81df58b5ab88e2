"""Sending rows back to the planner, and what ticks tell each other: declarations and progress."""

from __future__ import annotations

from uuid import UUID

import pytest

from cronless_dagster.scheduling.zones import TZDATA_VERSION
from cronless_dagster.store import declarations, replan
from cronless_dagster.store.database import transaction
from cronless_dagster.store.progress import read_one, read_progress, write_progress
from tests.store.rows import (
    DAY,
    FAILURE,
    HOUR,
    NOW,
    claim,
    due_row,
    edit,
    plan,
    planned_row,
    row,
    serve,
    sql,
    start,
)

ZERO = UUID(int=0)


def clear_zone_data(engine, after=ZERO, size=1_000):
    """Clear what was planned with other zone data."""
    with transaction(engine) as connection:
        return replan.clear_other_zone_data(connection, TZDATA_VERSION, after, size, NOW)


def old(engine):
    """Pretend that every plan was made with other zone data."""
    sql(
        engine,
        "UPDATE cronless.scheduled_job SET tzdata_version = '2001a', plan_count = plan_count + 1"
        " WHERE tzdata_version IS NOT NULL",
    )


class TestZoneData:
    def test_a_part_ends_where_it_ends(self, virtual_engine):
        """A sweep of the lower half leaves the upper half's rows to their own sweep."""
        for number in range(8):
            planned_row(virtual_engine, id=UUID(int=number << 125 | 1))
        old(virtual_engine)
        half = UUID(int=(1 << 127) - 1)
        with transaction(virtual_engine) as connection:
            _, cleared = replan.clear_other_zone_data(connection, TZDATA_VERSION, ZERO, 100, NOW, up_to=half)
        assert cleared == 4
        assert clear_zone_data(virtual_engine)[1] == 4

    def test_future_plans_are_made_again(self, virtual_engine):
        """Rows planned with other zone data are planned anew, without counting as edits."""
        job = planned_row(virtual_engine)
        old(virtual_engine)
        assert clear_zone_data(virtual_engine) == (job, 1)
        after = row(virtual_engine, job)
        assert (after.next_run_at, after.scheduled_for, after.plan_version) == (None, None, 0)
        plan(virtual_engine)
        assert row(virtual_engine, job).tzdata_version == TZDATA_VERSION
        assert clear_zone_data(virtual_engine) == (job, 0)

    def test_what_is_due_claimed_or_chosen_stays(self, virtual_engine):
        """Due and claimed rows, retries, a handler's word, intervals and direct writes keep their instants."""
        due, waiting = planned_row(virtual_engine), due_row(virtual_engine, schedule="@once 2026-03-02T12:00")
        serve(virtual_engine, outcome=FAILURE)
        handler = planned_row(virtual_engine, schedule="  @Handler fallback=24h")
        every = planned_row(virtual_engine, schedule="@EVERY 2h")
        direct = planned_row(virtual_engine)
        edit(virtual_engine, direct, next_run_at=NOW + DAY)
        sql(
            virtual_engine,
            "UPDATE cronless.scheduled_job SET next_run_at = :now WHERE id = :id",
            now=NOW,
            id=due,
        )
        sql(
            virtual_engine,
            "UPDATE cronless.scheduled_job SET tzdata_version = '2001a' WHERE id = :id",
            id=due,
        )
        old(virtual_engine)
        kept = {one: row(virtual_engine, one).next_run_at for one in (due, waiting, handler, every, direct)}
        assert clear_zone_data(virtual_engine)[1] == 0
        assert {one: row(virtual_engine, one).next_run_at for one in kept} == kept

    def test_direct_write_survives_a_run(self, virtual_engine):
        """An instant written while the job ran is no plan of any zone data."""
        job = due_row(virtual_engine)
        holder = start(virtual_engine, claim(virtual_engine))
        edit(virtual_engine, job, next_run_at=NOW + DAY)
        holder.finish()
        old(virtual_engine)
        assert clear_zone_data(virtual_engine)[1] == 0

    def test_goes_through_all_rows_in_batches(self, virtual_engine):
        """Batch by batch every row is met once."""
        for _ in range(7):
            planned_row(virtual_engine)
        old(virtual_engine)
        after, cleared = ZERO, 0
        while after is not None:
            after, number = clear_zone_data(virtual_engine, after, 3)
            cleared += number
        assert cleared == 7


class TestClearFuture:
    def test_by_type_and_tenant(self, virtual_engine):
        """Bulk loads with triggers off are repaired by type or tenant; what is due stays."""
        mine, other = planned_row(virtual_engine), planned_row(virtual_engine, tenant_id="other")
        due = due_row(virtual_engine)
        with transaction(virtual_engine) as connection:
            _, cleared = replan.clear_future(connection, ZERO, 100, NOW, job_type="digest", tenant_id="acme")
        assert cleared == 1
        assert [row(virtual_engine, one).next_run_at for one in (mine, other, due)] == [None, NOW + HOUR, NOW]


class TestDeclarations:
    def test_unchanged_declaration_is_not_written(self, virtual_engine):
        """An empty tick writes no row of a type that it declared lately."""
        for minutes, seen in ((0, NOW), (10, NOW), (40, NOW + 40 * (HOUR / 60))):
            with transaction(virtual_engine) as connection:
                declarations.declare(connection, [("digest", "run", 10)], NOW + minutes * (HOUR / 60))
            assert sql(virtual_engine, "SELECT seen_at FROM cronless.job_type") == [(seen,)]

    def test_changed_declaration_is_written(self, virtual_engine):
        """Another batch size is noted at once."""
        for size in (10, 20):
            with transaction(virtual_engine) as connection:
                declarations.declare(connection, [("digest", "run", size)], NOW)
        assert sql(virtual_engine, "SELECT batch_size FROM cronless.job_type") == [(20,)]

    @pytest.mark.parametrize(("later", "names"), [(HOUR, ["digest"]), (25 * HOUR, [])])
    def test_forgotten_types(self, virtual_engine, later, names):
        """A type that no tick has declared for a day counts as undeclared."""
        with transaction(virtual_engine) as connection:
            declarations.declare(connection, [("digest", "run", 10)], NOW)
            assert declarations.declared_types(connection, NOW + later) == names


class TestProgress:
    def test_facts_are_kept_by_key(self, virtual_engine):
        """What one tick writes the next one reads, one fact or all."""
        with transaction(virtual_engine) as connection:
            assert read_one(connection, "a") is None
            write_progress(connection, "a", {"x": [1]}, NOW)
            write_progress(connection, "b", "text", NOW)
            write_progress(connection, "a", 2, NOW)
            assert read_progress(connection) == {"a": 2, "b": "text"}
            assert read_one(connection, "a") == 2
