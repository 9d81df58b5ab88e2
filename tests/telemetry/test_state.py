"""How the schedule stands, as gauges."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cronless_dagster.store.database import create_store_engine, transaction
from cronless_dagster.store.declarations import declare
from cronless_dagster.store.status import Status, TypeStatus
from cronless_dagster.telemetry.metrics import MOST_VALUES, OTHER
from cronless_dagster.telemetry.state import LatestStatus, StateCollector
from tests.engine.support import NOON, add, after, nothing, sql, tick, types_of

if TYPE_CHECKING:
    import pytest
    from sqlalchemy import Engine

STATUS = Status(now=NOON, types=(), open_claims={})


def gauges(collector: StateCollector) -> dict[str, float]:
    """Return the samples: `name` or `name{value of the label}`."""
    found = {}
    for family in collector.collect():
        for sample in family.samples:
            label = "".join(f"{{{value}}}" for value in sample.labels.values())
            found[f"{sample.name}{label}"] = sample.value
    return found


def test_the_database_is_read(virtual_engine: Engine) -> None:
    """What is due, late, unclaimable and running, the longest wait, and the last tick's age."""
    types = types_of(nothing)
    for number in range(3):
        add(virtual_engine, name=f"{number}")
    add(virtual_engine, job_type="nobodys")
    tick(virtual_engine, types, now=NOON)
    sql(virtual_engine, "UPDATE cronless.scheduled_job SET next_run_at = :at", at=after(minutes=1))
    found = gauges(StateCollector(virtual_engine, after(minutes=11)))
    assert found["cronless_database_up"] == 1
    assert found["cronless_due_jobs{work}"] == found["cronless_late_jobs{work}"] == 3
    assert found["cronless_due_jobs{nobodys}"] == found["cronless_unclaimable_jobs{nobodys}"] == 1
    assert found["cronless_unclaimable_jobs{work}"] == 0
    assert found["cronless_oldest_due_seconds"] == 600
    assert found["cronless_last_tick_age_seconds"] == 660
    tick(virtual_engine, types, now=after(minutes=11), route="local")
    found = gauges(StateCollector(virtual_engine, after(minutes=12)))
    assert found["cronless_due_jobs{work}"] == 0
    assert found["cronless_last_tick_age_seconds"] == 60


def test_a_database_without_a_tick_has_no_age(engine: Engine) -> None:
    """Before the first tick nothing is said of its age."""
    found = gauges(StateCollector(engine))
    assert found["cronless_database_up"] == 1
    assert "cronless_last_tick_age_seconds" not in found


def test_a_database_that_is_away_leaves_no_stale_gauges(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing but that it is away; the log says why once, and without a password."""
    away = create_store_engine("postgresql://me:hunter2@127.0.0.1:1/none")
    collector = StateCollector(away)
    collector._latest._cache = 0.0
    with caplog.at_level(logging.WARNING):
        assert gauges(collector) == gauges(collector) == {"cronless_database_up": 0}
    [line] = [one.getMessage() for one in caplog.records if one.name.endswith("telemetry.state")]
    assert line.startswith('metrics.database_unread error="the database at ')
    assert "hunter2" not in line


def test_one_reads_for_all_who_ask() -> None:
    """However many ask at once, one reads; who comes within the time gets the same."""
    reads: list[int] = []
    going = threading.Event()

    def read() -> Status:
        reads.append(1)
        going.wait(10)
        return STATUS

    latest = LatestStatus(read, patience=10)
    got: list[Status | None] = []
    askers = [threading.Thread(target=lambda: got.append(latest.get())) for _ in range(8)]
    for asker in askers:
        asker.start()
    going.set()
    for asker in askers:
        asker.join(10)
    assert got == [STATUS] * 8
    assert latest.get() is STATUS
    assert len(reads) == 1


def test_a_slow_database_is_not_waited_for() -> None:
    """A scrape gets its answer while the database is still asked; the one that comes late is for the next."""
    going, done = threading.Event(), threading.Event()

    def read() -> Status:
        going.wait(10)
        done.set()
        return STATUS

    latest = LatestStatus(read, patience=0.01)
    assert latest.get() is None
    assert latest.get() is None
    going.set()
    assert done.wait(10)
    reader = latest._reader
    assert reader is not None
    reader.join(10)
    assert latest.get() is STATUS


def test_a_stale_status_is_not_shown_while_the_database_is_slow() -> None:
    """What was read once is no answer for a database that doesn't answer any more."""
    going = threading.Event()
    reads: list[int] = []

    def read() -> Status:
        reads.append(1)
        if len(reads) > 1:
            going.wait(10)
        return STATUS

    latest = LatestStatus(read, patience=10)
    assert latest.get() is STATUS
    latest._patience = 0.01
    latest._read_at -= 16
    assert latest.get() is None
    going.set()


def test_an_old_status_is_read_anew() -> None:
    """After its time what was read is not shown any more, and a failure takes its place."""
    later = replace(STATUS, now=NOON + timedelta(minutes=1))
    answers = [STATUS, later]
    latest = LatestStatus(lambda: answers.pop(0), cache=60.0)
    assert latest.get() is STATUS
    latest._read_at -= 61
    assert latest.get() is later
    latest._read_at -= 61
    assert latest.get() is None


def test_types_that_nobody_declares_are_bounded(engine: Engine) -> None:
    """Rows are written by others: of ever so many job types the declared ones keep a series, the last share one."""
    one = TypeStatus("t", True, 1, 0, 0, 0, 0, 0, 0, 0, 0, None)
    types = tuple(
        replace(one, job_type=f"{number:04}", declared=number > MOST_VALUES)
        for number in range(MOST_VALUES + 10)
    )
    latest = LatestStatus(lambda: replace(STATUS, types=types))
    found = gauges(StateCollector(engine, latest=latest))
    due = {name: value for name, value in found.items() if name.startswith("cronless_due_jobs")}
    assert len(due) == MOST_VALUES + 1
    assert due[f"cronless_due_jobs{{{OTHER}}}"] == 10
    assert f"cronless_due_jobs{{{MOST_VALUES + 5:04}}}" in due


def test_declared_types_are_shown_at_zero(engine: Engine) -> None:
    """A type that has nothing is a zero, so that an alert on it can end."""
    with transaction(engine) as connection:
        declare(connection, [("idle", "run", 10)], datetime.now(UTC))
    found = gauges(StateCollector(engine))
    assert found["cronless_late_jobs{idle}"] == 0
