"""The asset: what a claimed batch and a person's backfill do, and what people see of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from sqlalchemy import text

from cronless_dagster.assets.digests import email_digest
from cronless_dagster.assets.digests.resource import MailerResource
from cronless_dagster.assets.digests.users import find_user, schedule_digest, unsubscribe
from cronless_dagster.engine.job_types import JobTypes
from cronless_dagster.store.database import transaction
from tests.assets.digests.conftest import World
from tests.dagster.support import Location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from sqlalchemy import Engine

    from tests.assets.digests.conftest import MailServer

KEY = dg.AssetKey("email_digest")
JOB = "cronless_email_digest"


@pytest.fixture
def world(assets_engine: Engine) -> World:
    """A database on real time, since the sensor ticks by it."""
    made = World(assets_engine)
    made.now = datetime.now(UTC)
    return made


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A Dagster instance in memory."""
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def location(
    world: World,
    pg_url: str,
    instance: dg.DagsterInstance,
    mail_server: MailServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Location:
    """A code location whose digests go to the mail server."""
    monkeypatch.setenv("CRONLESS_PUBLIC_URL", "https://mail.example.org")
    mailer = MailerResource(url=mail_server.url, sender_address="News <news@example.org>")
    return Location(JobTypes((email_digest(),)), pg_url, instance, resources={"mailer": mailer}, health=None)


def add_due(world: World, user: UUID, occurrence: datetime | None = None) -> datetime:
    """Schedule a user's digest at an occurrence, by default the hour that began last; returns the occurrence."""
    at = occurrence or world.now.replace(minute=0, second=0, microsecond=0)
    with transaction(world.engine) as connection:
        local = at.astimezone(_zone(connection, user))
        job = schedule_digest(connection, user, at=f"{local:%H:%M}")
        connection.execute(
            text(
                "UPDATE cronless.scheduled_job SET next_run_at = :at, misfire_grace_seconds = 7200,"
                " created_at = :now - interval '9 days' WHERE id = :id"
            ),
            {"now": world.now, "at": at, "id": job},
        )
    return at


def _zone(connection: Any, user: UUID) -> Any:
    from cronless_dagster.scheduling.zones import zone

    return zone(find_user(connection, user).timezone)


def run_claim(location: Location) -> dg.ExecuteInProcessResult:
    """Tick and run what was claimed."""
    [request] = location.tick().run_requests
    return location.execute(request)


def backfill(
    location: Location, first: str, last: str | None = None, *, send_missing: bool = False
) -> dg.ExecuteInProcessResult:
    """Run a backfill of dates as a person launches it."""
    result = location.definitions.resolve_job_def(JOB).execute_in_process(
        instance=location.instance,
        tags={
            "dagster/asset_partition_range_start": first,
            "dagster/asset_partition_range_end": last or first,
        },
        run_config={"ops": {"cronless__email_digest": {"config": {"send_missing": send_missing}}}},
    )
    assert result.success
    return result


def seen(location: Location, result: dg.ExecuteInProcessResult) -> dict[str, dict[str, Any]]:
    """Return the metadata of each partition's materialization."""
    records = location.instance.get_records_for_run(
        result.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION
    ).records
    found = [record.asset_materialization for record in records]
    return {
        str(one.partition): {name: value.value for name, value in one.metadata.items()}
        for one in found
        if one is not None
    }


def records(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the table of digests."""
    return [dict(record.data) for record in metadata["digests"].records]


class TestClaim:
    """A claimed batch."""

    def test_each_local_date_is_materialized_with_its_counts(
        self, world: World, location: Location, mail_server: MailServer
    ) -> None:
        """Zones that are a day apart, one user with nothing new, one whom the server refuses nothing of."""
        world.add_item("First", 5)
        ahead = world.add_user("a@example.org", timezone="Pacific/Kiritimati")
        behind = world.add_user("b@example.org", timezone="Pacific/Pago_Pago")
        idle = world.add_user("c@example.org", since_days=0, timezone="Pacific/Pago_Pago")
        at, *_ = [add_due(world, user) for user in (ahead, behind, idle)]
        result = run_claim(location)
        first, second = (str((at + timedelta(hours=hours)).date()) for hours in (-11, 14))
        found = seen(location, result)
        assert set(found) == {first, second}
        assert (found[first]["sent"], found[first]["nothing_new"], found[second]["sent"]) == (1, 1, 1)
        assert (found[first]["dagster/row_count"], found[second]["dagster/row_count"]) == (2, 1)
        assert found[first]["dagster/table_name"] == "cronless_assets.digest_delivery"
        assert 0 < found[first]["lateness_max_seconds"] < 7200
        assert sorted(to for _, [to], _ in mail_server.postbox.mails) == ["a@example.org", "b@example.org"]
        [check] = result.get_asset_check_evaluations()
        assert check.passed
        assert {row.execution.split("/")[0] for row in world.ledger()} == {result.run_id}

    def test_who_fails_fails_alone(self, world: World, location: Location, mail_server: MailServer) -> None:
        """Bad rows, a refusal and an uncertain digest beside one that is sent."""
        world.add_item("First", 5)
        good, unknown_zone, newline, uncertain = (
            world.add_user(f"{name}@example.org") for name in ("good", "zone", "newline", "uncertain")
        )
        at, *_ = [add_due(world, user) for user in (good, unknown_zone, newline, uncertain)]
        world.execute(
            "UPDATE cronless_assets.digest_user SET timezone = 'Mars/Base' WHERE id = :id", id=unknown_zone
        )
        world.execute(
            "UPDATE cronless_assets.digest_user SET email = E'a@example.org\\nBcc: b@example.org' WHERE id = :id",
            id=newline,
        )
        world.execute(
            "INSERT INTO cronless_assets.digest_delivery (user_id, occurrence, tenant_id, local_date, status,"
            " covers_until, execution, started_at) VALUES (:id, :at, 'acme', :day, 'sending', :at, 'dead/1', :at)",
            id=uncertain,
            at=at,
            day=at.date(),
        )
        result = run_claim(location)
        [(day, found)] = seen(location, result).items()
        assert day == str(at.date())
        assert (found["sent"], found["uncertain"], found["failed"], found["refused"]) == (1, 1, 2, 0)
        errors = " ".join(record.data["error"] for record in found["failed_jobs"].records)
        for words in ("Mars/Base", "can't be used", "cronless digests settle"):
            assert words in errors
        assert [to for _, [to], _ in mail_server.postbox.mails] == ["good@example.org"]
        [check] = result.get_asset_check_evaluations()
        assert not check.passed

    def test_a_mail_server_that_cannot_be_used_fails_the_run_and_nobodys_try(
        self, world: World, location: Location, pg_url: str
    ) -> None:
        """The settings are read before the claim is held."""
        add_due(world, world.add_user())
        [request] = location.tick().run_requests
        wrong = {"mailer": MailerResource(url="http://mail.example.org")}
        types = JobTypes((email_digest(),))
        job = Location(
            types, pg_url, location.instance, resources=wrong, health=None
        ).definitions.resolve_job_def(JOB)
        with pytest.raises(Exception, match="ResourceDefinition mailer"):
            job.execute_in_process(instance=location.instance, run_config=request.run_config)
        with world.engine.connect() as connection:
            [row] = connection.execute(text("SELECT status, attempt FROM cronless.scheduled_job")).all()
        assert (row.status, row.attempt) == ("QUEUED", 0)

    def test_without_a_claim_nothing_is_done(self, location: Location) -> None:
        """A person who materializes the asset without dates is told so."""
        result = location.definitions.resolve_job_def(JOB).execute_in_process(instance=location.instance)
        assert result.success
        assert not seen(location, result)
        assert not result.get_asset_check_evaluations()


class TestBackfill:
    """Dates that a person looks at."""

    def test_it_shows_what_was_sent_and_sends_nothing(
        self, world: World, location: Location, mail_server: MailServer
    ) -> None:
        """Whatever it is told to."""
        world.add_item("First", 5)
        at = add_due(world, world.add_user(name="Reader"))
        run_claim(location)
        for send_missing in (False, True):
            found = seen(location, backfill(location, str(at.date()), send_missing=send_missing))[
                str(at.date())
            ]
            assert (found["sent"], found["missing"], found["dagster/row_count"]) == (1, 0, 1)
            [record] = records(found)
            assert (record["status"], record["subject"], record["items"]) == (
                "sent",
                "1 new item from Northwind",
                1,
            )
            assert "    Hello Reader," in found["previews"]
        assert len(mail_server.postbox.mails) == 1

    def test_it_composes_what_was_missed(
        self, world: World, location: Location, mail_server: MailServer
    ) -> None:
        """Days on which nothing ran: shown, not sent, and nothing written into the ledger or the plan."""
        world.add_item("First", 5)
        at = add_due(world, world.add_user()) - timedelta(days=2)
        before = self.plan(world)
        found = seen(location, backfill(location, str(at.date()), str((at + timedelta(days=1)).date())))
        assert [metadata["missing"] for metadata in found.values()] == [1, 1]
        [record] = records(found[str(at.date())])
        assert (record["subject"], record["occurrence"]) == (
            "1 new item from Northwind",
            f"{at:%Y-%m-%d %H:%M:%SZ}",
        )
        assert not mail_server.postbox.mails
        assert not world.ledger()
        assert self.plan(world) == before

    def test_it_sends_what_was_missed_where_it_is_told_to(
        self, world: World, location: Location, mail_server: MailServer
    ) -> None:
        """Once, however often; what the first of the dates holds is in no other."""
        world.add_item("First", 5)
        at = add_due(world, world.add_user()) - timedelta(days=2)
        dates = str(at.date()), str((at + timedelta(days=1)).date())
        before = self.plan(world)
        for _ in range(2):
            found = seen(location, backfill(location, *dates, send_missing=True))
            assert [(one["sent"], one["nothing_new"]) for one in found.values()] == [(1, 0), (0, 1)]
        assert len(mail_server.postbox.mails) == 1
        assert self.plan(world) == before

    def test_what_was_refused_is_sent_again_and_what_is_uncertain_is_not(
        self, world: World, location: Location, mail_server: MailServer
    ) -> None:
        """Only what is known not to be mailed."""
        world.add_item("First", 5)
        refused, uncertain = world.add_user("r@example.org"), world.add_user("u@example.org")
        at, *_ = [add_due(world, user) for user in (refused, uncertain)]
        for user, status in ((refused, "refused"), (uncertain, "sending")):
            world.execute(
                "INSERT INTO cronless_assets.digest_delivery (user_id, occurrence, tenant_id, local_date, status,"
                " covers_until, execution, started_at) VALUES (:id, :at, 'acme', :day, :status, :at, 'dead/1', :at)",
                id=user,
                at=at,
                day=at.date(),
                status=status,
            )
        found = seen(location, backfill(location, str(at.date()), send_missing=True))[str(at.date())]
        assert (found["sent"], found["uncertain"]) == (1, 1)
        assert [to for _, [to], _ in mail_server.postbox.mails] == ["r@example.org"]

    def test_a_refusal_in_a_backfill_is_that_users(
        self, world: World, location: Location, mail_server: MailServer
    ) -> None:
        """The run goes on and says whom the server refused."""
        world.add_item("First", 5)
        at = add_due(world, world.add_user()) - timedelta(days=1)
        mail_server.postbox.recipient = "550 no such mailbox"
        found = seen(location, backfill(location, str(at.date()), send_missing=True))[str(at.date())]
        assert found["refused"] == 1
        assert "no such mailbox" in records(found)[0]["error"]

    def test_tomorrow_is_planned_and_never_sent(
        self, world: World, location: Location, mail_server: MailServer
    ) -> None:
        """Partitions reach two days ahead, since clocks do."""
        world.add_item("First", 5)
        at = add_due(world, world.add_user()) + timedelta(days=1)
        found = seen(location, backfill(location, str(at.date()), send_missing=True))[str(at.date())]
        assert (found["planned"], found["sent"]) == (1, 0)
        assert not mail_server.postbox.mails

    def test_dates_are_the_users_own(self, world: World, location: Location) -> None:
        """08:00 on the first of the month in Kiritimati is the day before in UTC."""
        user = world.add_user(timezone="Pacific/Kiritimati")
        with transaction(world.engine) as connection:
            schedule_digest(connection, user, at="08:00")
        world.execute("UPDATE cronless.scheduled_job SET created_at = now() - interval '9 days'")
        day = (world.now - timedelta(days=3)).date()
        [record] = records(seen(location, backfill(location, str(day)))[str(day)])
        assert record["occurrence"] == f"{day - timedelta(days=1)} 18:00:00Z"

    def test_bad_rows_are_shown_and_hide_nobody(self, world: World, location: Location) -> None:
        """A zone that is unknown, a user who is gone, one who has unsubscribed."""
        good, unknown_zone, gone, stopped = (world.add_user(f"{name}@example.org") for name in "abcd")
        at, *_ = [add_due(world, user) for user in (good, unknown_zone, gone, stopped)]
        world.execute(
            "UPDATE cronless_assets.digest_user SET timezone = 'Mars/Base' WHERE id = :id", id=unknown_zone
        )
        world.execute("DELETE FROM cronless_assets.digest_user WHERE id = :id", id=gone)
        with transaction(world.engine) as connection:
            unsubscribe(connection, stopped)
        day = str((at - timedelta(days=1)).date())
        found = seen(location, backfill(location, day))[day]
        assert (found["missing"], found["unusable"], found["dagster/row_count"]) == (1, 2, 3)
        errors = " ".join(record["error"] for record in records(found))
        assert "Mars/Base" in errors
        assert f"has no user {gone}" in errors

    def plan(self, world: World) -> Any:
        """Return when the job is due."""
        with world.engine.connect() as connection:
            return connection.execute(
                text("SELECT status, next_run_at, scheduled_for, plan_version FROM cronless.scheduled_job")
            ).all()


class TestDeclaration:
    """The asset as Dagster sees it."""

    def test_partitions_reach_ahead_of_utc(self, location: Location) -> None:
        """Zones are up to fourteen hours ahead, so tomorrow's partition is there at any hour."""
        [asset] = [one for one in location.definitions.assets or () if KEY in one.keys]  # type: ignore[union-attr]
        partitions = asset.partitions_def  # type: ignore[union-attr]
        keys = partitions.get_partition_keys(current_time=datetime(2026, 3, 2, 10, 30, tzinfo=UTC))
        assert keys[-1] == "2026-03-03"

    def test_freshness_is_a_knob(self) -> None:
        """A day and two hours, another time, or none."""

        def policy(**options: Any) -> Any:
            made = email_digest(**options)
            assert made.asset is not None
            return made.asset(made).specs_by_key[KEY].freshness_policy

        assert policy().fail_window.to_timedelta() == timedelta(hours=26)
        assert policy(fresh_within=timedelta(days=8)).fail_window.to_timedelta() == timedelta(days=8)
        assert policy(fresh_within=None) is None

    def test_the_resource_shows_no_password(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither by itself nor with a bad address."""
        monkeypatch.setenv("DIGEST_MAIL", "smtp://reader:hunter2@mail.example.org?tls=no")
        resource = MailerResource(url=dg.EnvVar("DIGEST_MAIL"))
        assert "hunter2" not in repr(resource)

    def test_the_resource_falls_back_to_the_settings(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, serve_mail: Callable[..., MailServer]
    ) -> None:
        """A mail server, a Maildir of its own, or the one in our home."""
        monkeypatch.setenv("CRONLESS_HOME", str(tmp_path))
        assert MailerResource().mailer().path == tmp_path / "maildir"  # type: ignore[union-attr]
        monkeypatch.setenv("CRONLESS_SMTP_URL", "smtp://mail.example.org")
        assert MailerResource().mailer().server.host == "mail.example.org"  # type: ignore[union-attr]
        assert MailerResource(maildir=str(tmp_path / "m")).mailer().path == tmp_path / "m"  # type: ignore[union-attr]
        monkeypatch.setenv("CRONLESS_MAIL_FROM", "News <news@example.org>")
        assert MailerResource().sender == "News <news@example.org>"
