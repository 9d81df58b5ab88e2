"""The copy that is kept of a message which can't be read."""

from __future__ import annotations

import decimal
from datetime import UTC, datetime

import pika
from hypothesis import given
from hypothesis import strategies as st
from pika.frame import Header

from cronless_dagster.rabbitmq.dead_letters import LARGEST_BODY, Letter, copy_of

FRAME_BYTES = 131_072
"""RabbitMQ's largest frame where nobody has changed it; all properties of a message are in one."""

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
    | st.binary(max_size=300)
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.datetimes(timezones=st.just(UTC))
    | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=63) | st.binary(max_size=255)


def encoded(properties: pika.BasicProperties) -> bytes:
    """Return the frame in which pika would send them."""
    return Header(1, 0, properties).marshal()


@given(st.dictionaries(names, values, max_size=12), st.text(max_size=3_000), st.binary(max_size=100))
def test_any_headers_can_be_written_again(headers, reason, body):
    """Whatever was in the headers, pika can encode the copy's, and they fit into a frame beside the reason."""
    reason = reason.encode("ascii", "replace").decode()
    original = pika.BasicProperties(headers=headers)
    copied, properties = copy_of(Letter(1, reason, "cronless.digest", original, body))
    assert copied == body
    assert properties.headers["x-cronless-error"] == reason[:2_000]
    assert len(encoded(properties)) < FRAME_BYTES


def test_too_many_headers_are_cut():
    """A copy whose headers would fill the frame keeps the first of them."""
    headers = {f"h{number}": "\N{GRINNING FACE}" * 2_000 for number in range(30)}
    original = pika.BasicProperties(headers=headers)
    _, properties = copy_of(Letter(1, "why", "cronless.digest", original, b""))
    assert "h0" in properties.headers
    assert "h29" not in properties.headers
    assert len(encoded(properties)) < FRAME_BYTES


def test_what_identifies_the_message_is_kept():
    """All properties are as they were, but for the expiration, the user id and the priority."""
    kept = {
        "content_type": "text/plain", "content_encoding": "gzip", "correlation_id": "c", "reply_to": "r",
        "message_id": "m", "timestamp": 1_772_452_800, "type": "t", "app_id": "a",
    }  # fmt: skip
    original = pika.BasicProperties(
        **kept, delivery_mode=1, expiration="1000", user_id="somebody", priority=9
    )
    _, properties = copy_of(Letter(1, "why", "cronless.digest", original, b""))
    assert {name: getattr(properties, name) for name in kept} == kept
    assert properties.delivery_mode == 2
    assert (properties.expiration, properties.user_id, properties.priority) == (None, None, None)


def test_values_that_amqp_has_and_pika_can_not_write_are_kept_as_text():
    """Lists, tables, times and numbers with decimals are there under a name that the broker doesn't read."""
    headers = {
        "CC": ["a"], "when": datetime(2026, 3, 2, tzinfo=UTC), "price": decimal.Decimal("1.5"), "plain": "text",
        "number": 7, "yes": True,
    }  # fmt: skip
    original = pika.BasicProperties(headers=headers)
    _, properties = copy_of(Letter(1, "why", "cronless.digest", original, b""))
    assert properties.headers == {
        "x-cronless-error": "why",
        "x-cronless-queue": "cronless.digest",
        "x-cronless-original-CC": "['a']",
        "x-cronless-original-when": "2026-03-02 00:00:00+00:00",
        "x-cronless-original-price": "1.5",
        "plain": "text",
        "number": 7,
        "yes": True,
    }


def test_a_huge_body_says_how_long_it_was():
    """Only its beginning is kept."""
    body = b"x" * (LARGEST_BODY + 1)
    copied, properties = copy_of(Letter(1, "why", "cronless.digest", pika.BasicProperties(), body))
    assert copied == body[:LARGEST_BODY]
    assert properties.headers["x-cronless-body-bytes"] == str(LARGEST_BODY + 1)
