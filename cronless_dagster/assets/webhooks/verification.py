"""What a hub's GET to the callback means: a lease, a farewell, a denial, or nothing of ours (WebSub 5.2, 5.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import parse_qsl

from cronless_dagster.assets.webhooks.leases import granted_lease

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from cronless_dagster.assets.webhooks.records import Subscription

LONGEST_CHALLENGE = 1_000
LONGEST_REASON = 300
_MOST_FIELDS = 50
_LEASED = ("requested", "active")
_LEFT = ("leaving", "ended")
_DENIABLE = ("requested", "active", "denied")


@dataclass(frozen=True, slots=True)
class Verified:
    """The hub grants a lease, if the challenge comes back."""

    lease: timedelta
    challenge: bytes


@dataclass(frozen=True, slots=True)
class Left:
    """The hub ends the subscription as asked, if the challenge comes back."""

    challenge: bytes


@dataclass(frozen=True, slots=True)
class Denied:
    """The hub won't have the subscription, or will no longer."""

    reason: str


Answer: TypeAlias = "Verified | Left | Denied"


def read_query(query: bytes) -> dict[str, bytes]:
    """Return the fields of a query string, their values as the bytes that were percent-encoded.

    Raises:
        ValueError: More fields than any hub sends.
    """
    # Latin-1 maps each byte to one character and back: what isn't UTF-8 stays what it is.
    fields = parse_qsl(
        query.decode("latin-1"), keep_blank_values=True, encoding="latin-1", max_num_fields=_MOST_FIELDS
    )
    return {name: value.encode("latin-1") for name, value in fields}


def understood(subscription: Subscription, fields: Mapping[str, bytes]) -> Answer | None:
    """Return what a GET means for a subscription; None where it is to be answered by 404.

    Only what was asked for is confirmed: a topic that is the subscription's, and a lease or a farewell that we want.
    A hub may grant again what it granted, as by a GET that comes twice or after a renewal of its own accord.

    Args:
        subscription: The one that the callback's address names.
        fields: Of `read_query`.
    """
    if fields.get("hub.topic") != subscription.topic.encode():
        return None
    mode, challenge = fields.get("hub.mode"), fields.get("hub.challenge", b"")
    if mode == b"denied" and subscription.status in _DENIABLE:
        return Denied(plain_words(fields.get("hub.reason", b"")) or "the hub gave no reason")
    if not _is_harmless(challenge):
        return None
    if mode == b"unsubscribe" and subscription.status in _LEFT:
        return Left(challenge)
    if mode == b"subscribe" and subscription.status in _LEASED:
        lease = granted_lease(fields.get("hub.lease_seconds", b"").decode("latin-1"))
        return None if lease is None else Verified(lease, challenge)
    return None


def plain_words(said: bytes) -> str:
    """Return a stranger's text on one line, cut, without control characters."""
    words = " ".join(said[: 4 * LONGEST_REASON].decode("utf-8", "replace").split())
    return "".join(one if one.isprintable() else "?" for one in words)[:LONGEST_REASON]


def _is_harmless(challenge: bytes) -> bool:
    """Tell whether a challenge may be sent back: a short text (WebSub 8.2 advises so), not a file."""
    try:
        text = challenge.decode()
    except UnicodeDecodeError:
        return False
    return 0 < len(text) <= LONGEST_CHALLENGE and text.isprintable()
