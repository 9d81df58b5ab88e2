"""`cronless callbacks`: serve what hubs and mail readers call."""

from __future__ import annotations

import logging
import signal
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from cronless_dagster.cli.failures import InputError
from cronless_dagster.cli.invocation import Invocation, database_options, pass_invocation
from cronless_dagster.cli.output import plain, print_json
from cronless_dagster.cli.parameters import TEXT

if TYPE_CHECKING:
    import socket

    from sqlalchemy import Engine
    from starlette.applications import Starlette

# Requests beyond these are answered by 503, and hubs come again.
_AT_ONCE = 200

logger = logging.getLogger("cronless_dagster.callbacks")


@click.command()
@click.option("--host", type=TEXT, default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8_089, show_default=True, help="0: any free one."
)
@click.option(
    "--drain",
    type=click.IntRange(1, 86_400),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="How long requests may take to end once the server is told to.",
)
@database_options
@pass_invocation
def callbacks(invocation: Invocation, host: str, port: int, drain: int, as_json: bool) -> int:
    """Serve the callbacks of webhooks and the links to unsubscribe from digests, as CRONLESS_PUBLIC_URL names them.

    It speaks plain HTTP: put the proxy in front of it that holds your certificate. Ctrl-C or SIGTERM lets the
    requests that run come to their end. With --json each line of the log is one of JSON.
    """
    engine = invocation.engine()
    app = _app(engine, invocation.settings().fetch_bytes)
    from cronless_dagster.api.serving import address_of, listen

    with listen(host, port) as listening:
        _log_as_lines(as_json=as_json)
        logger.info("serving at %s", address_of(listening))
        _serve(app, listening, drain)
    return 0


def _app(engine: Engine, most_bytes: int) -> Starlette:
    from sqlalchemy import text

    from cronless_dagster.store.database import transaction

    try:
        from cronless_dagster.assets.callbacks import callback_app
    except ModuleNotFoundError as error:
        raise InputError(
            f"{error.name} is not installed: the ready-made assets need `pip install cronless-dagster[assets]`"
        ) from error
    with transaction(engine) as connection:
        # Says now that the tables are missing, rather than by an answer to a hub.
        connection.execute(text("SELECT FROM cronless_assets.subscription LIMIT 1"))
    return callback_app(engine, most_bytes=most_bytes)


def _serve(app: Starlette, listening: socket.socket, drain: int) -> None:
    import uvicorn

    from cronless_dagster.api.serving import IDLE_SECONDS

    config = uvicorn.Config(
        app,
        access_log=False,
        log_config=None,
        server_header=False,
        limit_concurrency=_AT_ONCE,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=drain,
    )
    # Once it has drained, uvicorn raises the signal again; to end as told is no failure.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _, __: None)
    uvicorn.Server(config).run(sockets=[listening])


class _Lines(logging.Handler):
    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def emit(self, record: logging.LogRecord) -> None:
        words = self.format(record)
        if self._as_json:
            at = datetime.fromtimestamp(record.created, UTC)
            print_json({"at": at, "level": record.levelname, "logger": record.name, "message": words})
        else:
            click.echo(words if record.exc_info else plain(words), err=True)


def _log_as_lines(*, as_json: bool) -> None:
    lines = _Lines(as_json=as_json)
    if not as_json:
        lines.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[lines], force=True)
    # It tells of each start and end in five lines, and of the socket by its number.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
