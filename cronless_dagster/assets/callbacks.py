"""The web application that others call: hubs of webhooks, and mail readers that unsubscribe."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from cronless_dagster.assets.digests import unsubscribe
from cronless_dagster.assets.webhooks import callback
from cronless_dagster.scheduling.errors import CronlessError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Engine
    from starlette.requests import Request
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from cronless_dagster.assets.webhooks.content import Content

access = logging.getLogger("cronless_dagster.callbacks.access")
logger = logging.getLogger(__name__)


def callback_app(
    engine: Engine,
    *,
    on_content: Callable[[Content], None] | None = None,
    routes: Sequence[BaseRoute] = (),
    **websub_options: Any,
) -> Starlette:
    """Return the ASGI application that `cronless callbacks` serves; any ASGI server can.

    Args:
        engine: The store's; its work is done in threads.
        on_content: Called with each new delivery of a hub; see `webhooks.callback.routes`.
        routes: Further ones of the caller's own.
        websub_options: As of `webhooks.callback.routes`: `most_bytes`, `methods`, `renewed_at`.
    """
    return Starlette(
        routes=[
            Route("/healthz", _healthz),
            *callback.routes(engine, on_content=on_content, **websub_options),
            *unsubscribe.routes(engine),
            *routes,
        ],
        middleware=[Middleware(AccessLog)],
        exception_handlers={CronlessError: _unavailable, SQLAlchemyError: _unavailable},
    )


class AccessLog:
    """Logs method, the path's first part, status and milliseconds: what follows in a path or query is a secret."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request and log it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            first = scope["path"].split("/", 2)[1][:40] if "/" in scope["path"] else ""
            spent = (time.perf_counter() - began) * 1_000
            access.info("%s %r %s %.0f ms", scope["method"][:10], f"/{first}", status, spent)


async def _healthz(_: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _unavailable(_: Request, error: Exception) -> Response:
    # Never the error's own text where it is SQLAlchemy's: it shows the statement's parameters.
    shown = str(error) if isinstance(error, CronlessError) else type(error).__name__
    logger.error("a request could not be answered: %s", shown)
    return PlainTextResponse("Service Unavailable", status_code=503)
