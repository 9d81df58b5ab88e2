"""The ASGI application of the public address: checks for those who may call them, one constant 404 for all else."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from cronless_dagster.api.answers import NOT_FOUND, as_json, refusal
from cronless_dagster.api.asking import Asking, Carried
from cronless_dagster.api.calls import Call, CallError, read_call
from cronless_dagster.api.limits import Rate
from cronless_dagster.api.openapi import description
from cronless_dagster.api.refusals import Refusals
from cronless_dagster.scheduling.shards import ShardError
from cronless_dagster.telemetry.events import event
from cronless_dagster.telemetry.metrics import observe_check, observe_refused
from cronless_dagster.telemetry.tracing import span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import Receive, Scope, Send

    from cronless_dagster.api.access import Access, Caller
    from cronless_dagster.checks.declaring import Asked, Check

logger = logging.getLogger(__name__)

_BODY_SECONDS = 10
_LENGTH_DIGITS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiLimits:
    """What calls may take.

    Attributes:
        calls_per_second: Of one caller on average; ten seconds' worth may come at once.
        body_bytes: The largest body; it means nothing, and some schedulers can't leave it out.
        threads: Checks that are carried out at once; each may need a connection to the database.
        at_once: Checks that are there at once, those that wait for a thread included.
        seconds: How long a caller waits for an answer.
    """

    calls_per_second: float = 50
    body_bytes: int = 4_096
    threads: int = 8
    at_once: int = 256
    seconds: float = 60


class CheckApi:
    """The application; any ASGI server can serve it.

    Secrets are compared before anything else is looked at, whatever the request is, and everything that isn't
    authorised has one answer: see `access` for why its time tells nothing either.
    """

    def __init__(
        self,
        access: Access,
        checks: Mapping[str, Check],
        asked: Callable[[Call], Asked],
        limits: ApiLimits | None = None,
    ) -> None:
        """Serve these checks to these callers.

        Args:
            access: Who may call what.
            checks: By name.
            asked: Makes what a check is asked with, of a call.
            limits: What calls may take.
        """
        self._access = access
        self._checks = checks
        self._limits = limits or ApiLimits()
        self._rates = {one.name: Rate(self._limits.calls_per_second) for one in access.callers}
        self._refusals = Refusals()
        self.asking = Asking(
            asked,
            threads=self._limits.threads,
            at_once=self._limits.at_once,
            seconds=self._limits.seconds,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "websocket":
            # Before it is accepted, this is how to refuse it.
            await send({"type": "websocket.close"})
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            raise NotImplementedError(f"there is nothing to do for the scope {scope['type']!r}")

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = perf_counter()
        secret, _, route = scope["path"].removeprefix("/").partition("/")
        caller = self._access.admit(
            secret.encode("utf-8", "surrogatepass"),
            _only(scope, b"authorization", bearer=True),
            _only(scope, b"x-cronless-key"),
            scope["client"][0] if scope.get("client") else None,
        )
        if caller is None:
            await self._not_found(scope, send)
        else:
            await self._authorised(caller, route, scope, receive, send, began)

    async def _authorised(
        self, caller: Caller, route: str, scope: Scope, receive: Receive, send: Send, began: float
    ) -> None:
        name = route.removeprefix("checks/")
        check = self._checks.get(name) if route == f"checks/{name}" and caller.may_call(name) else None
        if scope["method"] == "GET" and route == "openapi.json":
            theirs = [one for one in self._checks.values() if caller.may_call(one.name)]
            await as_json(200, description(theirs, now=caller.now)).send(send)
        elif check is None or scope["method"] != "POST" or not await self._body_fits(scope, receive):
            await self._not_found(scope, send)
        else:
            with span("api.call", check=check.name, caller=caller.name) as traced:
                call, carried = await self._carried(caller, check, scope["query_string"])
                traced.set(status=carried.reply.status)
            await carried.reply.send(send)
            _note(caller, check, call, carried, perf_counter() - began)

    async def _not_found(self, scope: Scope, send: Send) -> None:
        await NOT_FOUND.send(send)
        observe_refused()
        self._refusals.note(scope)

    async def _carried(self, caller: Caller, check: Check, query: bytes) -> tuple[Call | None, Carried]:
        wait = self._rates[caller.name].wait()
        if wait:
            sentence = f"caller {caller.name} calls too often: call again in {wait} s"
            return None, Carried("limited", refusal(429, sentence, retry_after=wait))
        try:
            call = read_call(query, may_say_now=caller.now)
        except (CallError, ShardError) as error:
            return None, Carried("bad", refusal(400, str(error)))
        return call, await self.asking.carry_out(check, call)

    async def _body_fits(self, scope: Scope, receive: Receive) -> bool:
        """Tell whether the body is within its limit; what lies behind the limit is never read."""
        for name, value in scope["headers"]:
            # Python reads no number of thousands of digits, and not every server refuses one.
            if name == b"content-length" and not (
                value.isdigit() and len(value) <= _LENGTH_DIGITS and int(value) <= self._limits.body_bytes
            ):
                return False
        length, more = 0, True
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                while more and length <= self._limits.body_bytes:
                    message = await receive()
                    length += len(message.get("body", b""))
                    more = message.get("more_body", False)
        except TimeoutError:
            return False
        return length <= self._limits.body_bytes


def _only(scope: Scope, name: bytes, *, bearer: bool = False) -> bytes:
    """Return a header's value; empty where there is none, or more than one."""
    values = [value for header, value in scope["headers"] if header == name]
    value = values[0] if len(values) == 1 else b""
    if not bearer:
        return value
    # The scheme's case doesn't matter (RFC 9110, 11.1).
    scheme, _, token = value.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def _note(caller: Caller, check: Check, call: Call | None, carried: Carried, seconds: float) -> None:
    observe_check(check.name, carried.outcome, seconds, carried.answer)
    event(
        logger,
        "check.answered",
        caller=caller.name,
        check=check.name,
        range=f"{call.ids.low.hex}-{call.ids.high.hex}" if call else None,
        status=carried.reply.status,
        outcome=carried.outcome,
        acted=carried.answer.acted if carried.answer else None,
        ms=round(seconds * 1_000, 1),
    )
