"""Asking checks in the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cronless_dagster.checks.declaring import Asked
from cronless_dagster.scheduling.shards import FULL
from tests.engine.support import NOON, types_of

if TYPE_CHECKING:
    from sqlalchemy import Engine


def asked(engine: Engine, **values: Any) -> Asked:
    """Return what a check is asked with: all ids, at noon, unless told otherwise."""
    return Asked(**{"engine": engine, "ids": FULL, "now": NOON, "job_types": types_of(), **values})
