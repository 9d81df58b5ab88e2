"""Carrying out a check: in a thread, so many at once, for so long, and with a sentence for whatever goes wrong."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from datetime import UTC, datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from cronless_dagster.api.answers import Reply, as_json, refusal
from cronless_dagster.engine.runs import LaunchFailed
from cronless_dagster.graphql.errors import DagsterUnavailable
from cronless_dagster.rabbitmq.errors import BrokerError
from cronless_dagster.scheduling.shards import ShardError
from cronless_dagster.store.database import may_pass
from cronless_dagster.store.errors import ClockError, StoreError
from cronless_dagster.telemetry.events import event
from cronless_dagster.telemetry.tracing import span

if TYPE_CHECKING:
    from collections.abc import Callable

    from cronless_dagster.api.calls import Call
    from cronless_dagster.checks.declaring import Answer, Asked, Check

logger = logging.getLogger(__name__)

Outcome = Literal["acted", "nothing", "bad", "limited", "busy", "unavailable", "timeout", "error"]
"""What came of a call that was authorised."""

BUSY_SECONDS = 1
AWAY_SECONDS = 5
"""When to call again: once there is room, and once what is away may be back."""


@dataclass(frozen=True, slots=True)
class Carried:
    """What came of a call, and what is said about it; `answer` only where the check gave one."""

    outcome: Outcome
    reply: Reply
    answer: Answer | None = None


class Asking:
    """The threads in which checks are carried out.

    A check that has run out of time isn't stopped: its caller is told to come again, and it keeps its thread until
    it ends; one that hasn't begun by then never begins. Used from one event loop.
    """

    def __init__(self, asked: Callable[[Call], Asked], *, threads: int, at_once: int, seconds: float) -> None:
        """Keep what checks are given.

        Args:
            asked: Makes what a check is asked with, of a call.
            threads: How many are carried out at once; each may need a connection to the database.
            at_once: How many may be there in all; those without a thread wait for one.
            seconds: How long a caller waits.
        """
        self._asked = asked
        self._at_once = at_once
        self._seconds = seconds
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="check")
        self._open = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._no_waiting = False

    @property
    def open(self) -> int:
        """How many checks are carried out or wait for a thread."""
        return self._open

    async def carry_out(self, check: Check, call: Call) -> Carried:
        """Carry out a check; whatever becomes of it, there is a reply."""
        if self._open >= self._at_once:
            return Carried(
                "busy", refusal(503, "too many calls at once: call again", retry_after=BUSY_SECONDS)
            )
        began = perf_counter()
        loop = asyncio.get_running_loop()
        # The copy takes the span along into the thread.
        job = self._pool.submit(copy_context().run, self._ask, check, call)
        work = asyncio.wrap_future(job, loop=loop)
        self._open += 1
        work.add_done_callback(self._ended)
        if not await self._came(work):
            # Nobody waits for it: if it still waits for a thread, those whose callers are there go first. Not `work`,
            # which would count as ended though its thread is at work.
            job.cancel()
            sentence = f"{check.name} has no answer yet: call again"
            return Carried("timeout", refusal(503, sentence, retry_after=AWAY_SECONDS))
        try:
            answer = work.result()
        except Exception as error:  # noqa: BLE001 - a user's check may raise anything
            return _failed(check, error)
        body = {
            "check": check.name,
            "now": _written(answer.now or call.now or datetime.now(UTC)),
            "range": [call.ids.low.hex, call.ids.high.hex],
            **answer.as_dict(),
            "seconds": round(perf_counter() - began, 6),
        }
        return Carried("acted" if answer.acted else "nothing", as_json(200, body), answer)

    def cut_off(self) -> None:
        """Let nobody wait any longer; what runs goes on."""
        self._no_waiting = True
        for one in self._waiting:
            if not one.done():
                one.set_result(None)

    def close(self) -> None:
        """Start nothing more; what runs in threads goes on."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, check: Check, call: Call) -> Answer:
        with span("check", check=check.name):
            return check.ask(self._asked(call))

    async def _came(self, work: asyncio.Future[Answer]) -> bool:
        told_to_leave = asyncio.get_running_loop().create_future()
        self._waiting.add(told_to_leave)
        either: set[asyncio.Future[Any]] = {work, told_to_leave}
        try:
            seconds = 0 if self._no_waiting else self._seconds
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiting.discard(told_to_leave)
        return work.done()

    def _ended(self, work: asyncio.Future[Answer]) -> None:
        self._open -= 1
        if not work.cancelled():
            # Asked for, so that one whose caller has left isn't complained about.
            work.exception()


def _failed(check: Check, error: Exception) -> Carried:
    if isinstance(error, ClockError | ShardError):
        return Carried("bad", refusal(400, str(error)))
    # Our own words: an error's may show addresses, or a statement's parameters.
    if isinstance(error, StoreError) or may_pass(error):
        event(
            logger,
            "check.unavailable",
            logging.WARNING,
            check=check.name,
            what="database",
            error=_shown(error),
        )
        return Carried("unavailable", _away("the database can't be used now"))
    if isinstance(error, BrokerError):
        event(
            logger, "check.unavailable", logging.WARNING, check=check.name, what="broker", error=_shown(error)
        )
        return Carried("unavailable", _away("the broker can't be used now"))
    if isinstance(error, LaunchFailed | DagsterUnavailable):
        event(
            logger,
            "check.unavailable",
            logging.WARNING,
            check=check.name,
            what="dagster",
            error=_shown(error),
        )
        return Carried("unavailable", _away("Dagster can't be used now"))
    event(logger, "check.failed", logging.ERROR, exc_info=True, check=check.name, error=type(error).__name__)
    return Carried(
        "error", refusal(500, f"{check.name} failed ({type(error).__name__}): the node's log says why")
    )


def _away(what: str) -> Reply:
    return refusal(503, f"{what}: call again", retry_after=AWAY_SECONDS)


def _shown(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _written(instant: datetime) -> str:
    return instant.isoformat().replace("+00:00", "Z")
