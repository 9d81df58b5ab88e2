"""`cronless digests`: what may have been mailed, and what is known of it since."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import clean_environment, run_anywhere  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from tests.assets.digests.conftest import World
    from tests.cli.conftest import Ran

AT = datetime(2026, 3, 2, 11, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture
def run(
    run_anywhere: Callable[..., Ran],  # noqa: F811
    world: World,
    pg_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Ran]:
    """Run the command line on the world's database."""
    monkeypatch.setenv("CRONLESS_DATABASE_URL", pg_url)
    return run_anywhere


@pytest.fixture
def user(world: World) -> UUID:
    """Return a user with a digest that was being sent an hour ago."""
    user = world.add_user()
    world.execute(
        "INSERT INTO cronless_assets.digest_delivery (user_id, occurrence, tenant_id, local_date, status, message_id,"
        " covers_until, items, execution, started_at, error) VALUES (:id, :at, 'acme', :day, 'sending',"
        " '<1@example.org>', :at, '{1,2}', 'dead/1', :at, :error)",
        id=user,
        at=AT,
        day=AT.date(),
        error="took the text \x1b[31m",
    )
    return user


def test_listing(run: Callable[..., Ran], user: UUID) -> None:
    """With all that finds it in the mail server's log; a terminal isn't told what to do."""
    [found] = run("digests", "uncertain", "--json").json["uncertain"]
    assert (found["user_id"], found["message_id"], found["items"]) == (str(user), "<1@example.org>", 2)
    assert found["occurrence"] == "2026-03-02T11:00:00.123456Z"
    shown = run("digests", "uncertain")
    assert shown.status == 0
    assert "\x1b" not in shown.stdout
    assert "1 digest; settle each by" in shown.stdout


def test_young_ones_may_be_on_their_way(run: Callable[..., Ran], user: UUID) -> None:
    """They are listed where that is asked for."""
    assert run("digests", "uncertain", "--older-than", "2h").stdout == "No digest is uncertain.\n"


@pytest.mark.parametrize(("option", "status"), [("--was-sent", "sent"), ("--not-sent", "refused")])
def test_settling(world: World, run: Callable[..., Ran], user: UUID, option: str, status: str) -> None:
    """As the listing names it, and once."""
    [found] = run("digests", "uncertain", "--json").json["uncertain"]
    ran = run("digests", "settle", found["user_id"], found["occurrence"], option, "--json")
    assert ran.json["status"] == status
    assert world.ledger()[0].status == status
    assert (
        "settle only what"
        in run("digests", "settle", found["user_id"], found["occurrence"], option).refused()
    )
    assert run("digests", "uncertain", "--json").json == {"uncertain": []}


@pytest.mark.parametrize(
    "arguments",
    [
        ("x", "2026-03-02T11:00Z", "--was-sent"),
        ("00000000-0000-0000-0000-000000000007", "noon", "--was-sent"),
        ("00000000-0000-0000-0000-000000000007", "2026-03-02T11:00Z", "--was-sent"),
        ("00000000-0000-0000-0000-000000000007", "2026-03-02T11:00Z"),
    ],
)
def test_bad_input(run: Callable[..., Ran], arguments: Any) -> None:
    """One sentence each."""
    assert run("digests", "settle", *arguments).refused()


def test_without_the_assets_tables(run_anywhere: Callable[..., Ran], pg_url: str) -> None:  # noqa: F811
    """It says which command makes them."""
    assert "--assets" in run_anywhere("digests", "uncertain", "--database-url", pg_url).refused(1)


def test_the_clock_is_the_databases(world: World, run: Callable[..., Ran], user: UUID) -> None:
    """Also where it is virtual."""
    world.at(60 - timedelta(minutes=14).total_seconds() / 60)
    assert run("digests", "uncertain", "--json").json == {"uncertain": []}
