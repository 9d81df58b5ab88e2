"""Engines and transactions: the only place where connections are made.

Works behind PgBouncer in transaction mode: settings are made by `set_config(…, is_local => true)` inside the
transaction, no named prepared statements, no LISTEN, advisory locks only for a transaction.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Connection, Engine, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError
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
_UNDEFINED_TABLE = "42P01"
_INVALID_SCHEMA = "3F000"


def create_store_engine(url: str, *, pooled: bool = True) -> Engine:
    """Return an engine on psycopg 3 for a `postgresql://…` URL, whatever driver the URL names.

    :param pooled: keep up to five connections; without, each transaction connects anew.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() != "postgresql":
        raise DatabaseUnavailable(
            f"the database address starts with {parsed.drivername!r}: give one that starts with postgresql://"
        )
    # Driven by `prepare_threshold`: PgBouncer hands the next transaction another server connection.
    connect_args = {"prepare_threshold": None, "connect_timeout": CONNECT_TIMEOUT_SECONDS}
    if not pooled:
        return create_engine(parsed.set(drivername=DRIVER), connect_args=connect_args, poolclass=NullPool)
    return create_engine(
        parsed.set(drivername=DRIVER),
        connect_args=connect_args,
        pool_size=5,
        max_overflow=5,
        pool_pre_ping=True,
        pool_recycle=1_800,
    )


@lru_cache(maxsize=8)
def shared_engine(url: str) -> Engine:
    """Return this process's engine for a URL: a sensor's resources are set up anew at every tick."""
    return create_store_engine(url)


_LOCAL_SETTINGS = text(
    "SELECT set_config('statement_timeout', :statement_timeout, true),"
    " set_config('lock_timeout', :lock_timeout, true),"
    " set_config('TimeZone', 'UTC', true),"
    " set_config('jit', 'off', true)"
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


_INDEX_ORDER = text("SELECT set_config('enable_sort', 'off', true)")


def follow_index_order(connection: Connection) -> None:
    """Make the rest of this transaction read what is due in the order of its index, and stop at the limit.

    With few rows due when the statistics were made, fetching all that is due by another index and sorting it
    looks as good, and is not when a hundred thousand have become due since.
    """
    connection.execute(_INDEX_ORDER)


@contextmanager
def transaction(
    engine: Engine,
    *,
    statement_timeout_ms: int = STATEMENT_TIMEOUT_MS,
    lock_timeout_ms: int = LOCK_TIMEOUT_MS,
) -> Iterator[Connection]:
    """Open a transaction with time limits; commits at the end, rolls back on an exception.

    :raises DatabaseUnavailable: no connection could be made.
    :raises DatabaseNotMigrated: the schema `cronless` isn't there.
    """
    with translated_errors(engine), engine.begin() as connection:
        connection.execute(
            _LOCAL_SETTINGS,
            {"statement_timeout": str(statement_timeout_ms), "lock_timeout": str(lock_timeout_ms)},
        )
        yield connection


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


_IN_THE_WAY = ("40P01", "55P03")  # a deadlock broken at our cost, a lock not given in time
PATIENCE_SECONDS = 600.0


def patiently(write: Callable[[], _T]) -> _T:
    """Run a whole transaction, and again as long as somebody's locks are in its way.

    For results that would be lost otherwise: an edit of all rows in one statement may hold their locks for minutes.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return write()
        except OperationalError as error:
            if getattr(error.orig, "sqlstate", None) not in _IN_THE_WAY or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


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
        f"the database at {_shown(engine)} has no current cronless schema: run `cronless db upgrade`"
    )


def _shown(engine: Engine) -> str:
    # SQLAlchemy hides the login's password, and leaves one in the query as it is.
    return without_password(engine.url.set(drivername="postgresql").render_as_string(hide_password=True))


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else type(error.orig).__name__
