"""Connections, transactions with limits, the clock, and errors that say what to do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from cronless_dagster.store.clock import current_time, make_virtual
from cronless_dagster.store.database import create_store_engine, drive_by_array, shared_engine, transaction
from cronless_dagster.store.errors import ClockError, DatabaseNotMigrated, DatabaseUnavailable
from tests.store.rows import HOUR, NOW, add_row, due_row, edit, row, sql


class TestAddress:
    @pytest.mark.parametrize(
        "scheme", ["postgresql", "postgresql+psycopg2", "postgresql+psycopg", "postgresql+asyncpg"]
    )
    def test_any_driver_becomes_ours(self, scheme):
        """Whatever driver an address names, the store uses psycopg 3, without prepared statements."""
        engine = create_store_engine(f"{scheme}://me@localhost/x")
        assert engine.url.drivername == "postgresql+psycopg"
        engine.dispose()

    @pytest.mark.parametrize("address", ["sqlite://", "mysql://x/y"])
    def test_other_databases_are_refused(self, address):
        """An address of another database is refused with the scheme to use."""
        with pytest.raises(DatabaseUnavailable, match="postgresql://"):
            create_store_engine(address)

    def test_one_engine_for_an_address(self, pg_url):
        """A sensor whose resources are set up anew at each tick keeps its connections."""
        assert shared_engine(pg_url) is shared_engine(pg_url)
        shared_engine(pg_url).dispose()


class TestErrors:
    def test_server_is_down(self):
        """A server that isn't there is one sentence with the address, without the password."""
        engine = create_store_engine("postgresql://me:secret@127.0.0.1:1/x")
        with pytest.raises(DatabaseUnavailable, match="start it, or correct") as caught, transaction(engine):
            pass
        assert "secret" not in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_database_is_missing(self, virtual_engine):
        """A database that doesn't exist is named as such."""
        engine = create_store_engine(str(virtual_engine.url.set(database="nowhere").render_as_string(False)))
        with pytest.raises(DatabaseUnavailable, match="nowhere"), transaction(engine):
            pass

    def test_schema_is_missing(self, empty_pg_url):
        """A database without our schema says which command to run."""
        engine = create_store_engine(empty_pg_url)
        with (
            pytest.raises(DatabaseNotMigrated, match="cronless db upgrade"),
            transaction(engine) as connection,
        ):
            current_time(connection)
        engine.dispose()

    def test_other_errors_pass_through(self, virtual_engine):
        """An error inside a transaction keeps its own kind."""
        with pytest.raises(ZeroDivisionError), transaction(virtual_engine):
            raise ZeroDivisionError


class TestTransaction:
    def test_statements_have_a_limit(self, virtual_engine):
        """A statement that takes too long is ended by the server."""
        with (
            pytest.raises(OperationalError, match="timeout"),
            transaction(virtual_engine, statement_timeout_ms=50) as connection,
        ):
            connection.execute(text("SELECT pg_sleep(20)"))

    def test_locks_have_a_limit(self, virtual_engine):
        """A lock that isn't given in time is an error, not a wait for ever."""
        job = add_row(virtual_engine)
        with virtual_engine.begin() as holder:
            holder.execute(text("SELECT 1 FROM cronless.scheduled_job FOR UPDATE"))
            with (
                pytest.raises(OperationalError, match="lock timeout"),
                transaction(virtual_engine, lock_timeout_ms=50) as connection,
            ):
                connection.execute(text("UPDATE cronless.scheduled_job SET name = 'x'"))
        assert row(virtual_engine, job).name != "x"

    def test_settings_end_with_the_transaction(self, virtual_engine):
        """Zone, limits and planner settings are of one transaction."""
        with virtual_engine.connect() as connection:
            before = connection.execute(text("SELECT name, setting FROM pg_settings ORDER BY 1")).all()
        with transaction(virtual_engine) as connection:
            drive_by_array(connection)
            assert connection.scalar(text("SHOW TimeZone")) == "UTC"
            assert connection.scalar(text("SHOW enable_seqscan")) == "off"
        with virtual_engine.connect() as connection:
            assert (
                connection.execute(text("SELECT name, setting FROM pg_settings ORDER BY 1")).all() == before
            )


class TestClock:
    def test_production_uses_the_databases_clock(self, engine):
        """A database on real time answers with its own clock, in UTC."""
        with transaction(engine) as connection:
            now = current_time(connection)
        assert now.utcoffset() == timedelta(0)
        assert abs(now - datetime.now(UTC)) < timedelta(minutes=5)

    def test_another_now_is_refused_on_real_time(self, engine):
        """A database that isn't marked takes no other instant, so that nobody fires a year by a typing error."""
        with pytest.raises(ClockError, match="runs on real time"), transaction(engine) as connection:
            current_time(connection, NOW)
        assert sql(engine, "SELECT virtual_now FROM cronless.clock") == [(None,)]

    def test_naive_now_is_refused(self, virtual_engine):
        """An instant without a zone is refused with an example."""
        with pytest.raises(ClockError, match="has no zone"), transaction(virtual_engine) as connection:
            current_time(connection, NOW.replace(tzinfo=None))

    def test_virtual_clock_governs_everything(self, virtual_engine):
        """The instant given to one caller is the time of all others, of defaults and of the edit trigger."""
        elsewhere = NOW.astimezone(timezone(HOUR * 9)) + HOUR
        with transaction(virtual_engine) as connection:
            assert current_time(connection, elsewhere) == NOW + HOUR
        with transaction(virtual_engine) as connection:
            assert current_time(connection) == NOW + HOUR
        job = due_row(virtual_engine, NOW + HOUR)
        assert row(virtual_engine, job).created_at == NOW + HOUR
        # Due by the virtual clock, years ago or ahead by the real one.
        edit(virtual_engine, job, schedule="@daily")
        assert row(virtual_engine, job).next_run_at == NOW + HOUR

    def test_same_instant_is_not_written_again(self, virtual_engine):
        """Dispatchers that are given the same instant don't wait for each other."""
        with transaction(virtual_engine) as first, transaction(virtual_engine, lock_timeout_ms=50) as second:
            assert current_time(first, NOW) == current_time(second, NOW)

    def test_marking(self, engine):
        """A database is marked once, by hand, and then takes any instant."""
        make_virtual(engine, NOW)
        with transaction(engine) as connection:
            assert current_time(connection, NOW + HOUR) == NOW + HOUR
