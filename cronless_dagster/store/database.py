"""Engines and transactions: the only place where connections are made.

Works behind PgBouncer in transaction mode: settings are made by `set_config(…, is_local => true)` inside the
transaction, no named prepared statements, no LISTEN, advisory locks only for a transaction.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import NullPool

from cronless_dagster.settings import without_password
from cronless_dagster.store.errors import DatabaseNewer, DatabaseNotMigrated, DatabaseUnavailable
from cronless_dagster.store.revision import HEAD, KNOWN, SCHEMA, VERSION_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_T = TypeVar("_T")

DRIVER = "postgresql+psycopg"
CONNECT_TIMEOUT_SECONDS = 10
STATEMENT_TIMEOUT_MS = 15_000
LOCK_TIMEOUT_MS = 5_000
# An execution option of the engine, so that each transaction on it knows the limit.
_STATEMENT_TIMEOUT = "cronless_statement_timeout_ms"
_UNDEFINED_TABLE = "42P01"
_INVALID_SCHEMA = "3F000"


def create_store_engine(
    url: str | URL,
    *,
    pooled: bool = True,
    pool_size: int = 5,
    statement_timeout_ms: int = STATEMENT_TIMEOUT_MS,
) -> Engine:
    """Return an engine on psycopg 3 for a `postgresql://…` URL, whatever driver the URL names.

    :param pooled: keep connections; without, each transaction connects anew.
    :param pool_size: keep so many, and five more while they are needed.
    :param statement_timeout_ms: how long a statement may take, where a transaction doesn't say otherwise.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() != "postgresql":
        raise DatabaseUnavailable(
            f"the database address starts with {parsed.drivername!r}: give one that starts with postgresql://"
        )
    # Driven by `prepare_threshold`: PgBouncer hands the next transaction another server connection.
    connect_args = {"prepare_threshold": None, "connect_timeout": CONNECT_TIMEOUT_SECONDS}
    limits = {_STATEMENT_TIMEOUT: statement_timeout_ms}
    if not pooled:
        return create_engine(
            parsed.set(drivername=DRIVER),
            connect_args=connect_args,
            poolclass=NullPool,
            execution_options=limits,
            json_deserializer=_readable,
        )
    return create_engine(
        parsed.set(drivername=DRIVER),
        connect_args=connect_args,
        execution_options=limits,
        json_deserializer=_readable,
        pool_size=pool_size,
        max_overflow=5,
        pool_pre_ping=True,
        pool_recycle=1_800,
    )


def _readable(text: str | bytes) -> Any:
    # PostgreSQL takes numbers and depths that Python doesn't: one such value must not keep a whole list from being
    # read.
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return {"unreadable": str(error)}


@contextmanager
def engine_for_threads(engine: Engine, threads: int) -> Iterator[Engine]:
    """Give an engine on the same database with a connection for each of so many threads, for the block's length.

    Handlers that keep connections for long must not keep the run itself from renewing its lease and recording
    results. It connects when it is used. An engine without a pool is given as it is.
    """
    if isinstance(engine.pool, NullPool):
        yield engine
        return
    limit = engine.get_execution_options().get(_STATEMENT_TIMEOUT, STATEMENT_TIMEOUT_MS)
    own = create_store_engine(engine.url, pool_size=threads, statement_timeout_ms=limit)
    try:
        yield own
    finally:
        own.dispose()


@lru_cache(maxsize=8)
def shared_engine(url: str, statement_timeout_ms: int = STATEMENT_TIMEOUT_MS) -> Engine:
    """Return this process's engine for a URL: a sensor's resources are set up anew at every tick."""
    return create_store_engine(url, statement_timeout_ms=statement_timeout_ms)


_LOCAL_SETTINGS = text(
    "SELECT set_config('statement_timeout', :statement_timeout, true),"
    " set_config('lock_timeout', :lock_timeout, true),"
    " set_config('TimeZone', 'UTC', true),"
    " set_config('jit', 'off', true),"
    " set_config('enable_sort', :enable_sort, true)"
)

# The planner has no statistics of rows that come and go between two ANALYZEs (QUEUED, NULL instants), and
# would nest a scan of the id array inside a scan of the table. With these off it can only walk the array
# and look each id up.
_ARRAY_DRIVEN = text(
    "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),"
    " set_config('enable_mergejoin', 'off', true)"
)


def drive_by_array(connection: Connection) -> None:
    """Make the rest of this transaction look rows up by the ids of an array, one by one."""
    connection.execute(_ARRAY_DRIVEN)


