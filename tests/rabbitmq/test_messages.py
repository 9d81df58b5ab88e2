"""The message of one job: written as documented, read back the same, and refused where it isn't one."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, FormatChecker

from cronless_dagster.rabbitmq.errors import BrokerError, PoisonMessage
from cronless_dagster.rabbitmq.messages import LARGEST, JobMessage, decode, encode

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = json.loads((DOCS / "message.schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA, format_checker=FormatChecker())

JOB = UUID("3f0c8f0e-5d0b-4c59-9a3e-6a1f0f1f7c55")
TOKEN = UUID("b7a6f9f2-0a0d-4f8e-8e77-0d1f6f3c2a10")
NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
MESSAGE = JobMessage(JOB, TOKEN, "email_digest", "acme", NOON)
BARE = pika.BasicProperties()

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
instants = st.datetimes(
    min_value=datetime(1, 1, 3),  # noqa: DTZ001 - hypothesis wants the bounds without a zone
    max_value=datetime(9999, 12, 29),  # noqa: DTZ001
    timezones=st.sampled_from(
        [UTC, timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(hours=-11))]
    ),
)
messages = st.builds(
    JobMessage,
    job_id=st.uuids(),
    token=st.uuids(),
    job_type=texts,
    tenant_id=texts,
    scheduled_for=instants,
    alone=st.booleans(),
)


@given(messages)
def test_what_is_written_is_read_back_and_fits_the_schema(message: JobMessage) -> None:
    """Every job, whatever its names and its zone."""
    encoded = encode(message)
    assert decode(*encoded) == message
    VALIDATOR.validate(json.loads(encoded.body))


def test_the_body_is_as_documented() -> None:
    """Other languages read it, so every character counts."""
    body = encode(MESSAGE).body
    assert json.loads(body) == SCHEMA["examples"][0]
    assert body.decode() in (DOCS / "messages.md").read_text(encoding="utf-8")
    alone = JobMessage(JOB, TOKEN, "email_digest", "acme", NOON + timedelta(microseconds=1500), alone=True)
    assert json.loads(encode(alone).body) == SCHEMA["examples"][0] | {
        "scheduled_for": "2026-03-02T12:00:00.001500Z",
        "alone": True,
    }


def test_the_properties_are_as_documented() -> None:
    """Identifiers are texts, since a reader of numbers may round them."""
    properties = encode(MESSAGE, now=NOON + timedelta(seconds=90.7)).properties
    expected = pika.BasicProperties(
        content_type="application/json",
        delivery_mode=2,
        message_id=f"{JOB}:{TOKEN}",
        type="cronless.job.v1",
        app_id="cronless",
        timestamp=int(NOON.timestamp()) + 90,
        headers={"tenant": "acme", "token": str(TOKEN)},
    )
    assert vars(properties) == vars(expected)


@given(messages)
def test_the_properties_survive_the_wire(message: JobMessage) -> None:
    """No name makes them unwritable, in AMQP's own encoding."""
    properties = encode(message).properties
    read = pika.BasicProperties()
    read.decode(b"".join(properties.encode()))
    assert vars(read) == vars(properties)


def test_the_clock_stamps_a_message() -> None:
    """Unless the caller knows better."""
    before = int(datetime.now(UTC).timestamp())
    assert before <= encode(MESSAGE).properties.timestamp <= datetime.now(UTC).timestamp()


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (JobMessage(JOB, TOKEN, "a", "b", datetime(2026, 3, 2)), "no zone"),  # noqa: DTZ001 - what is refused
        (JobMessage(JOB, TOKEN, "", "b", NOON), "a name is empty"),
        (JobMessage(JOB, TOKEN, "a", "", NOON), "a name is empty"),
        (JobMessage(JOB, TOKEN, "a", "b" * LARGEST, NOON), "16,384 bytes"),
        (JobMessage(JOB, TOKEN, "a", "\ud800", NOON), "no Unicode text"),
    ],
)
def test_what_no_worker_could_read_isnt_written(message: JobMessage, why: str) -> None:
    """The message names the job."""
    with pytest.raises(BrokerError, match=why) as caught:
        encode(message)
    assert str(JOB) in str(caught.value)
    assert "\n" not in str(caught.value)


def _with(**changes: Any) -> bytes:
    return json.dumps(SCHEMA["examples"][0] | changes).encode()


def _without(field: str) -> bytes:
    return json.dumps({key: value for key, value in SCHEMA["examples"][0].items() if key != field}).encode()


