"""`cronless serve`: the check API, and beside it health and metrics on an address of their own."""

from __future__ import annotations

import logging
from ipaddress import ip_network
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from cronless_dagster.cli.api import read_access
from cronless_dagster.cli.failures import FAILED, InputError
from cronless_dagster.cli.invocation import Invocation, database_options, pass_invocation
from cronless_dagster.cli.log_lines import log_as_lines
from cronless_dagster.cli.parameters import TEXT
from cronless_dagster.scheduling.errors import CronlessError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from sqlalchemy import Engine

    from cronless_dagster.api.app import ApiLimits
    from cronless_dagster.api.calls import Call
    from cronless_dagster.checks.declaring import Asked
    from cronless_dagster.engine.job_types import JobTypes
    from cronless_dagster.engine.queueing import Queue
    from cronless_dagster.engine.runs import Launcher
    from cronless_dagster.settings import Settings

_SECONDS = click.FloatRange(0, 86_400)

logger = logging.getLogger("cronless_dagster.serve")


@click.command()
@click.option(
    "--bind", type=TEXT, metavar="HOST:PORT", help="Instead of CRONLESS_API_BIND; port 0: any free one."
)
@click.option("--private-bind", type=TEXT, metavar="HOST:PORT", help="Instead of CRONLESS_API_PRIVATE_BIND.")
@click.option(
    "--threads",
    type=click.IntRange(1, 100),
    default=8,
    show_default=True,
    help="Checks that are carried out at once, each with a connection to the database.",
)
@click.option(
    "--linger",
    type=_SECONDS,
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to go on answering once told to end, so that load balancers see /readyz fail.",
)
@click.option(
    "--drain",
    type=_SECONDS,
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long calls may take to end after that.",
)
@click.option(
    "--proxy",
    "proxies",
    type=TEXT,
    multiple=True,
    metavar="NETWORK",
    help="A proxy, or a network of them, whose X-Forwarded-For is believed; any number of times.",
)
@database_options
@pass_invocation
def serve(
    invocation: Invocation,
    bind: str | None,
    private_bind: str | None,
    threads: int,
    linger: float,
    drain: float,
    proxies: tuple[str, ...],
    as_json: bool,
) -> int:
    """Answer checks from outside, to those whom the access file lets; any number of nodes may.

    It speaks plain HTTP: put the proxy in front of it that holds your certificate, and keep the private address,
    with /healthz, /readyz and /metrics, from the public. Ctrl-C or SIGTERM ends it in order. With --json each line
    of the log is one of JSON. Exit status 1: a check was still at work, and was cut off.
    """
    for network in proxies:
        _require_network(network)
    _require_libraries()
    from cronless_dagster.api.app import CheckApi
    from cronless_dagster.api.private import Readiness, private_app
    from cronless_dagster.api.serving import Ending, address_of, serve_both
    from cronless_dagster.store.database import engine_for_threads
    from cronless_dagster.telemetry import metrics, tracing
    from cronless_dagster.telemetry.events import event

    settings = invocation.settings()
    access, checks, types = read_access(invocation), invocation.checks(), invocation.job_types()
    with (
        engine_for_threads(invocation.engine(), threads) as engine,
        _listening("--bind", bind or settings.api_bind) as public,
        _listening("--private-bind", private_bind or settings.api_private_bind) as private,
    ):
        _log_as_lines(as_json=as_json)
        metrics.begin(engine)
        tracing.set_up(
            "cronless-serve", slow_ms=settings.trace_slow_ms, error_status=settings.trace_error_status
        )
        asked = _asked(
            engine, types, settings, _launcher(settings, types), invocation.queue("cronless-serve", types)
        )
        api = CheckApi(access, checks, asked, _limits(settings, threads))
        readiness = Readiness(engine)
        event(
            logger,
            "serve.started",
            public=address_of(public),
            private=address_of(private),
            checks=",".join(checks),
        )
        serve_both(
            (api, public),
            (private_app(readiness), private),
            readiness,
            Ending(linger, drain),
            proxies=proxies,
        )
        readiness.close()
        tracing.shut_down()
        if api.asking.open:
            _leave()
    return 0


def _require_libraries() -> None:
    try:
        import prometheus_client  # noqa: F401 - whether they are there
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError(
            f"{error.name} is not installed: the check API needs `pip install cronless-dagster[api]`"
        ) from error


def _require_network(text: str) -> None:
    try:
        ip_network(text)
    except ValueError as error:
        raise InputError(f"--proxy {text!r} is no address or network: give one such as 10.0.0.0/8") from error


def _limits(settings: Settings, threads: int) -> ApiLimits:
    from cronless_dagster.api.app import ApiLimits

    return ApiLimits(
        calls_per_second=settings.api_calls_per_second,
        body_bytes=settings.api_body_bytes,
        threads=threads,
        # As long as a tick may take, and one more statement of its steps before and after.
        seconds=settings.tick_seconds + 2 * settings.statement_timeout_ms / 1_000,
    )


def _asked(
    engine: Engine, types: JobTypes, settings: Settings, launcher: Launcher | None, queue: Queue | None
) -> Callable[[Call], Asked]:
    from cronless_dagster.checks.declaring import Asked
    from cronless_dagster.store.clock import current_time
    from cronless_dagster.store.database import transaction

    def asked(call: Call) -> Asked:
        if call.now is not None:
            # Refused on real time, whether the check looks at it or not.
            with transaction(engine) as connection:
                current_time(connection, call.now)
        return Asked(
            engine=engine,
            ids=call.ids,
            now=call.now,
            job_types=types,
            launcher=launcher,
            queue=queue,
            budget_seconds=settings.tick_seconds,
            history_days=settings.history_days,
        )

    return asked


def _launcher(settings: Settings, types: JobTypes) -> Launcher | None:
    if settings.dagster_api_url is None or not any(one.route == "run" for one in types):
        return None
    from cronless_dagster.graphql.client import DagsterGraphQL

    launcher = DagsterGraphQL(
        settings.dagster_api_url, location=settings.dagster_location, token=settings.dagster_token
    )
    click.get_current_context().call_on_close(launcher.close)
    return launcher


def _listening(option: str, bind: str) -> socket.socket:
    from cronless_dagster.api.serving import listen
    from cronless_dagster.settings.readers import SettingsError, bind_address

    try:
        address = urlsplit(f"//{bind_address(option, bind)}")
    except SettingsError as error:
        raise InputError(str(error)) from error
    try:
        return listen(address.hostname or "", address.port or 0)
    except OSError as error:
        raise ListenError(
            f"can't listen at {bind} ({error.strerror}): free it, or give another by {option}"
        ) from error


class ListenError(CronlessError):
    """An address can't be listened at."""


def _log_as_lines(*, as_json: bool) -> None:
    log_as_lines(as_json=as_json, force=True)
    # Whoever sends what is no HTTP shall not fill the log; and httpx tells of each question.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    logging.getLogger("httpx").setLevel(logging.WARNING)


def _leave() -> None:
    """End though threads are at work: what they hold, the database takes back, and the next call goes on from there."""
    import os

    logging.shutdown()
    os._exit(FAILED)
