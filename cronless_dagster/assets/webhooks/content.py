"""What hubs deliver: read within a limit, accepted with a valid signature, kept once (WebSub 7)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from sqlalchemy import text

from cronless_dagster.assets.webhooks import records
from cronless_dagster.assets.webhooks.signatures import is_signed
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Collection
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Engine

_LONGEST_TYPE = 200

Refusal = Literal["unknown", "gone", "unsigned", "known"]


@dataclass(frozen=True, slots=True)
class Content:
    """One delivery, as it is stored in `cronless_assets.webhook_content`.

    Attributes:
        topic: What was subscribed to; a hub's own word for it may differ, and proves nothing.
        body: At most as many bytes as the callback accepts.
        received_at: Aware UTC.
    """

    id: int
    subscription_id: UUID
    tenant_id: str
    topic: str
    content_type: str
    body: bytes = field(repr=False)
    received_at: datetime


async def read_within(stream: AsyncIterable[bytes], most: int) -> bytes | None:
    """Return a body of at most so many bytes; None as soon as it has more."""
    body = bytearray()
    async for part in stream:
        body += part
        if len(body) > most:
            return None
    return bytes(body)


def wants_content(engine: Engine, subscription_id: UUID) -> Literal["unknown", "gone", "wanted"]:
    """Tell whether what is about to be delivered is worth reading."""
    with transaction(engine) as connection:
        subscription = records.find(connection, subscription_id)
        if subscription is None:
            return "unknown"
        return "wanted" if subscription.takes_content(current_time(connection)) else "gone"


def receive(
    engine: Engine,
    subscription_id: UUID,
    body: bytes,
    content_type: str,
    signature: str | None,
    methods: Collection[str],
) -> Content | Refusal:
    """Store a delivery and return it, or say why not: "known" is one that came before.

    Args:
        engine: The store's.
        subscription_id: Of the callback's address.
        body: The delivery's bytes.
        content_type: As the hub named it; not covered by the signature (WebSub 7.1.2).
        signature: The header `X-Hub-Signature`.
        methods: The accepted algorithms.
    """
    with transaction(engine) as connection:
        now = current_time(connection)
        subscription = records.find(connection, subscription_id)
        if subscription is None:
            return "unknown"
        if not subscription.takes_content(now):
            return "gone"
        if not is_signed(body, signature, subscription.secret, methods):
            records.ignored(connection, subscription)
            return "unsigned"
        content_type = content_type[:_LONGEST_TYPE]
        stored = connection.execute(
            text(
                "INSERT INTO cronless_assets.webhook_content"
                " (subscription_id, received_at, content_type, content_hash, body)"
                " VALUES (:id, :now, :content_type, :content_hash, :body) ON CONFLICT DO NOTHING RETURNING id"
            ),
            {
                "id": subscription_id,
                "now": now,
                "content_type": content_type,
                "content_hash": hashlib.sha256(body).hexdigest(),
                "body": body,
            },
        ).scalar()
    if stored is None:
        return "known"
    return Content(
        stored, subscription_id, subscription.tenant_id, subscription.topic, content_type, body, now
    )
