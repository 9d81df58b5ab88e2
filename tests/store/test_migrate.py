"""Migrations: from an empty and a populated database, beside Dagster's own tables, side by side, too new."""

from __future__ import annotations

import threading
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from cronless_dagster.store import migrate, revision
from cronless_dagster.store.database import create_store_engine, require_current
from cronless_dagster.store.errors import DatabaseNewer, DatabaseNotMigrated, DatabaseUnavailable
from cronless_dagster.store.migrate import upgrade
from cronless_dagster.store.tables import metadata
from tests.store.rows import add_row, claim_row, row, sql


@pytest.fixture
def empty_engine(empty_pg_url):
    """An engine on a database that knows nothing of us."""
    engine = create_store_engine(empty_pg_url)
    yield engine
    engine.dispose()


def revisions(engine):
    """Return the revision tables of the database with what they hold."""
    found = sql(engine, "SELECT schemaname FROM pg_tables WHERE tablename = 'alembic_version' ORDER BY 1")
    return {
        one.schemaname: [
            rev.version_num for rev in sql(engine, f"SELECT * FROM {one.schemaname}.alembic_version")
        ]
        for one in found
    }


def dagster_storage(url):
    """Make Dagster's run storage, with its tables, in the database."""
    from dagster_postgres import PostgresRunStorage

    return PostgresRunStorage(postgres_url=url)


class TestUpgrade:
    def test_empty_database(self, empty_pg_url, empty_engine):
        """An empty database gets everything, and the answer says from which revision to which."""
        assert upgrade(empty_pg_url) == (None, revision.HEAD)
        assert revisions(empty_engine) == {"cronless": [revision.HEAD]}
        require_current(empty_engine)

    def test_repeated_upgrade_keeps_the_rows(self, engine, pg_url):
        """An upgrade of a current, populated database changes nothing."""
        job = add_row(engine, payload='{"a": 1}')
        before = row(engine, job)
        assert upgrade(pg_url) == (revision.HEAD, revision.HEAD)
        assert row(engine, job) == before

    def test_everything_lives_in_our_schema(self, empty_pg_url, empty_engine):
        """Nothing of ours is made in the schema public."""
        upgrade(empty_pg_url)
        strays = sql(empty_engine, "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace")
        assert strays == []

    def test_failed_migration_leaves_nothing(self, empty_pg_url, empty_engine):
        """A migration that fails half way is rolled back whole."""
        sql(empty_engine, "CREATE SCHEMA cronless")
        sql(empty_engine, "CREATE TABLE cronless.job_claim (id integer)")
        with pytest.raises(Exception, match="already exists"):
            upgrade(empty_pg_url)
        assert [one.relname for one in sql(empty_engine, _OURS)] == ["job_claim"]

    def test_several_at_once(self, empty_pg_url, empty_engine):
        """Processes that migrate at the same time wait for each other, and one of them does it."""
        answers, errors = [], []

        def run() -> None:
            try:
                answers.append(upgrade(empty_pg_url))
            except Exception as error:  # noqa: BLE001 - any error at all fails the test
                errors.append(error)

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert errors == []
        assert sorted(before or "" for before, _ in answers) == ["", *[revision.HEAD] * 3]
        assert revisions(empty_engine) == {"cronless": [revision.HEAD]}


def upgrade_to(engine, to):
    """Migrate to an older revision, as its release did."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrate.__file__).parent / "migrations"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, to)


class TestFromTheFirstRelease:
    """A database of revision 0001, in use, gets the queue route's part."""

    @pytest.fixture
    def first_release(self, empty_pg_url, empty_engine):
        """A database of revision 0001."""
        upgrade_to(empty_engine, "0001")
        return empty_engine

    def test_is_refused_until_it_is_migrated(self, first_release, empty_pg_url):
        """It is old, not missing and not newer: the command to run is named, and mends it."""
        with pytest.raises(
            DatabaseNotMigrated, match="no current cronless schema: run `cronless db upgrade`"
        ):
            require_current(first_release)
        assert upgrade(empty_pg_url) == ("0001", revision.HEAD)
        require_current(first_release)

    def test_keeps_what_is_claimed_and_what_runs(self, first_release, empty_pg_url):
        """No row and no claim changes; what was claimed before starts after, and its claim notes the start."""
        waiting, claimed, begun = (add_row(first_release, name=name) for name in ("a", "b", "c"))
        token, me = uuid4(), uuid4()
        sql(
            first_release,
            "INSERT INTO cronless.job_claim (id, job_type, route, id_low, job_count, lease_seconds, lease_expires_at,"
            " created_at) VALUES (:id, 'digest', 'queue', :low, 2, 600, now(), now())",
            id=token,
            low=UUID(int=0),
        )
        sql(
            first_release,
            "UPDATE cronless.scheduled_job SET status = 'QUEUED', claim_id = :token, serving_at = now(),"
            " due_at = now(), plan_count = plan_count + 1 WHERE id = ANY(:ids)",
            token=token,
            ids=[claimed, begun],
        )
        starts = "SELECT * FROM cronless.cronless_start(:job, :token, :me)"
        assert len(sql(first_release, starts, job=begun, token=token, me=me)) == 1
        before = [row(first_release, one) for one in (waiting, claimed, begun)]
        claim_before = claim_row(first_release, token)._asdict()
        assert claim_before["started_at"] is None
        upgrade(empty_pg_url)
        assert [row(first_release, one) for one in (waiting, claimed, begun)] == before
        assert claim_row(first_release, token)._asdict() == {
            **claim_before,
            "published_to": None,
            "alone": False,
        }
        assert len(sql(first_release, starts, job=claimed, token=token, me=uuid4())) == 1
        assert claim_row(first_release, token).started_at is not None
        [finished] = sql(
            first_release,
            "SELECT cronless.cronless_finish(:job, :token, :me, 'success')",
            job=begun,
            token=token,
            me=me,
        )
        assert finished == ("accepted",)

    def test_keeps_who_may_start(self, first_release, empty_pg_url):
        """The function is replaced, not made anew: workers' role may call it, and nobody else by default."""
        allowed = "SELECT proname, proacl FROM pg_proc WHERE pronamespace = 'cronless'::regnamespace"
        before = dict(map(tuple, sql(first_release, allowed)))
        upgrade(empty_pg_url)
        after = dict(map(tuple, sql(first_release, allowed)))
        assert {name: after[name] for name in before} == before
        assert not [name for name, who in after.items() if any(one.startswith("=") for one in who)]


