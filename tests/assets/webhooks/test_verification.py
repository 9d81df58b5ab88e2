"""What a hub's GET means."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID

import pytest

from cronless_dagster.assets.webhooks.records import Subscription
from cronless_dagster.assets.webhooks.verification import (
    Denied,
    Left,
    Verified,
    plain_words,
    read_query,
    understood,
)
from tests.assets.webhooks.hub import TOPIC


def subscription(status: Any) -> Subscription:
    """Return a subscription to the topic."""
    return Subscription(
        id=UUID(int=1),
        tenant_id="acme",
        topic=TOPIC,
        hub="https://hub.example/",
        secret="made-up",
        status=status,
        requested_at=None,
        unanswered=0,
        expires_at=None,
        job_id=None,
        error=None,
    )


def meaning(status: str, **fields: str | bytes) -> Any:
    """Return what a GET with these fields means for a subscription in a state."""
    asked: dict[str, str | bytes] = {"topic": TOPIC, "challenge": "abc", "lease_seconds": "60", **fields}
    query = urlencode({f"hub.{name}": value for name, value in asked.items()})
    return understood(subscription(status), read_query(query.encode()))


@pytest.mark.parametrize("status", ["requested", "active"])
def test_a_lease_that_was_asked_for_is_taken(status: str) -> None:
    """Also again while it lasts: a GET may come twice."""
    assert meaning(status, mode="subscribe") == Verified(timedelta(seconds=60), b"abc")


@pytest.mark.parametrize("status", ["new", "denied", "leaving", "ended"])
def test_a_lease_that_nobody_asked_for_is_none(status: str) -> None:
    """Neither before the request nor after the end."""
    assert meaning(status, mode="subscribe") is None


@pytest.mark.parametrize("status", ["leaving", "ended"])
def test_a_farewell_needs_to_be_asked_for(status: str) -> None:
    """Else a stranger could end what others want."""
    assert meaning(status, mode="unsubscribe", lease_seconds="garbage") == Left(b"abc")
    assert meaning("active", mode="unsubscribe") is None


def test_a_denial_says_why() -> None:
    """At any time, as WebSub 5.2 allows, and on one line."""
    assert meaning("active", mode="denied", reason="no\r\n\x1b[31mroom") == Denied("no ?[31mroom")
    assert meaning("requested", mode="denied") == Denied("the hub gave no reason")
    assert meaning("new", mode="denied") is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": TOPIC + "/"},
        {"topic": ""},
        {"topic": b"\xff"},
        {"mode": "SUBSCRIBE"},
        {"mode": "publish"},
        {"lease_seconds": "0"},
        {"lease_seconds": "-1"},
        {"lease_seconds": b"\xb2"},
        {"challenge": ""},
        {"challenge": b"\xff\xfe"},
        {"challenge": "two\nlines"},
        {"challenge": "x" * 1_001},
    ],
)
def test_what_is_wrong_in_any_part_is_none_of_ours(wrong: dict[str, Any]) -> None:
    """Another topic, another mode, a lease that is none, a challenge that is a file."""
    assert meaning("requested", **{"mode": "subscribe", **wrong}) is None


def test_a_missing_part_is_none_of_ours() -> None:
    """Each is required."""
    for left_out in ("mode", "topic", "challenge", "lease_seconds"):
        fields = {"mode": "subscribe", "topic": TOPIC, "challenge": "abc", "lease_seconds": "60"}
        del fields[left_out]
        query = urlencode({f"hub.{name}": value for name, value in fields.items()})
        assert understood(subscription("requested"), read_query(query.encode())) is None


def test_a_challenge_comes_back_byte_by_byte() -> None:
    """Plus signs, percent signs and characters beyond ASCII."""
    challenge = "a+b%20c/é✓=="
    assert meaning("requested", mode="subscribe", challenge=challenge).challenge == challenge.encode()
    assert read_query(b"a=" + quote(b"\xff\x00").encode())["a"] == b"\xff\x00"


def test_a_flood_of_fields_is_refused() -> None:
    """Before they are read."""
    with pytest.raises(ValueError, match="fields"):
        read_query(b"&".join(b"a=1" for _ in range(51)))


def test_a_strangers_text_is_cut_and_plain() -> None:
    """Whatever its bytes."""
    assert plain_words(b" <b>no\xff</b>\x00 \n x ") == "<b>no�</b>? x"
    assert len(plain_words(b"x" * 10_000)) == 300
