"""Which schema this code needs, known without importing Alembic."""

from __future__ import annotations

SCHEMA = "cronless"
VERSION_TABLE = "alembic_version"
HEAD = "0004"
KNOWN = ("0001", "0002", "0003", HEAD)
