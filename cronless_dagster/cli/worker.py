"""`cronless worker`: run the jobs of the queue route until told to end."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

import click

from cronless_dagster.cli.failures import InputError
from cronless_dagster.cli.invocation import Invocation, database_options, pass_invocation
from cronless_dagster.cli.log_lines import log_as_lines
from cronless_dagster.cli.parameters import TEXT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cronless_dagster.engine.job_types import JobTypes
    from cronless_dagster.rabbitmq.address import Broker

_SHOW_CURSOR = "\x1b[?25h"


@click.command()
@click.argument("types", metavar="[TYPE]...", nargs=-1, type=TEXT)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 1_000),
    default=8,
    show_default=True,
    help="Handlers called at once.",
)
@click.option("--handlers", type=TEXT, metavar="MODULE", help="Instead of CRONLESS_JOB_TYPES.")
@click.option(
    "--drain",
    type=click.FloatRange(0, 86_400),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long running handlers may take to end once the worker is told to.",
)
@database_options
@pass_invocation
def worker(
    invocation: Invocation,
    types: tuple[str, ...],
    concurrency: int,
    handlers: str | None,
    drain: float,
    as_json: bool,
) -> int:
    """Run the jobs of the job types named, else of all that take the queue route.

    Ctrl-C or SIGTERM ends it in order: what runs may end, what doesn't run goes back. A second one ends it at once.
    Any number of workers may run, on any machine. With --json it prints a line whenever something has changed.
    """
    from cronless_dagster.cli.worker_progress import progress
    from cronless_dagster.rabbitmq.consumer import Consumer
    from cronless_dagster.worker.loop import Worker

    declared = invocation.job_types(handlers, option="--handlers")
    names = types or _on_the_queue_route(declared)
    broker = _broker(invocation)
    stopping = Event()
    states: list[str] = ["connecting"]

    def tell(state: str) -> None:
        # Each further attempt would else hide why the last one failed.
        if state != "connecting":
            states.append(state)

    consumer = Consumer(broker, names, prefetch=concurrency, on_state=tell)
    engine = invocation.engine()
    served = Worker(engine, declared, names, consumer, concurrency=concurrency, drain_seconds=drain)
    _log_as_lines(as_json=as_json)
    invocation.telemetry("cronless-worker", engine, served)
    with _ended_by_signals(stopping), progress(served, states, stopping, as_json=as_json):
        served.run(stopping)
    return 0


def _on_the_queue_route(declared: JobTypes) -> tuple[str, ...]:
    names = tuple(one.name for one in declared if one.route == "queue")
    if not names:
        raise InputError(
            f"none of the {len(declared)} job types declared here takes the queue route: declare one with"
            ' route="queue", or name its module by --handlers'
        )
    return names


def _broker(invocation: Invocation) -> Broker:
    broker = invocation.broker(f"cronless-worker {socket.gethostname()} {os.getpid()}")
    if broker is None:
        raise InputError(
            "no broker is named: set CRONLESS_BROKER_URL to an address such as"
            " amqps://user:password@host/virtual-host"
        )
    return broker


@contextmanager
def _ended_by_signals(stopping: Event) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM set `stopping`, and the second one end the process where it stands."""

    def end(number: int, _: object) -> None:
        if not stopping.is_set():
            stopping.set()
            return
        if sys.stdout.isatty():
            os.write(sys.stdout.fileno(), _SHOW_CURSOR.encode())
        os._exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _log_as_lines(*, as_json: bool) -> None:
    """Let handlers and the worker log to stderr; what is said about the connection is shown as its state."""
    log_as_lines(as_json=as_json)
    for name in ("pika", "cronless_dagster.rabbitmq"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