@contextmanager
def transaction(
    engine: Engine,
    *,
    statement_timeout_ms: int | None = None,
    lock_timeout_ms: int = LOCK_TIMEOUT_MS,
    index_order: bool = False,
) -> Iterator[Connection]:
    """Open a transaction with time limits; commits at the end, rolls back on an exception.

    :param statement_timeout_ms: None: the engine's own.
    :param index_order: read what is due in the order of its index, and stop at the limit. With few rows due when
        the statistics were made, fetching all that is due by another index and sorting it looks as good to the
        planner, and is not when a hundred thousand have become due since.

    :raises DatabaseUnavailable: no connection could be made.
    :raises DatabaseNotMigrated: the schema `cronless` isn't there.
    """
    if statement_timeout_ms is None:
        statement_timeout_ms = engine.get_execution_options().get(_STATEMENT_TIMEOUT, STATEMENT_TIMEOUT_MS)
    with translated_errors(engine), engine.begin() as connection:
        connection.execute(
            _LOCAL_SETTINGS,
            {
                "statement_timeout": str(statement_timeout_ms),
                "lock_timeout": str(lock_timeout_ms),
                "enable_sort": "off" if index_order else "on",
            },
        )
        yield connection


@contextmanager
def statements_apart(engine: Engine) -> Iterator[Connection]:
    """Lend a connection on which each statement is a transaction of its own, without the round trips of one.

    For a single question that changes nothing and bounds its own waiting.

    :raises DatabaseUnavailable: no connection could be made.
    :raises DatabaseNotMigrated: the schema `cronless` isn't there.
    """
    with translated_errors(engine), engine.connect() as connection:
        yield connection.execution_options(isolation_level="AUTOCOMMIT")


@contextmanager
def translated_errors(engine: Engine) -> Iterator[None]:
    """Turn what a person can mend (server down, schema missing) into one clear sentence."""
    try:
        yield
    except OperationalError as error:
        # Without a connection there is no SQLSTATE; an error inside a transaction has one.
        if getattr(error.orig, "sqlstate", None) in (None, "28P01", "28000", "3D000", "57P03", "53300"):
            raise DatabaseUnavailable(
                f"the database at {_shown(engine)} can't be reached ({_first_line(error)}): "
                "start it, or correct CRONLESS_DATABASE_URL"
            ) from error
        raise
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) in (_UNDEFINED_TABLE, _INVALID_SCHEMA):
            raise _not_migrated(engine) from error
        raise


# Not serializable, a deadlock broken at our cost, a lock not given in time.
_IN_THE_WAY = ("40001", "40P01", "55P03")
# Connections, transactions, resources, operators' doings; a server that is read-only until it is promoted.
_PASSING = ("08", "40", "53", "57", "55P03", "25006")
RETRY_SECONDS = 0.5


def is_in_the_way(error: BaseException) -> bool:
    """Tell whether somebody else's locks kept a transaction from its end."""
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) in _IN_THE_WAY


def may_pass(error: BaseException) -> bool:
    """Tell whether the same transaction may succeed later: locks in the way, a server away or without room."""
    if isinstance(error, DBAPIError):
        state = getattr(error.orig, "sqlstate", None)
        if state is None:
            return error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)
        return str(state).startswith(_PASSING)
    return isinstance(error, DatabaseUnavailable | PoolTimeout)


def patiently(ask: Callable[[], _T], seconds: float) -> _T:
    """Run a whole transaction, and again for so long while what keeps it from its end may pass."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except (DatabaseUnavailable, SQLAlchemyError) as error:
            if not may_pass(error) or time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)


def schema_version(connection: Connection) -> str | None:
    """Return the revision of our schema, or None where there is none."""
    there = connection.scalar(text("SELECT to_regclass(:name)"), {"name": f"{SCHEMA}.{VERSION_TABLE}"})
    if there is None:
        return None
    found = connection.scalar(text(f"SELECT version_num FROM {SCHEMA}.{VERSION_TABLE}"))  # noqa: S608 - our names
    return None if found is None else str(found)


def require_current(engine: Engine) -> None:
    """Check that the schema is the one this code was written for.

    :raises DatabaseNotMigrated: missing or older.
    :raises DatabaseNewer: of a revision that this code doesn't know.
    """
    with transaction(engine) as connection:
        version = schema_version(connection)
    if version == HEAD:
        return
    if version is None or version in KNOWN:
        raise _not_migrated(engine)
    raise DatabaseNewer(
        f"the database at {_shown(engine)} has schema version {version!r}, newer than this code's {HEAD!r}: "
        "install the newer release"
    )


def _not_migrated(engine: Engine) -> DatabaseNotMigrated:
    return DatabaseNotMigrated(
        f"the database at {_shown(engine)} has no current cronless schema: run `cronless db upgrade`,"
        " with --assets where the ready-made assets are used"
    )


def _shown(engine: Engine) -> str:
    # SQLAlchemy hides the login's password, and leaves one in the query as it is.
    return without_password(engine.url.set(drivername="postgresql").render_as_string(hide_password=True))


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else type(error.orig).__name__
