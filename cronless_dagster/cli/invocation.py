"""One call of the command line: its settings, its database, and what is let go of at its end."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cronless_dagster.cli.failures import InputError
from cronless_dagster.cli.parameters import TEXT
from cronless_dagster.demo import JOB_TYPES_MODULE

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cronless_dagster.checks.declaring import Checks
    from cronless_dagster.engine.job_types import JobTypes
    from cronless_dagster.engine.queueing import Queue
    from cronless_dagster.rabbitmq.address import Broker
    from cronless_dagster.settings import Settings
    from cronless_dagster.worker.loop import Worker

_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])


class Invocation:
    """What the commands share; nothing is read or opened before a command asks for it."""

    def __init__(self, database_url: str | None = None) -> None:
        """Start with the address given on the command line, if one is."""
        self.database_url = database_url
        self._settings: Settings | None = None

    def settings(self) -> Settings:
        """Return the settings of the environment, the command line's address in place of the environment's.

        Raises:
            SettingsError: A setting can't be used.
        """
        from cronless_dagster.settings import Settings, SettingsError

        if self._settings is None:
            environment: Mapping[str, str] = os.environ
            if self.database_url is not None:
                kept = {
                    key: value for key, value in os.environ.items() if key != "CRONLESS_DATABASE_URL_FILE"
                }
                environment = {**kept, "CRONLESS_DATABASE_URL": self.database_url}
            try:
                self._settings = Settings.from_env(environment)
            except SettingsError as error:
                if self.database_url is None:
                    raise
                raise SettingsError(str(error).replace("CRONLESS_DATABASE_URL", "--database-url")) from error
        return self._settings

    def url(self) -> str:
        """Return the database's address; without one, hold the demo's PostgreSQL until the command ends.

        Raises:
            InputError: No address is set and there is no demo here.
            EmbeddedPostgresError: The demo's PostgreSQL can't be started.
        """
        settings = self.settings()
        if settings.database_url is not None:
            return settings.database_url
        directory = settings.home / "postgres"
        if not (directory / "data" / "PG_VERSION").is_file():
            raise InputError(
                "no database is named: set CRONLESS_DATABASE_URL to an address such as"
                " postgresql://user@host/database, give it as --database-url, or run `cronless demo` first"
            )
        from cronless_dagster.store.embedded import EmbeddedPostgres

        return click.get_current_context().with_resource(EmbeddedPostgres(directory)).url("cronless")

    def engine(self, *, migrated: bool = True) -> Engine:
        """Return an engine that is disposed of when the command ends.

        Args:
            migrated: Refuse a database whose schema isn't this code's.

        Raises:
            DatabaseUnavailable, DatabaseNotMigrated, DatabaseNewer: The database can't be used as it is.
        """
        from sqlalchemy.exc import ArgumentError

        from cronless_dagster.store.database import create_store_engine, require_current

        try:
            engine = create_store_engine(
                self.url(), statement_timeout_ms=self.settings().statement_timeout_ms
            )
        except ArgumentError as error:
            raise InputError(
                "the database's address can't be read: write one such as postgresql://user@host/database"
            ) from error
        click.get_current_context().call_on_close(engine.dispose)
        if migrated:
            require_current(engine)
        return engine

    def broker(self, connection_name: str) -> Broker | None:
        """Return the broker that the settings name, or None.

        Raises:
            SettingsError: A setting can't be used.
        """
        from cronless_dagster.rabbitmq.address import Broker

        return Broker.from_settings(self.settings(), connection_name=connection_name)

    def telemetry(self, service: str, engine: Engine, worker: Worker | None = None) -> None:
        """Show metrics and trace until the command ends, where the environment asks for it."""
        from cronless_dagster.telemetry import serving, tracing

        serving.start(self.settings(), service, engine, worker)
        click.get_current_context().call_on_close(tracing.shut_down)

    def checks(self) -> Checks:
        """Return the built-in checks and those of CRONLESS_CHECKS' modules, found as those of job types are.

        Raises:
            CheckError: A module can't be imported or registers no checks, or two have one name.
        """
        from cronless_dagster.checks.built_in import built_in
        from cronless_dagster.checks.loading import load_checks

        _look_here()
        found = built_in()
        for name in self.settings().checks:
            for check in load_checks(name).values():
                found.add(check)
        return found

    def queue(self, connection_name: str, types: JobTypes) -> Queue | None:
        """Return what connects to the broker, where one is named and a job type takes its route."""
        broker = self.broker(connection_name) if any(one.route == "queue" for one in types) else None
        if broker is None:
            return None
        from functools import partial

        from cronless_dagster.rabbitmq.publisher import Publisher

        return partial(Publisher, broker)

    def job_types(self, modules: str | None = None, *, option: str = "--job-types") -> JobTypes:
        """Return the job types of the modules given, else of CRONLESS_JOB_TYPES, else of the demo.

        Modules in the current directory are found, as Dagster finds them; `option` is where `modules` came from.

        Raises:
            JobTypeError: A module can't be imported or declares no job types, or two declare the same one.
            SettingsError: `modules` holds what can be no module's name.
        """
        from cronless_dagster.engine.job_types import JobTypes
        from cronless_dagster.settings import Settings, SettingsError

        names = self.settings().job_types
        if modules is not None:
            try:
                names = Settings.from_env({"CRONLESS_JOB_TYPES": modules}).job_types
            except SettingsError as error:
                raise SettingsError(str(error).replace("CRONLESS_JOB_TYPES", option)) from error
        merged = JobTypes()
        for name in names or (JOB_TYPES_MODULE,):
            for job_type in _load(name):
                merged.declare(job_type)
        return merged


def _look_here() -> None:
    """Let modules in the current directory be found, as Dagster finds them."""
    import sys

    if (here := os.getcwd()) not in sys.path:  # noqa: PTH109 - an entry of sys.path is a text
        sys.path.insert(0, here)


def _load(module: str) -> JobTypes:
    from cronless_dagster.engine.errors import JobTypeError
    from cronless_dagster.engine.job_types import load_job_types
    from cronless_dagster.scheduling.errors import CronlessError

    _look_here()
    try:
        return load_job_types(module)
    except CronlessError:
        raise
    except Exception as error:
        # A user's module may raise anything while it is imported.
        raise JobTypeError(
            f"module {module!r} with the job types can't be imported"
            f" ({type(error).__name__}: {error}): correct that module"
        ) from error


def _use_database(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Invocation).database_url = value


pass_invocation = click.make_pass_decorator(Invocation, ensure=True)


def json_option(command: _CommandT) -> _CommandT:
    """Add --json, which every command has."""
    return click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")(command)


def database_options(command: _CommandT) -> _CommandT:
    """Add what every command with a database has: its address, and --json."""
    address = click.option(
        "--database-url",
        metavar="URL",
        type=TEXT,
        expose_value=False,
        callback=_use_database,
        help="Instead of CRONLESS_DATABASE_URL.",
    )
    return json_option(address(command))
