"""The package as a whole: lazy, complete, typed."""

from __future__ import annotations

import subprocess
import sys

import pytest

import cronless_dagster

HEAVY = ("dagster", "sqlalchemy", "pandas", "pika", "psycopg", "alembic", "dateutil", "rich", "click")


@pytest.mark.parametrize("name", cronless_dagster.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """A lazy name that points nowhere would fail only at its first use."""
    assert getattr(cronless_dagster, name) is not None
    assert name in dir(cronless_dagster)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """The lazy loader doesn't hide a typing error."""
    with pytest.raises(AttributeError, match="parse_shedule"):
        _ = cronless_dagster.parse_shedule


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import cronless_dagster", ()),
        ("import cronless_dagster.settings", ()),
        ("from cronless_dagster import parse_schedule; parse_schedule('0 9 * * 1', 'Europe/Berlin')", ()),
    ],
)
def test_light_imports_stay_light(statement: str, allowed: tuple[str, ...]) -> None:
    """What the command line needs to explain a schedule loads neither Dagster nor the database."""
    code = f"import sys; {statement}; print(*(m for m in {HEAVY} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= set(allowed)
