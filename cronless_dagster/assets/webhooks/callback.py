"""What hubs call: GET grants, ends or denies a subscription, POST delivers content (WebSub 5.2, 5.3, 7)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route

from cronless_dagster.assets.webhooks import records
from cronless_dagster.assets.webhooks.content import Content, read_within, receive, wants_content
from cronless_dagster.assets.webhooks.leases import RENEWED_AT, renewed_after
from cronless_dagster.assets.webhooks.renewal import CALLBACK_PATH
from cronless_dagster.assets.webhooks.signatures import METHODS
from cronless_dagster.assets.webhooks.verification import Denied, Left, read_query, understood
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from uuid import UUID

    from sqlalchemy import Engine
    from starlette.requests import Request

MOST_BYTES = 5_000_000
READ_SECONDS = 30.0

logger = logging.getLogger(__name__)


def routes(
    engine: Engine,
    *,
    on_content: Callable[[Content], None] | None = None,
    most_bytes: int = MOST_BYTES,
    methods: Collection[str] = METHODS,
    renewed_at: float = RENEWED_AT,
) -> list[Route]:
    """Return the routes `/websub/<subscription id>`.

    An id that is unknown and a GET for what wasn't asked are answered alike, by 404.

    Args:
        engine: The store's.
        on_content: Called in a thread with what was delivered and stored, once the hub has its answer. The stored
            row is the truth: a process that dies in between calls it no more.
        most_bytes: The largest delivery.
        methods: Which signatures are accepted; leave out "sha1" where every hub can do better.
        renewed_at: The part of a lease after which it is renewed.
    """

    async def callback(request: Request) -> Response:
        subscription_id = request.path_params["subscription_id"]
        if request.method == "GET":
            return await run_in_threadpool(
                verify, engine, subscription_id, request.scope["query_string"], renewed_at
            )
        return await _delivered(request, subscription_id)

    async def _delivered(request: Request, subscription_id: UUID) -> Response:
        # Before the body is read: whoever guesses addresses gets nothing to fill our memory with.
        _refuse(await run_in_threadpool(wants_content, engine, subscription_id))
        try:
            async with asyncio.timeout(READ_SECONDS):
                body = await read_within(request.stream(), most_bytes)
        except TimeoutError:
            raise HTTPException(408) from None
        except ClientDisconnect:
            # Nobody reads this answer; without one it would be logged as a fault of ours.
            return Response(status_code=400)
        if body is None:
            logger.warning("a hub delivered more than %s bytes, which are refused", f"{most_bytes:,}")
            raise HTTPException(413)
        content_type = request.headers.get("content-type", "")
        signature = request.headers.get("x-hub-signature")
        received = await run_in_threadpool(
            receive, engine, subscription_id, body, content_type, signature, methods
        )
        if isinstance(received, Content):
            return Response(status_code=202, background=_told(received))
        _refuse(received)
        if received == "unsigned":
            logger.warning("a delivery of %s bytes without a valid signature is ignored", f"{len(body):,}")
        # An invalid signature too: an answer that told would let signatures be tried out (WebSub 7.1.2).
        return Response(status_code=202)

    def _told(content: Content) -> BackgroundTask | None:
        return None if on_content is None else BackgroundTask(_tell, on_content, content)

    route = Route(CALLBACK_PATH + "/{subscription_id:uuid}", callback, methods=["GET", "POST"])
    # Starlette adds it to every GET, and a GET here isn't safe: it grants leases.
    route.methods = {"GET", "POST"}
    return [route]


def verify(engine: Engine, subscription_id: UUID, query: bytes, renewed_at: float = RENEWED_AT) -> Response:
    """Answer a hub's GET, with the subscription and its job changed in one transaction.

    Raises:
        HTTPException: 404, for whatever we didn't ask for.
    """
    try:
        fields = read_query(query)
    except ValueError:
        raise HTTPException(404) from None
    with transaction(engine) as connection:
        subscription = records.find(connection, subscription_id, lock=True)
        answer = understood(subscription, fields) if subscription is not None else None
        if subscription is None or answer is None:
            raise HTTPException(404)
        if isinstance(answer, Denied):
            records.denied(connection, subscription, answer.reason)
            logger.warning("job %s: its hub denied the subscription (%s)", subscription.job_id, answer.reason)
            return Response()
        if isinstance(answer, Left):
            records.ended(connection, subscription)
            logger.info("job %s: its subscription has ended", subscription.job_id)
        else:
            now = current_time(connection)
            renew_at = now + renewed_after(answer.lease, renewed_at)
            records.granted(connection, subscription, answer.lease, renew_at, now)
            logger.info("job %s: its hub granted a lease of %s", subscription.job_id, answer.lease)
    # A type that no browser runs or guesses at (WebSub 8.2).
    return Response(answer.challenge, media_type="text/plain", headers={"X-Content-Type-Options": "nosniff"})


def _refuse(verdict: str) -> None:
    if verdict == "unknown":
        raise HTTPException(404)
    if verdict == "gone":
        # The hub may take it for the end of the subscription (WebSub 7).
        raise HTTPException(410)


def _tell(on_content: Callable[[Content], None], content: Content) -> None:
    try:
        on_content(content)
    except Exception:
        logger.exception("on_content failed for the content %s, which is stored", content.id)
