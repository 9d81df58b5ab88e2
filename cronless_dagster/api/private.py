"""The application of the private address: whether this process lives, whether it should get calls, what it counts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.store.database import create_store_engine, require_current
from cronless_dagster.store.errors import DatabaseNewer, DatabaseNotMigrated
from cronless_dagster.telemetry import metrics

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from starlette.requests import Request

_PATIENCE_SECONDS = 1.0


class Readiness:
    """Whether a load balancer should send calls here.

    It asks by a connection of its own: a node whose connections are all at work is busy, not away.
    """

    def __init__(self, engine: Engine) -> None:
        """Ask the database of this engine."""
        self._engine = create_store_engine(
            engine.url, pool_size=1, statement_timeout_ms=int(_PATIENCE_SECONDS * 1_000)
        )
        self._asking: asyncio.Task[str | None] | None = None
        self.draining = False

    async def reasons(self) -> list[str]:
        """Return why not, a sentence each; empty: it should."""
        found = ["the node is draining"] if self.draining else []
        # One question at a time: a database that hangs must not collect them.
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(asyncio.to_thread(self._why_not))
        done, _ = await asyncio.wait({self._asking}, timeout=_PATIENCE_SECONDS)
        why_not = (
            self._asking.result() if done else f"the database doesn't answer within {_PATIENCE_SECONDS:g} s"
        )
        return [*found, why_not] if why_not else found

    def close(self) -> None:
        """Let the connection go."""
        self._engine.dispose()

    def _why_not(self) -> str | None:
        try:
            require_current(self._engine)
        except DatabaseNotMigrated:
            return "the database has no current schema: run `cronless db upgrade`"
        except DatabaseNewer:
            return "the database is of a newer release than this node"
        except (CronlessError, SQLAlchemyError) as error:
            return f"the database can't be used ({type(error).__name__})"
        return None


def private_app(readiness: Readiness) -> Starlette:
    """Return the application that answers `/healthz`, `/readyz` and `/metrics`; never to be public."""

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        reasons = await readiness.reasons()
        return JSONResponse({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    async def exposition(_: Request) -> Response:
        # In a thread: gauges are read from the database.
        content, media_type = await asyncio.to_thread(metrics.render)
        return Response(content, headers={"content-type": media_type})

    return Starlette(
        routes=[Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", exposition)]
    )
