"""`cronless demo`: real schedules become runs in the Dagster UI, on one machine and one command."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cronless_dagster.demo import JOB_TYPES_MODULE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from cronless_dagster.demo.stack import DagsterStack
    from cronless_dagster.demo.watch import Watcher

ROOT = Path(__file__).parents[2]
_LOOK_SECONDS = 2.0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command(short_help="Show it all on this machine: real schedules, runs in the Dagster UI.")
@click.option("--exit-after-runs", type=click.IntRange(min=1), help="End once so many runs have succeeded.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=3000, show_default=True, help="Of the UI; 0: any free."
)
@click.option(
    "--schedules",
    type=click.Path(path_type=Path, dir_okay=False),
    default=ROOT / "examples" / "schedules.csv",
    help="CSV of schedules to load into an empty database.",
)
@click.option(
    "--give-up-after",
    type=click.IntRange(min=1),
    default=900,
    show_default=True,
    help="With --exit-after-runs: fail after so many seconds.",
)
def demo(exit_after_runs: int | None, port: int, schedules: Path, give_up_after: int) -> None:
    """Load real schedules, start Dagster with the tick sensor, and show jobs being claimed and run.

    The data stay under CRONLESS_HOME (.cronless); a second demo goes on with them. Ctrl-C ends everything.
    """
    from cronless_dagster.demo.load import load_schedules
    from cronless_dagster.demo.stack import DagsterStack
    from cronless_dagster.demo.tables import make_tables
    from cronless_dagster.demo.watch import Watcher
    from cronless_dagster.engine.job_types import load_job_types
    from cronless_dagster.engine.tick import tick
    from cronless_dagster.settings import Settings
    from cronless_dagster.store.clock import current_time
    from cronless_dagster.store.database import create_store_engine, transaction
    from cronless_dagster.store.embedded import EmbeddedPostgres
    from cronless_dagster.store.migrate import upgrade

    home = Settings.from_env(os.environ).home.resolve()
    with _terminated_as_interrupt(), EmbeddedPostgres(home / "postgres") as postgres:
        url = postgres.url("cronless")
        _say(f"PostgreSQL is up: {url}")
        upgrade(url)
        engine = create_store_engine(url)
        make_tables(engine)
        added, there = load_schedules(engine, schedules)
        _say(
            f"{added:,} real schedules loaded for made-up tenants"
            if added
            else f"going on with {there:,} jobs"
        )
        planned = tick(engine, load_job_types(JOB_TYPES_MODULE)).planned
        if planned:
            _say(f"{planned:,} jobs planned")
        _say("starting Dagster (about half a minute)")
        environment = {
            "CRONLESS_DATABASE_URL": url,
            "CRONLESS_JOB_TYPES": JOB_TYPES_MODULE,
            "DAGSTER_POSTGRES_URL": url,
        }
        with transaction(engine) as connection:
            since = current_time(connection)
        config = ROOT / "dagster.yaml"
        with DagsterStack(home / "dagster", environment, instance_config=config, port=port) as stack:
            _say(f"Dagster's UI: {stack.address}/runs   (Ctrl-C ends the demo)")
            _say("the sensor asks each minute what is due; a run starts some seconds after its tick")
            watcher = Watcher(engine, since, f"{stack.address}/runs/")
            try:
                enough = _watch(stack, watcher, since, environment, exit_after_runs, give_up_after)
            except KeyboardInterrupt:
                _say("ending")
                enough = exit_after_runs is None
        _show_totals(watcher)
        engine.dispose()
    if not enough:
        sys.exit(1)


def _watch(
    stack: DagsterStack,
    watcher: Watcher,
    since: datetime,
    environment: dict[str, str],
    exit_after_runs: int | None,
    give_up_after: int,
) -> bool:
    """Print the news until enough runs have succeeded; False where they did not within the time."""
    succeeded = _SuccessfulRuns(stack.home, environment, since)
    deadline = time.monotonic() + give_up_after
    while True:
        for line in watcher.news():
            click.echo(line)
        stack.check()
        if exit_after_runs is not None:
            if succeeded.count() >= exit_after_runs:
                for line in watcher.news():
                    click.echo(line)
                _say(f"{exit_after_runs} runs have succeeded")
                return True
            if time.monotonic() > deadline:
                _say(
                    f"only {succeeded.count()} of {exit_after_runs} runs within {give_up_after} s; see {stack.logs}"
                )
                return False
        time.sleep(_LOOK_SECONDS)


class _SuccessfulRuns:
    """Counts Dagster's successful runs since an instant."""

    def __init__(self, home: Path, environment: dict[str, str], since: datetime) -> None:
        from dagster import DagsterInstance

        os.environ.update(environment)
        self._instance = DagsterInstance.from_config(str(home))
        self._since = since

    def count(self) -> int:
        from dagster import DagsterRunStatus, RunsFilter

        wanted = RunsFilter(statuses=[DagsterRunStatus.SUCCESS], created_after=self._since)
        return self._instance.get_runs_count(wanted)


def _show_totals(watcher: Watcher) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="this demo", title_justify="left")
    table.add_column("job type")
    for name in ("claimed", "done", "failed", "late"):
        table.add_column(name, justify="right")
    totals = watcher.totals()
    for one in totals:
        table.add_row(one.job_type, *(f"{n:,}" for n in (one.claimed, one.done, one.failed, one.late)))
    table.add_section()
    table.add_row(
        "all",
        *(f"{sum(getattr(one, name) for one in totals):,}" for name in ("claimed", "done", "failed", "late")),
    )
    Console().print(table)


@contextmanager
def _terminated_as_interrupt() -> Iterator[None]:
    """Let SIGTERM and a closed terminal end the demo as Ctrl-C does, with everything it started."""

    def interrupt(*_: object) -> None:
        # A second one must not cut the ending short; that takes no longer than half a minute.
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    # A process that a script started in the background ignores Ctrl-C unless it is told otherwise; who asked for
    # a demo that outlives its terminal has hang-ups ignored, and gets it.
    before = {
        number: signal.signal(number, interrupt)
        for number in _ENDING
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(words: str) -> None:
    click.echo(f"* {words}")
