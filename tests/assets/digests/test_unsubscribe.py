"""Where the link at a digest's end leads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.applications import Starlette

from cronless_dagster.assets.digests.unsubscribe import routes
from cronless_dagster.assets.digests.users import find_user, resubscribe

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Engine

    from tests.assets.digests.conftest import World


class Client:
    """A client of the application, without a server between them."""

    def __init__(self, engine: Engine) -> None:
        self._transport = httpx.ASGITransport(Starlette(routes=routes(engine)))

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Ask once."""

        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport, base_url="http://test") as client:
                return await client.request(method, path, **options)

        return asyncio.run(ask())


@pytest.fixture
def ask(world: World) -> Client:
    """Ask the application."""
    return Client(world.engine)


def unsubscribed_at(world: World, user: UUID) -> datetime | None:
    """Return since when a user gets no digests."""
    with world.engine.connect() as connection:
        return find_user(connection, user).unsubscribed_at


def test_opening_the_link_changes_nothing(world: World, ask: Client) -> None:
    """Scanners open every link of a mail; a person presses the button."""
    user = world.add_user()
    answer = ask("GET", f"/unsubscribe/{user}")
    assert answer.status_code == 200
    assert '<form method="post">' in answer.text
    assert ask("HEAD", f"/unsubscribe/{user}").status_code == 200
    assert unsubscribed_at(world, user) is None
    assert "reader@example.org" not in answer.text


def test_one_click_unsubscribes(world: World, ask: Client) -> None:
    """As a mail reader does it (RFC 8058), and twice is once."""
    user, other = world.add_user(), world.add_user("other@example.org")
    for _ in range(2):
        answer = ask("POST", f"/unsubscribe/{user}", data={"List-Unsubscribe": "One-Click"})
        assert answer.status_code == 200
        assert "You are unsubscribed" in answer.text
        assert not answer.cookies
    assert unsubscribed_at(world, user) is not None
    assert unsubscribed_at(world, other) is None
    assert "You are unsubscribed" in ask("GET", f"/unsubscribe/{user}").text


def test_coming_back(world: World, ask: Client) -> None:
    """By the application, since the page offers no way back."""
    user = world.add_user()
    ask("POST", f"/unsubscribe/{user}")
    with world.engine.begin() as connection:
        assert resubscribe(connection, user)
    assert unsubscribed_at(world, user) is None


@pytest.mark.parametrize(
    "who", ["x", "00000000-0000-0000-0000-000000000007", "..", "%00", "876bbfff-778f-4fb9-a70a-c17159d97015"]
)
def test_whoever_is_unknown_is_404(ask: Client, who: str) -> None:
    """And nothing else is said."""
    for answer in (ask("GET", f"/unsubscribe/{who}"), ask("POST", f"/unsubscribe/{who}")):
        assert answer.status_code == 404


def test_the_address_is_told_to_nobody(world: World, ask: Client) -> None:
    """It is all the secret there is."""
    headers = ask("GET", f"/unsubscribe/{world.add_user()}").headers
    assert (headers["referrer-policy"], headers["cache-control"]) == ("no-referrer", "no-store")