_OURS = "SELECT relname FROM pg_class WHERE relnamespace = 'cronless'::regnamespace AND relkind IN ('r', 'p')"


class TestBesideDagster:
    @pytest.mark.parametrize("first", ["dagster", "cronless"])
    def test_one_database(self, empty_pg_url, empty_engine, first):
        """Dagster's tables and ours are made in one database in either order, each with its own revisions."""
        if first == "cronless":
            upgrade(empty_pg_url)
        storage = dagster_storage(empty_pg_url)
        if first == "dagster":
            upgrade(empty_pg_url)
        assert storage.get_runs() == []
        found = revisions(empty_engine)
        assert found["cronless"] == [revision.HEAD]
        assert len(found["public"]) == 1
        assert found["public"] != found["cronless"]
        require_current(empty_engine)
        storage.upgrade()
        assert upgrade(empty_pg_url) == (revision.HEAD, revision.HEAD)


class TestVersions:
    def test_head_is_the_newest_migration(self):
        """The revision that the code asks for, known without Alembic, is the newest of the migrations."""
        config = Config()
        config.set_main_option("script_location", str(Path(migrate.__file__).parent / "migrations"))
        script = ScriptDirectory.from_config(config)
        assert script.get_heads() == [revision.HEAD]
        assert {one.revision for one in script.walk_revisions()} == set(revision.KNOWN)

    def test_newer_database_is_refused(self, engine, pg_url):
        """A database of a newer release is refused with what to do, by upgrade and by use, and isn't touched."""
        sql(engine, "UPDATE cronless.alembic_version SET version_num = '9999'")
        with pytest.raises(DatabaseNewer, match=r"'9999', newer than .* install the newer release"):
            upgrade(pg_url)
        with pytest.raises(DatabaseNewer, match="install the newer release"):
            require_current(engine)
        assert revisions(engine) == {"cronless": ["9999"]}

    def test_database_without_schema(self, empty_engine):
        """A database that was not migrated is refused with the command to run."""
        with pytest.raises(DatabaseNotMigrated, match="run `cronless db upgrade`"):
            require_current(empty_engine)

    def test_unreachable_database(self):
        """A server that is down is one sentence that hides the password."""
        with pytest.raises(DatabaseUnavailable, match="can't be reached") as caught:
            upgrade("postgresql://me:secret@127.0.0.1:1/none")
        assert "secret" not in str(caught.value)


class TestModels:
    def test_agree_with_the_migrations(self, engine):
        """The tables as the code knows them are those of the migrations: columns, types, defaults, indexes."""
        with engine.connect() as connection:
            context = MigrationContext.configure(
                connection,
                opts={
                    "include_schemas": True,
                    "compare_type": True,
                    "compare_server_default": True,
                    "version_table_schema": "cronless",
                    "include_name": lambda name, kind, _: (
                        kind != "table" or not name.startswith("job_execution_")
                    ),
                },
            )
            assert compare_metadata(context, metadata) == []

    def test_indexes_agree_to_the_letter(self, engine):
        """Each index is over the same columns and for the same rows as the code says."""
        in_database = _index_definitions(engine)
        with engine.begin() as connection:
            connection.execute(text("DROP SCHEMA cronless CASCADE"))
            connection.execute(text("CREATE SCHEMA cronless"))
            connection.execute(
                text(
                    "CREATE FUNCTION cronless.clock_now() RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'"
                )
            )
            metadata.create_all(connection)
        assert _index_definitions(engine) == in_database

    def test_tables_are_kept_fit(self, engine):
        """The tables that every occurrence writes leave room in their pages and are vacuumed early."""
        for table in ("scheduled_job", "job_claim"):
            [found] = sql(
                engine,
                "SELECT reloptions FROM pg_class WHERE oid = CAST(:name AS regclass)",
                name=f"cronless.{table}",
            )
            options = dict(one.split("=") for one in found.reloptions)
            assert 70 <= int(options["fillfactor"]) <= 80
            assert options["autovacuum_vacuum_scale_factor"] == "0.01"
            assert options["autovacuum_vacuum_cost_delay"] == "0"


def _index_definitions(engine):
    rows = sql(
        engine,
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'cronless' AND tablename !~ '^job_execution_[0-9]'"
        " AND tablename <> 'alembic_version' ORDER BY indexname",
    )
    return [one.indexdef for one in rows]
