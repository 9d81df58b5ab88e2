"""`cronless demo`: real schedules become runs in the Dagster UI, on one machine and one command."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cronless_dagster.demo import JOB_TYPES_MODULE
from cronless_dagster.demo.screen import near, say, show_totals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Engine

    from cronless_dagster.demo.stack import DagsterStack
    from cronless_dagster.demo.surroundings import Surroundings
    from cronless_dagster.rabbitmq.address import Broker

    News = Callable[[], Iterator[str]]

ROOT = Path(__file__).parents[2]
_LOOK_SECONDS = 2.0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What the environment says of other databases, brokers and mail servers is not for the demo's processes.
_NOT_OURS = (
    "CRONLESS_DATABASE_URL_FILE",
    "CRONLESS_BROKER_URL",
    "CRONLESS_BROKER_URL_FILE",
    "CRONLESS_BROKER_CA_FILE",
    "CRONLESS_BROKER_CERT_FILE",
    "CRONLESS_BROKER_KEY_FILE",
    "CRONLESS_BROKER_PREFIX",
    "CRONLESS_SMTP_URL",
    "CRONLESS_SMTP_URL_FILE",
)


@click.command(short_help="Show it all on this machine: real schedules, runs in the Dagster UI.")
@click.option(
    "--broker", "with_broker", is_flag=True, help="Two of the job types go through RabbitMQ to three workers."
)
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
def demo(
    *, with_broker: bool, exit_after_runs: int | None, port: int, schedules: Path, give_up_after: int
) -> None:
    """Load real schedules, start Dagster with the tick sensor, and show jobs being claimed and run.

    Accounts, users, feeds and the hub are made up and lie on this machine; nothing leaves it. The data stay under
    CRONLESS_HOME (.cronless), and a second demo goes on with them. Ctrl-C ends everything.
    """
    from cronless_dagster.demo.results import results
    from cronless_dagster.demo.surroundings import Surroundings
    from cronless_dagster.demo.watch import Watcher
    from cronless_dagster.settings import Settings
    from cronless_dagster.store.embedded import EmbeddedPostgres

    home = Settings.from_env(os.environ).home.resolve()
    with _terminated_as_interrupt(), ExitStack() as servers:
        # First, because it has to be installed: where it isn't, that is said at once.
        broker = _start_broker(servers, home) if with_broker else None
        url = servers.enter_context(EmbeddedPostgres(home / "postgres")).url("cronless")
        say(f"PostgreSQL is up: {url}")
        surroundings = Surroundings()
        engine = _prepared(url, schedules, surroundings.web)
        environment = dict.fromkeys(_NOT_OURS, "") | surroundings.environment(home)
        environment |= {
            "CRONLESS_DATABASE_URL": url,
            "CRONLESS_JOB_TYPES": JOB_TYPES_MODULE,
            "DAGSTER_POSTGRES_URL": url,
        }
        if broker is not None:
            environment["CRONLESS_BROKER_URL"] = broker.url
        since = _now(engine)
        with ExitStack() as processes:
            news = [_start_surroundings(processes, home, environment, surroundings)]
            if broker is not None:
                news += _start_workers(processes, home, environment, broker)
            stack = _start_dagster(processes, home, environment, port)
            watcher = Watcher(engine, since, f"{stack.address}/runs/")
            try:
                enough = _watch(
                    [watcher.news, *news, stack.news],
                    _SuccessfulRuns(stack, environment, since),
                    exit_after_runs,
                    give_up_after,
                )
            except KeyboardInterrupt:
                say("ending")
                enough = exit_after_runs is None
        show_totals(watcher.totals())
        for sentence in results(engine, home / "maildir"):
            say(sentence)
        engine.dispose()
    say(f"the data stay in {near(home)}, the logs in {near(home / 'logs')}; `cronless status` shows the jobs")
    if not enough:
        sys.exit(1)


def _start_broker(servers: ExitStack, home: Path) -> Broker:
    from cronless_dagster.rabbitmq.address import Broker
    from cronless_dagster.rabbitmq.private import PrivateBroker

    server = servers.enter_context(PrivateBroker(home / "rabbitmq"))
    broker = Broker(server.url, connection_name="cronless-demo")
    say(f"RabbitMQ is up: {broker.shown}")
    return broker


def _prepared(url: str, schedules: Path, server: str) -> Engine:
    """Return an engine on the database, migrated, with the schedules loaded and planned."""
    from cronless_dagster.assets.migrate import upgrade_assets
    from cronless_dagster.demo.load import load_schedules
    from cronless_dagster.engine.job_types import load_job_types
    from cronless_dagster.engine.tick import tick
    from cronless_dagster.store.database import create_store_engine
    from cronless_dagster.store.migrate import upgrade

    upgrade(url)
    upgrade_assets(url)
    engine = create_store_engine(url)
    added, there = load_schedules(engine, schedules, server)
    say(f"{added:,} real schedules loaded for made-up tenants" if added else f"going on with {there:,} jobs")
    planned = tick(engine, load_job_types(JOB_TYPES_MODULE)).planned
    if planned:
        say(f"{planned:,} jobs planned")
    return engine


def _now(engine: Engine) -> datetime:
    from cronless_dagster.store.clock import current_time
    from cronless_dagster.store.database import transaction

    with transaction(engine) as connection:
        return current_time(connection)


def _start_surroundings(
    processes: ExitStack, home: Path, environment: Mapping[str, str], surroundings: Surroundings
) -> News:
    started = processes.enter_context(surroundings.start(home / "logs", environment))
    say(f"made-up feeds and a hub: {surroundings.web}; callbacks for the hub: {surroundings.callbacks}")
    return started.news


def _start_workers(
    processes: ExitStack, home: Path, environment: Mapping[str, str], broker: Broker
) -> Sequence[News]:
    from cronless_dagster.demo.queues import WORKERS, QueueWatcher, start_workers
    from cronless_dagster.engine.job_types import load_job_types

    workers = processes.enter_context(start_workers(home / "logs", environment))
    queued = [one.name for one in load_job_types(JOB_TYPES_MODULE) if one.route == "queue"]
    say(f"{WORKERS} workers for {' and '.join(queued)}; their logs: {near(workers.logs)}/worker-*.log")
    say(f"in another terminal: CRONLESS_BROKER_URL={broker.shown} cronless status")
    return [QueueWatcher(broker, queued).news, workers.news]


def _start_dagster(
    processes: ExitStack, home: Path, environment: Mapping[str, str], port: int
) -> DagsterStack:
    from cronless_dagster.demo.stack import DagsterStack

    say("starting Dagster (about half a minute)")
    stack = processes.enter_context(
        DagsterStack(
            home / "dagster",
            environment,
            logs=home / "logs",
            instance_config=ROOT / "dagster.yaml",
            port=port,
        )
    )
    say(f"Dagster's UI: {stack.address}/runs   (Ctrl-C ends the demo)")
    say(f"tenants, digests and webhooks: {stack.address}/assets")
    say("the sensor asks each minute what is due; a run starts some seconds after its tick")
    return stack


def _watch(
    news: Sequence[News], succeeded: _SuccessfulRuns, exit_after_runs: int | None, give_up_after: int
) -> bool:
    """Print the news until enough runs have succeeded; False where they did not within the time."""

    def print_news() -> None:
        for one in news:
            for line in one():
                click.echo(line)

    deadline = time.monotonic() + give_up_after
    while True:
        print_news()
        if exit_after_runs is not None:
            if succeeded.count() >= exit_after_runs:
                print_news()
                say(f"{exit_after_runs} {'run has' if exit_after_runs == 1 else 'runs have'} succeeded")
                return True
            if time.monotonic() > deadline:
                found = f"only {succeeded.count()} of {exit_after_runs} runs within {give_up_after} s"
                say(f"{found}; see {near(succeeded.stack.logs)}")
                return False
        time.sleep(_LOOK_SECONDS)


class _SuccessfulRuns:
    """Counts the successful runs of claims since an instant: what Dagster runs of its own accord shows nothing yet."""

    def __init__(self, stack: DagsterStack, environment: Mapping[str, str], since: datetime) -> None:
        from dagster import DagsterInstance

        from cronless_dagster.engine.job_types import load_job_types

        os.environ.update(environment)
        self.stack = stack
        self._instance = DagsterInstance.from_config(str(stack.home))
        self._since = since
        self._job_types = [one.name for one in load_job_types(JOB_TYPES_MODULE)]

    def count(self) -> int:
        from dagster import DagsterRunStatus, RunsFilter

        from cronless_dagster.engine.run_requests import JOB_TYPE_TAG

        wanted = RunsFilter(
            statuses=[DagsterRunStatus.SUCCESS],
            tags={JOB_TYPE_TAG: self._job_types},
            created_after=self._since,
        )
        return self._instance.get_runs_count(wanted)


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
