"""The three roles: what each may do, and that it may do no more."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from sqlalchemy import event
from sqlalchemy.exc import ProgrammingError

from cronless_dagster.store.database import create_store_engine, require_current
from tests.store.rows import NOW, add_row, claim, due_row, edit, exists, outcomes, row, sql, tick

DENIED = "permission denied"


@pytest.fixture
def engine_as(virtual_engine):
    """Make engines whose every connection acts as a role."""
    made = []

    def as_role(role):
        engine = create_store_engine(virtual_engine.url.render_as_string(hide_password=False))

        @event.listens_for(engine, "connect")
        def become(connection, _record) -> None:
            connection.execute(f"SET SESSION AUTHORIZATION {role}")
            connection.commit()

        made.append(virtual_engine)
        return engine

    yield as_role
    for engine in made:
        engine.dispose()


class TestApp:
    def test_may_ask_for_the_schema(self, engine_as):
        """The command line works for the application: it asks for the schema's version first."""
        require_current(engine_as("cronless_app"))

    def test_edits_rows(self, virtual_engine, engine_as):
        """The application adds, edits and removes rows, and its edits replan as everybody's."""
        app = engine_as("cronless_app")
        ahead = datetime(2099, 1, 1, tzinfo=UTC)
        job = add_row(app, next_run_at=ahead)
        edit(app, job, schedule="@daily")
        assert row(app, job).next_run_at is None
        assert row(app, job).plan_version == 1
        sql(app, "DELETE FROM cronless.scheduled_job WHERE id = :id", id=job)
        assert not exists(virtual_engine, job)

    def test_delete_of_a_claimed_row(self, virtual_engine, engine_as):
        """The application's DELETE of a claimed row leaves a tombstone too."""
        app = engine_as("cronless_app")
        job = due_row(virtual_engine)
        claim(virtual_engine)
        sql(app, "DELETE FROM cronless.scheduled_job WHERE id = :id", id=job)
        assert row(virtual_engine, job).removed_at == NOW

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE cronless.job_claim SET state = 'CLOSED'",
            "DELETE FROM cronless.job_execution",
            "UPDATE cronless.clock SET virtual_now = now()",
            "SELECT cronless.cronless_finish(gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'success')",
            "SELECT cronless.drop_history_partition('2026-01-01')",
        ],
    )
    def test_leaves_the_machinery_alone(self, engine_as, statement):
        """The application writes neither claims nor history nor the clock."""
        with pytest.raises(ProgrammingError, match=DENIED):
            sql(engine_as("cronless_app"), statement)


class TestWorker:
    def test_lives_by_the_functions(self, virtual_engine, engine_as):
        """A worker starts, renews and finishes a job, and needs nothing else."""
        worker = engine_as("cronless_worker")
        job = due_row(virtual_engine)
        token, me = claim(virtual_engine, route="queue"), uuid4()
        values = {"job": job, "token": token, "me": me}
        [started] = sql(worker, "SELECT * FROM cronless.cronless_start(:job, :token, :me)", **values)
        assert started.tenant_id == "acme"
        assert sql(worker, "SELECT cronless.cronless_renew(:job, :token, :me)", **values)[0][0] is True
        finish = "SELECT cronless.cronless_finish(:job, :token, :me, 'success')"
        assert sql(worker, finish, **values)[0][0] == "accepted"

    @pytest.mark.parametrize(
        "statement",
        [
            "SELECT 1 FROM cronless.scheduled_job",
            "INSERT INTO cronless.scheduled_job (tenant_id, job_type, schedule) VALUES ('a', 'b', '@daily')",
            "UPDATE cronless.scheduled_job SET status = 'DONE'",
            "DELETE FROM cronless.scheduled_job",
            "SELECT 1 FROM cronless.job_claim",
            "SELECT 1 FROM cronless.job_execution",
            "SELECT cronless.ensure_history_partition('2030-01-01')",
            "SELECT cronless.drop_history_partition('2030-01-01')",
            "CREATE TABLE cronless.mine (id integer)",
        ],
    )
    def test_may_do_nothing_else(self, engine_as, statement):
        """A worker reads and writes no table."""
        with pytest.raises(ProgrammingError, match=DENIED):
            sql(engine_as("cronless_worker"), statement)


class TestDispatcher:
    def test_ticks_and_runs(self, virtual_engine, engine_as):
        """The dispatcher's role does a whole tick and a whole run, retention of history included."""
        dispatcher = engine_as("cronless_dispatcher")
        sql(virtual_engine, "SELECT cronless.ensure_history_partition('2020-01-01')")
        job, unplanned = due_row(virtual_engine), add_row(virtual_engine)
        report, [ran] = tick(dispatcher)
        assert (report.errors, ran.succeeded) == ([], 1)
        assert outcomes(virtual_engine, job) == ["success"]
        assert row(virtual_engine, unplanned).next_run_at is not None
        assert sql(virtual_engine, "SELECT to_regclass('cronless.job_execution_20200101')")[0][0] is None

    def test_makes_a_missing_partition(self, engine_as):
        """A day without a partition gets one from the dispatcher, which owns no table."""
        assert sql(
            engine_as("cronless_dispatcher"), "SELECT cronless.ensure_history_partition('2030-01-01')"
        )[0][0]

    @pytest.mark.parametrize(
        "statement", ["DROP TABLE cronless.job_claim", "CREATE TABLE cronless.mine (id integer)"]
    )
    def test_changes_no_schema(self, engine_as, statement):
        """The dispatcher can't change the schema."""
        with pytest.raises(ProgrammingError, match=r"must be owner|permission denied"):
            sql(engine_as("cronless_dispatcher"), statement)


class TestEverybody:
    def test_public_may_do_nothing(self, virtual_engine, engine_as):
        """A user without one of the roles has no way into the schema."""
        sql(virtual_engine, "DROP ROLE IF EXISTS cronless_test_stranger")
        sql(virtual_engine, "CREATE ROLE cronless_test_stranger")
        try:
            stranger = engine_as("cronless_test_stranger")
            with pytest.raises(ProgrammingError, match=DENIED):
                sql(stranger, "SELECT cronless.clock_now()")
            stranger.dispose()
        finally:
            sql(virtual_engine, "DROP ROLE cronless_test_stranger")

    def test_functions_have_a_fixed_search_path(self, virtual_engine):
        """No function that runs with its owner's rights looks names up where a caller can put some."""
        rows = sql(
            virtual_engine,
            "SELECT proname, proconfig FROM pg_proc WHERE pronamespace = 'cronless'::regnamespace AND prosecdef",
        )
        assert len(rows) >= 5
        assert all("search_path=pg_catalog, pg_temp" in one.proconfig for one in rows)
