from __future__ import annotations

import csv

import pytest

from cronless_dagster.scheduling.schedules import parse_schedule
from examples import make_schedules


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    """Return the rows of the file that the demo loads."""
    with make_schedules.MADE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_file_is_what_the_script_makes(rows: list[dict[str, str]]) -> None:
    """The committed file and its script have not drifted apart."""
    assert rows == [
        {column: row[column] for column in make_schedules.COLUMNS}
        for row in make_schedules.make(make_schedules.read_raw())
    ]


def test_size(rows: list[dict[str, str]]) -> None:
    """There are several hundred rows over all tenants and job types."""
    assert len(rows) == 447
    assert len({row["tenant"] for row in rows}) == make_schedules.TENANTS
    assert {row["job_type"] for row in rows} == set(make_schedules.JOB_TYPES)


def test_every_row_can_be_loaded(rows: list[dict[str, str]]) -> None:
    """Each schedule is read, and tenant, type and name tell the rows apart."""
    for row in rows:
        assert parse_schedule(row["expr"], row["timezone"] or "UTC").kind == "cron"
    assert len({(row["tenant"], row["job_type"], row["name"]) for row in rows}) == len(rows)


def test_what_is_left_out() -> None:
    """Only rows that no five-field cron reads are left out, and each says so when it is read."""
    out = [row["expr"] for row in make_schedules.read_raw() if not make_schedules.readable(row)]
    assert len(out) == 18
    assert all(
        expr.startswith("H ")
        or expr.split()[1] == "24"
        or "-2 " in expr
        or "-7 " in expr
        or "SAT-SUN" in expr
        for expr in out
    )
