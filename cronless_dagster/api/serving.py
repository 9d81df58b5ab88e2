"""Serving two applications at two addresses in one event loop, and ending in order."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import uvicorn

from cronless_dagster.telemetry.events import event

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from starlette.types import ASGIApp

    from cronless_dagster.api.app import CheckApi
    from cronless_dagster.api.private import Readiness

logger = logging.getLogger(__name__)

# Connections beyond these are answered by 503; idle ones of a load balancer count too.
_CONNECTIONS = 2_000
_BACKLOG = 2_048
IDLE_SECONDS = 75
"""Longer than load balancers keep idle connections, mostly 60 s: one that reuses what is being closed answers 502."""
# uvicorn's own patience, behind ours.
_AFTER_CUT_OFF_SECONDS = 5


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; port 0: any free one.

    Raises:
        OSError: It can't listen there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    # An answer is written in two pieces, and the second would wait some 40 ms for the first one's acknowledgement.
    # asyncio asks for this itself, but not for sockets that name no protocol; connections inherit it.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def address_of(listening: socket.socket) -> str:
    """Return the web address of a socket that listens."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@dataclass(frozen=True, slots=True)
class Ending:
    """How to end.

    Attributes:
        linger: Seconds for load balancers to notice that `/readyz` fails, while calls are still answered.
        drain: Seconds for calls to end after that; those that don't are answered by 503.
    """

    linger: float
    drain: float


def serve_both(
    public: tuple[CheckApi, socket.socket],
    private: tuple[ASGIApp, socket.socket],
    readiness: Readiness,
    ending: Ending,
    *,
    proxies: Sequence[str] = (),
) -> None:
    """Serve until SIGTERM or SIGINT, then end in order: the public address first, what tells of it last.

    A second signal goes on to the next step of the end at once.

    Args:
        public: The API, and the socket that listens for it.
        private: The private application, likewise.
        readiness: Told when the end begins.
        ending: How long its steps may take.
        proxies: Addresses and networks of proxies whose `X-Forwarded-For` is believed; none: nobody's.
    """
    asyncio.run(_serve_both(public, private, readiness, ending, proxies))


async def _serve_both(
    public: tuple[CheckApi, socket.socket],
    private: tuple[ASGIApp, socket.socket],
    readiness: Readiness,
    ending: Ending,
    proxies: Sequence[str],
) -> None:
    api = public[0]
    outside = Server(config_of(api, proxies, int(ending.drain) + _AFTER_CUT_OFF_SECONDS))
    inside = Server(config_of(private[0]))
    serving_inside = asyncio.create_task(inside.serve([private[1]]))
    serving_outside = asyncio.create_task(outside.serve([public[1]]))
    signals = _Signals()
    await signals.next_or(serving_outside, serving_inside)
    readiness.draining = True
    event(logger, "serve.draining", open=api.asking.open)
    await signals.next_or(serving_outside, seconds=ending.linger)
    outside.should_exit = True
    await signals.next_or(serving_outside, seconds=ending.drain)
    api.asking.cut_off()
    await serving_outside
    inside.should_exit = True
    await serving_inside
    api.asking.close()
    event(logger, "serve.drained", cut_off=api.asking.open)


class _Signals:
    def __init__(self) -> None:
        self._came = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._came.set)

    async def next_or(self, *tasks: asyncio.Task[None], seconds: float | None = None) -> None:
        """Wait for a signal, for one of the tasks to end, or for so long."""
        signalled = asyncio.create_task(self._came.wait())
        await asyncio.wait({signalled, *tasks}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        signalled.cancel()
        self._came.clear()


class Server(uvicorn.Server):
    """A server that leaves signals to us: of two in one loop the second would take them from the first."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def config_of(
    app: ASGIApp, proxies: Sequence[str] = (), patience: int = _AFTER_CUT_OFF_SECONDS
) -> uvicorn.Config:
    """Return how an application is served; `patience`: seconds for calls to end."""
    return uvicorn.Config(
        app,
        # h11 bounds a request's head by 16 KiB; the faster parser that uvicorn may find installed knows no bound.
        http="h11",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=patience,
    )
