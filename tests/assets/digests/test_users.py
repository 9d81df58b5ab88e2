"""Users, what they follow, and the hour of their digest."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from sqlalchemy import text

from cronless_dagster.assets.digests import users
from cronless_dagster.assets.digests.errors import AddressError, DigestError
from cronless_dagster.engine.job_types import JobType, JobTypes
from cronless_dagster.engine.tick import tick
from cronless_dagster.scheduling.errors import CronlessError, TimezoneError
from cronless_dagster.store.database import transaction
from tests.conftest import VIRTUAL_NOW

if TYPE_CHECKING:
    from tests.assets.digests.conftest import World


def jobs_of(world: World) -> list[Any]:
    """Return the scheduled jobs."""
    with world.engine.connect() as connection:
        return list(connection.execute(text("SELECT * FROM cronless.scheduled_job ORDER BY created_at")))


class TestAdding:
    """add_user."""

    def test_the_same_address_is_the_same_user(self, world: World) -> None:
        """With the newest name and zone, and unsubscribed as before."""
        first = world.add_user(name="Old")
        with transaction(world.engine) as connection:
            users.unsubscribe(connection, first)
        second = world.add_user(name="New", timezone="Asia/Tokyo")
        with transaction(world.engine) as connection:
            found = users.find_user(connection, second)
        assert (first, found.name, found.timezone) == (second, "New", "Asia/Tokyo")
        assert found.unsubscribed_at == VIRTUAL_NOW

    @pytest.mark.parametrize(
        ("values", "error"),
        [
            ({"email": "nobody"}, AddressError),
            ({"email": "a@b.example\nBcc: c@d.example"}, AddressError),
            ({"name": "A\nB"}, AddressError),
            ({"timezone": "Mars/Base"}, TimezoneError),
            ({"tenant_id": ""}, DigestError),
            ({"tenant_id": "a\x00"}, DigestError),
        ],
    )
    def test_bad_input_writes_nothing(
        self, world: World, values: dict[str, str], error: type[CronlessError]
    ) -> None:
        """And leaves the caller's transaction usable."""
        with transaction(world.engine) as connection:
            with pytest.raises(error):
                users.add_user(connection, **{"tenant_id": "acme", "email": "a@b.example", **values})
            assert connection.scalar(text("SELECT count(*) FROM cronless_assets.digest_user")) == 0


class TestFollowing:
    """follow and unfollow."""

    def test_only_the_own_tenants_accounts(self, world: World) -> None:
        """Another tenant's account is as unknown as one that isn't there."""
        user, foreign = world.add_user(), world.add_account("Foreign", "other")
        for account in (foreign, UUID(int=7)):
            with transaction(world.engine) as connection, pytest.raises(DigestError, match="has no account"):
                users.follow(connection, user, account)

    def test_twice_is_once_and_keeps_its_beginning(self, world: World) -> None:
        """Since when is what decides about what is new."""
        user = world.add_user(since_days=5)
        with transaction(world.engine) as connection:
            users.follow(connection, user, world.account)
            [row] = connection.execute(text("SELECT * FROM cronless_assets.follow")).all()
            assert (VIRTUAL_NOW - row.since).days == 5
            users.unfollow(connection, user, world.account)
            assert not connection.execute(text("SELECT * FROM cronless_assets.follow")).all()


class TestHour:
    """schedule_digest."""

    @pytest.mark.parametrize(
        ("days", "line"),
        [("daily", "30 7 * * *"), ("weekdays", "30 7 * * MON-FRI"), ("monday", "30 7 * * MON")],
    )
    def test_in_the_users_own_zone(self, world: World, days: str, line: str) -> None:
        """One job for each user, whose hour is an update."""
        user = world.add_user(timezone="Asia/Kathmandu")
        with transaction(world.engine) as connection:
            first = users.schedule_digest(connection, user)
            assert users.schedule_digest(connection, user, at="07:30", days=days, jitter_seconds=600) == first
        [row] = jobs_of(world)
        assert (row.schedule, row.timezone, row.tenant_id, row.jitter_seconds) == (
            line,
            "Asia/Kathmandu",
            "acme",
            600,
        )
        assert row.payload == {"user": str(user)}

    def test_it_is_planned_at_that_hour(self, world: World) -> None:
        """08:00 in Kathmandu is 02:15 UTC."""
        user = world.add_user(timezone="Asia/Kathmandu")
        with transaction(world.engine) as connection:
            users.schedule_digest(connection, user)
        tick(world.engine, JobTypes((JobType(name="email_digest", handler=print),)), now=VIRTUAL_NOW)
        [row] = jobs_of(world)
        assert row.next_run_at == datetime(2026, 3, 3, 2, 15, tzinfo=UTC)

    @pytest.mark.parametrize(
        "options",
        [{"at": "8:00"}, {"at": "24:00"}, {"at": "08:60"}, {"at": "\u0660\u0668:00"}, {"days": "often"}],
    )
    def test_what_cannot_be_read(self, world: World, options: dict[str, str]) -> None:
        """Nothing is scheduled."""
        user = world.add_user()
        with (
            transaction(world.engine) as connection,
            pytest.raises(DigestError, match=r"can't be read|unknown"),
        ):
            users.schedule_digest(connection, user, **options)
        assert not jobs_of(world)

    def test_a_user_who_is_unknown_or_in_an_unknown_zone(self, world: World) -> None:
        """As plain SQL may have written it."""
        user = world.add_user()
        world.execute("UPDATE cronless_assets.digest_user SET timezone = 'Mars/Base'")
        with transaction(world.engine) as connection, pytest.raises(TimezoneError, match="Mars/Base"):
            users.schedule_digest(connection, user)
        with transaction(world.engine) as connection, pytest.raises(DigestError, match="no user"):
            users.schedule_digest(connection, UUID(int=7))
        assert not jobs_of(world)
