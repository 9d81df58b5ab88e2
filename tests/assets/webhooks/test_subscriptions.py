"""Subscribing and leaving in the caller's own transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from cronless_dagster.assets.webhooks import SubscriptionError, subscribe, unsubscribe
from cronless_dagster.assets.webhooks.subscriptions import check_address
from cronless_dagster.store import jobs
from cronless_dagster.store.errors import JobError
from tests.assets.webhooks.hub import TOPIC

if TYPE_CHECKING:
    from sqlalchemy import Engine

HUB = "https://hub.example/"


def count(engine: Engine, table: str) -> Any:
    """Count a table's rows."""
    with engine.connect() as connection:
        return connection.execute(text(f"SELECT count(*) FROM {table}")).scalar()


def test_a_subscription_has_its_job(assets_engine: Engine) -> None:
    """Named by the topic for people, its payload the subscription alone."""
    with assets_engine.begin() as connection:
        made = subscribe(connection, tenant_id="acme", topic=TOPIC, hub=HUB)
        row = connection.execute(text("SELECT * FROM cronless_assets.subscription")).one()
        job = jobs.get(connection, row.job_id)
    assert job is not None
    assert (row.id, row.status, row.tenant_id) == (made, "new", "acme")
    assert (job.payload, job.schedule) == ({"subscription": str(made)}, "@handler fallback=24h")
    assert job.name == f"{TOPIC} ({str(made)[:8]})"
    assert row.secret not in str(job)


def test_the_same_twice_is_one(assets_engine: Engine) -> None:
    """With its secret, and its job's plan."""
    seen = []
    for _ in range(2):
        with assets_engine.begin() as connection:
            subscribe(connection, tenant_id="acme", topic=TOPIC, hub=HUB)
            seen.append(
                connection.execute(text("SELECT id, secret, job_id FROM cronless_assets.subscription")).one()
            )
    assert seen[0] == seen[1]
    assert count(assets_engine, "cronless.scheduled_job") == 1


def test_tenants_and_hubs_are_told_apart(assets_engine: Engine) -> None:
    """Each with a secret and an address of its own."""
    with Session(assets_engine) as session:
        ids = {
            subscribe(session, tenant_id="acme", topic=TOPIC, hub=HUB),
            subscribe(session, tenant_id="acme", topic=TOPIC, hub="https://hub2.example/"),
            subscribe(session, tenant_id="../x|y", topic=TOPIC, hub=HUB),
        }
        session.commit()
    assert len(ids) == 3
    assert count(assets_engine, "cronless.scheduled_job") == 3
    assert count(assets_engine, "(SELECT DISTINCT secret FROM cronless_assets.subscription) AS one") == 3


def test_a_rolled_back_transaction_leaves_nothing(assets_engine: Engine) -> None:
    """Neither half."""
    with assets_engine.connect() as connection:
        subscribe(connection, tenant_id="acme", topic=TOPIC, hub=HUB)
        connection.rollback()
    assert count(assets_engine, "cronless_assets.subscription") == 0
    assert count(assets_engine, "cronless.scheduled_job") == 0


def test_the_longest_addresses_fit(assets_engine: Engine) -> None:
    """Into the index of tenant, topic and hub, however little they can be compressed."""
    noise = "".join(uuid4().hex for _ in range(40))
    with assets_engine.begin() as connection:
        subscribe(
            connection,
            tenant_id="".join(chr(0x4E00 + int(uuid4().hex[:3], 16)) for _ in range(200)),
            topic=f"https://a.example/{noise}"[:1_000],
            hub=f"https://b.example/{noise[::-1]}"[:1_000],
        )
    assert count(assets_engine, "cronless_assets.subscription") == 1


@pytest.mark.parametrize(
    "address",
    [
        "",
        "feed.xml",
        "ftp://feeds.example/x",
        "https://",
        "https:///path",
        "https://feeds.example/a b",
        "https://feeds.example/a\nb",
        "https://feeds.example/a\r\nHost: x",
        "https://feeds.example/\x00",
        "https://feeds.example/é",
        "https://user:made-up@feeds.example/",
        "https://feeds.example:99999/",
        "https://[::1/",
        "javascript:alert(1)",
        "https://feeds.example/" + "x" * 1_000,
    ],
)
def test_what_is_no_web_address_is_refused(assets_engine: Engine, address: str) -> None:
    """As topic and as hub, in one sentence and without half a write."""
    for wrong in ({"topic": address, "hub": HUB}, {"topic": TOPIC, "hub": address}):
        with assets_engine.begin() as connection, pytest.raises(SubscriptionError) as refused:
            subscribe(connection, tenant_id="acme", **wrong)
        assert "\n" not in str(refused.value)
        assert "made-up" not in str(refused.value)
    assert count(assets_engine, "cronless_assets.subscription") == 0


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:80/x?y=z#1", "HTTPS://Feeds.Example/%C3%A9", "https://[::1]:8/"]
)
def test_what_is_a_web_address_is_taken(address: str) -> None:
    """Whether it may be reached is decided when it is connected to."""
    check_address("topic", address)


@pytest.mark.parametrize("tenant", ["", "a\x00b", "x" * 201, "\ud800"])
def test_a_tenant_that_cannot_be_stored_is_refused(assets_engine: Engine, tenant: str) -> None:
    """Before anything is written, and so without a secret in a database error."""
    with assets_engine.begin() as connection, pytest.raises(JobError):
        subscribe(connection, tenant_id=tenant, topic=TOPIC, hub=HUB)
    assert count(assets_engine, "cronless_assets.subscription") == 0


def test_leaving_what_is_not_there_is_told(assets_engine: Engine) -> None:
    """In one sentence."""
    with (
        assets_engine.begin() as connection,
        pytest.raises(SubscriptionError, match="there is no subscription"),
    ):
        unsubscribe(connection, uuid4())


def test_a_secret_is_never_shown(assets_engine: Engine) -> None:
    """Where a subscription is printed."""
    from cronless_dagster.assets.webhooks.records import find

    with assets_engine.begin() as connection:
        made = find(connection, subscribe(connection, tenant_id="acme", topic=TOPIC, hub=HUB))
    assert made is not None
    assert made.secret not in repr(made)
