"""Small facts that ticks leave for each other: how far a sweep is, when retention ran, the last tick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, bindparam, text
from sqlalchemy.dialects.postgresql import JSONB

if TYPE_CHECKING:
    from datetime import datetime

_READ = text("SELECT key, value FROM cronless.progress")
_READ_ONE = text("SELECT value FROM cronless.progress WHERE key = :key")
_WRITE = text(
    "INSERT INTO cronless.progress (key, value, updated_at) VALUES (:key, :value, :now)"
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at"
).bindparams(bindparam("value", type_=JSONB))


def read_progress(connection: Connection) -> dict[str, Any]:
    """Return all facts by key."""
    return {row.key: row.value for row in connection.execute(_READ)}


def read_one(connection: Connection, key: str) -> Any:
    """Return one fact, or None."""
    return connection.execute(_READ_ONE, {"key": key}).scalar()


def write_progress(connection: Connection, key: str, value: Any, now: datetime) -> None:
    """Set one fact; the value must be JSON."""
    connection.execute(_WRITE, {"key": key, "value": value, "now": now})