class TestPoison:
    """What isn't a job of this version is refused with the reason, and can't do worse."""

    def test_fields_of_a_later_version_are_ignored(self) -> None:
        """So that optional fields can be added."""
        body = _with(priority=3, payload={"a": [1]})
        assert decode(body, BARE) == MESSAGE
        VALIDATOR.validate(json.loads(body))

    @pytest.mark.parametrize("field", SCHEMA["required"])
    def test_no_field_may_be_missing(self, field: str) -> None:
        """The reason names it."""
        with pytest.raises(PoisonMessage, match=field):
            decode(_without(field), BARE)

    @pytest.mark.parametrize(
        "changes",
        [
            {"version": 2},
            {"version": "1"},
            {"version": True},
            {"version": None},
            {"id": None},
            {"id": 7},
            {"id": ""},
            {"id": str(JOB).upper()},
            {"id": JOB.hex},
            {"id": f"{{{JOB}}}"},
            {"id": "x" * 10_000},
            {"token": [str(TOKEN)]},
            {"token": f"urn:uuid:{TOKEN}"},
            {"type": ""},
            {"type": None},
            {"type": 3},
            {"tenant": ""},
            {"tenant": {"id": "acme"}},
            {"scheduled_for": None},
            {"scheduled_for": 1_772_452_800},
            {"scheduled_for": "2026-03-02"},
            {"scheduled_for": "2026-03-02T12:00:00"},
            {"scheduled_for": "2026-03-02T12:00:00+00:00"},
            {"scheduled_for": "2026-03-02T12:00:00.1234567Z"},
            {"scheduled_for": "٢٠٢٦-03-02T12:00:00Z"},
            {"alone": 1},
            {"alone": "true"},
            {"alone": None},
        ],
        ids=lambda changes: ascii(changes)[:40],
    )
    def test_a_field_of_another_kind_is_named(self, changes: dict[str, Any]) -> None:
        """By us as by the schema: nobody else can write what we can't read."""
        body = _with(**changes)
        with pytest.raises(PoisonMessage, match=rf"The message(?:'s| has the) {next(iter(changes))} "):
            decode(body, BARE)
        assert not VALIDATOR.is_valid(json.loads(body))

    @pytest.mark.parametrize(
        "text",
        [
            "2026-02-30T12:00:00Z",
            "2026-03-02T24:00:00Z",
            "2026-03-02T12:60:00Z",
            "0000-03-02T12:00:00Z",
            "2026-03-02T12:00:00Z\n",
        ],
    )
    def test_an_instant_that_doesnt_exist_is_refused(self, text: str) -> None:
        """Though it has, or nearly has, the right form."""
        with pytest.raises(PoisonMessage, match="scheduled_for"):
            decode(_with(scheduled_for=text), BARE)

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            (b"", "no JSON"),
            (b"\xff\xfe", "no JSON"),
            (b"\xef\xbb\xbf{}", "no JSON"),
            (json.dumps(SCHEMA["examples"][0]).encode("utf-16"), "no JSON"),
            (b"[" * LARGEST, "no JSON"),
            (b'{"version":' + b"9" * 5_000 + b"}", "no JSON"),
            (b"null", "a JSON object"),
            (b"[]", "a JSON object"),
            (b'"cronless"', "a JSON object"),
            (b"{}", "version"),
            (b" " * (LARGEST + 1), "16,385 bytes"),
        ],
        ids=lambda value: ascii(value)[:20],
    )
    def test_a_body_that_is_no_job_is_refused(self, body: bytes, why: str) -> None:
        """Whatever anybody publishes to our queue."""
        with pytest.raises(PoisonMessage, match=why):
            decode(body, BARE)

    @pytest.mark.parametrize("kind", ["cronless.job.v2", "order.created", ""])
    def test_another_type_is_refused(self, kind: str) -> None:
        """Before the body is looked at."""
        with pytest.raises(PoisonMessage, match=r"only cronless\.job\.v1"):
            decode(encode(MESSAGE).body, pika.BasicProperties(type=kind))

    @given(
        st.binary(max_size=300)
        | st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(SCHEMA["required"]), inner),
        ).map(lambda value: json.dumps(value).encode())
    )
    def test_nothing_else_ever_happens(self, body: bytes) -> None:
        """A reason is one plain line that fits a header, for it is kept with the dead letter."""
        with pytest.raises(PoisonMessage) as caught:
            decode(body, BARE)
        assert len(str(caught.value)) < 500
        assert str(caught.value).isprintable()
        assert str(caught.value).isascii()
