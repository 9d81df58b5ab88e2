"""A user's digest: mailed once, whatever happens in between."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from cronless_dagster.assets.digests import email_digest, ledger
from cronless_dagster.assets.digests.errors import DigestError, MaybeSent, NotSent, Refused, Uncertain
from cronless_dagster.assets.digests.sending import Digests
from cronless_dagster.assets.digests.smtp import SmtpMailer
from cronless_dagster.assets.digests.users import find_user, schedule_digest, unsubscribe
from cronless_dagster.engine.errors import PermanentFailure
from cronless_dagster.engine.job_types import JobTypes
from cronless_dagster.engine.local import tick_and_run
from cronless_dagster.store.database import transaction
from tests.assets.digests.conftest import TENANT
from tests.conftest import VIRTUAL_NOW

if TYPE_CHECKING:
    from email.message import EmailMessage

    from cronless_dagster.assets.digests.sending import Delivered
    from tests.assets.digests.conftest import MailServer, World

DAY = timedelta(days=1)
DIGESTS = Digests(public_url="https://mail.example.org")


class Outbox:
    """A mailer that keeps what it is given, or raises what it is told."""

    sender = "News <news@example.org>"

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.to: list[str] = []
        self.fails: Exception | None = None

    def send(self, message: EmailMessage, *, to: str, sender: str) -> None:
        """Keep a mail."""
        assert sender == "news@example.org"
        if self.fails is not None:
            raise self.fails
        self.mails.append(message)
        self.to.append(to)

    def close(self) -> None:
        """Nothing is open."""

    @property
    def titles(self) -> list[list[str]]:
        """The titles that each mail lists."""
        texts = [mail.get_body(("plain",)).get_content() for mail in self.mails]  # type: ignore[union-attr]
        return [[line[2:] for line in text.splitlines() if line.startswith("* ")] for text in texts]


@pytest.fixture
def outbox() -> Outbox:
    """Where mails go."""
    return Outbox()


def deliver(
    world: World, mailer: Any, user: UUID, occurrence: datetime = VIRTUAL_NOW, digests: Digests = DIGESTS
) -> Delivered:
    """Send a user's digest, each time as an execution of its own."""
    return digests.deliver(
        world.engine,
        mailer,
        tenant_id=TENANT,
        user_id=user,
        occurrence=occurrence,
        execution=f"run/{uuid4()}",
    )


class TestNews:
    """What a digest holds."""

    def test_what_is_new_is_mailed_and_written_down(self, world: World, outbox: Outbox) -> None:
        """Newest first, with the ledger's row complete."""
        first, second = world.add_item("First", 90), world.add_item("Second", 30)
        user = world.add_user(name="Reader")
        delivered = deliver(world, outbox, user)
        assert (delivered.status, delivered.local_date) == ("sent", date(2026, 3, 2))
        assert outbox.titles == [["Second", "First"]]
        assert outbox.to == ["reader@example.org"]
        [row] = world.ledger()
        assert (row.status, row.items, row.covers_until) == ("sent", [second, first], VIRTUAL_NOW)
        assert row.message_id == outbox.mails[0]["Message-ID"]
        assert row.ended_at is not None

    def test_nothing_new_is_no_mail(self, world: World, outbox: Outbox) -> None:
        """And is written down, so that the next one begins there."""
        user = world.add_user()
        assert deliver(world, outbox, user).status == "nothing_new"
        [row] = world.ledger()
        assert (row.status, row.message_id, row.items) == ("nothing_new", None, [])
        assert not outbox.mails

    def test_the_next_digest_begins_where_the_last_one_ended(self, world: World, outbox: Outbox) -> None:
        """No item twice, none left out."""
        user = world.add_user()
        world.at(DAY.total_seconds() / 60)
        world.add_item("Yesterday's", 5)
        deliver(world, outbox, user, VIRTUAL_NOW - DAY)
        world.at(0)
        world.add_item("Today's", 5)
        deliver(world, outbox, user)
        assert outbox.titles == [["Yesterday's"], ["Today's"]]

    def test_an_item_that_was_committed_late_is_in_the_next_digest(
        self, world: World, outbox: Outbox
    ) -> None:
        """Its refresh said when it was seen, and committed after the digest had looked."""
        user = world.add_user()
        world.at(60)
        world.add_item("Early", 5)
        deliver(world, outbox, user, VIRTUAL_NOW - timedelta(hours=1))
        world.add_item("Late", 3)
        world.at(0)
        deliver(world, outbox, user)
        assert outbox.titles == [["Early"], ["Late"]]

    def test_the_overlap_is_a_knob(self, world: World, outbox: Outbox) -> None:
        """Without one, what commits late is lost: it is what the overlap is for."""
        user = world.add_user()
        world.at(60)
        deliver(world, outbox, user, VIRTUAL_NOW - timedelta(hours=1))
        world.add_item("Late", 3)
        world.at(0)
        assert (
            deliver(world, outbox, user, digests=replace(DIGESTS, overlap=timedelta(0))).status
            == "nothing_new"
        )

    def test_what_was_seen_before_following_is_not_new(self, world: World, outbox: Outbox) -> None:
        """The account's past isn't a reader's news."""
        world.add_item("Old", 3 * 24 * 60)
        world.add_item("New", 60)
        deliver(world, outbox, world.add_user(since_days=1))
        assert outbox.titles == [["New"]]

    def test_only_accounts_of_the_own_tenant(self, world: World, outbox: Outbox) -> None:
        """Even where somebody wrote another tenant's account into the table."""
        user = world.add_user()
        foreign = world.add_account("Foreign", "other")
        world.execute(
            "INSERT INTO cronless_assets.follow (user_id, account_id, since) VALUES (:user, :account, :since)",
            user=user,
            account=foreign,
            since=VIRTUAL_NOW - DAY,
        )
        world.add_item("Secret", 5, account=foreign)
        assert deliver(world, outbox, user).status == "nothing_new"


class TestOnce:
    """No occurrence is mailed twice."""

    def test_a_second_try_of_what_was_sent_is_a_success_without_a_mail(
        self, world: World, outbox: Outbox
    ) -> None:
        """As after a lost answer to the finish."""
        world.add_item("First", 5)
        user = world.add_user()
        deliver(world, outbox, user)
        world.add_item("Second", 1)
        assert deliver(world, outbox, user).status == "already"
        assert len(outbox.mails) == 1

    def test_two_at_once_mail_once(self, world: World, mail_server: MailServer) -> None:
        """While the first waits for the server's answer, the second finds it sending."""
        world.add_item("First", 5)
        user = world.add_user()
        mail_server.postbox.go_on = threading.Event()
        mailer = SmtpMailer(mail_server.url)
        first = threading.Thread(target=lambda: deliver(world, mailer, user))
        first.start()
        assert mail_server.postbox.arrived.wait(30)
        with pytest.raises(Uncertain, match="may have been mailed"):
            deliver(world, mailer, user)
        mail_server.postbox.go_on.set()
        first.join(30)
        assert len(mail_server.postbox.mails) == 1
        [row] = world.ledger()
        assert row.status == "sent"

    def test_many_that_begin_together_mail_once(self, world: World, mail_server: MailServer) -> None:
        """Whoever inserts the row wins."""
        world.add_item("First", 5)
        user = world.add_user()
        mailer = SmtpMailer(mail_server.url)
        together, ends = threading.Barrier(4), []

        def one() -> None:
            together.wait()
            try:
                ends.append(deliver(world, mailer, user).status)
            except Uncertain:
                ends.append("uncertain")

        threads = [threading.Thread(target=one) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert ends.count("sent") == 1
        assert set(ends) <= {"sent", "already", "uncertain"}
        assert len(mail_server.postbox.mails) == 1

    def test_two_occurrences_of_a_user_never_hold_the_same_item(
        self, world: World, mail_server: MailServer
    ) -> None:
        """A manual run beside the planned one."""
        world.add_item("First", 5)
        user = world.add_user()
        mail_server.postbox.go_on = threading.Event()
        mailer = SmtpMailer(mail_server.url)
        first = threading.Thread(target=lambda: deliver(world, mailer, user))
        first.start()
        assert mail_server.postbox.arrived.wait(30)
        for occurrence in (VIRTUAL_NOW - DAY, VIRTUAL_NOW + DAY):
            assert deliver(world, mailer, user, occurrence).status == "nothing_new"
        mail_server.postbox.go_on.set()
        first.join(30)
        assert len(mail_server.postbox.mails) == 1

    def test_one_digest_of_a_user_is_begun_at_a_time(self, world: World, outbox: Outbox) -> None:
        """One that is begun beside another waits for its end, and then sees what it holds."""
        world.add_item("First", 5)
        user, ends = world.add_user(), []
        second = threading.Thread(target=lambda: ends.append(deliver(world, outbox, user).status))
        waiting = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        with transaction(world.engine) as connection:
            ledger.begin(
                connection,
                find_user(connection, user, lock=True),
                VIRTUAL_NOW - DAY,
                local_date=(VIRTUAL_NOW - DAY).date(),
                message_id="<1@example.org>",
                execution="first/1",
                overlap=timedelta(0),
            )
            second.start()
            while second.is_alive() and not connection.scalar(waiting):
                # What the server says of its processes stays the same within a transaction unless it is asked anew.
                connection.execute(text("SELECT pg_stat_clear_snapshot()"))
                time.sleep(0.02)
        second.join(30)
        assert ends == ["nothing_new"]
        assert not outbox.mails

    def test_a_connection_that_broke_after_the_text_leaves_it_uncertain(
        self, world: World, mail_server: MailServer
    ) -> None:
        """The server accepted it here, and nobody could know; the next try doesn't mail."""
        world.add_item("First", 5)
        user = world.add_user()
        mail_server.postbox.hang_up = "accepted"
        mailer = SmtpMailer(mail_server.url)
        with pytest.raises(Uncertain, match="took the mail's text"):
            deliver(world, mailer, user)
        mail_server.postbox.hang_up = None
        with pytest.raises(Uncertain, match="cronless digests settle"):
            deliver(world, mailer, user)
        assert len(mail_server.postbox.mails) == 1
        [row] = world.ledger()
        assert row.status == "sending"
        assert "took the mail's text" in row.error

    def test_a_mailer_of_ones_own_that_raises_anything_leaves_it_uncertain(
        self, world: World, outbox: Outbox
    ) -> None:
        """What isn't known not to be sent may have been."""
        world.add_item("First", 5)
        user = world.add_user()
        outbox.fails = RuntimeError("the provider's API answered 500\0\udc80")
        with pytest.raises(Uncertain, match="answered 500"):
            deliver(world, outbox, user)
        assert world.ledger()[0].status == "sending"

    def test_a_next_digest_leaves_out_what_an_uncertain_one_holds(self, world: World, outbox: Outbox) -> None:
        """It may have been read."""
        user = world.add_user()
        world.add_item("First", 5)
        outbox.fails = MaybeSent("no answer")
        with pytest.raises(Uncertain):
            deliver(world, outbox, user)
        outbox.fails = None
        world.add_item("Second", 2)
        deliver(world, outbox, user, VIRTUAL_NOW + DAY)
        assert outbox.titles == [["Second"]]


class TestRefused:
    """What the server refused is known not to be mailed."""

    def test_for_now_it_is_tried_again_under_the_same_message_id(
        self, world: World, mail_server: MailServer
    ) -> None:
        """A greylisting server sees the same mail."""
        world.add_item("First", 5)
        user = world.add_user()
        mailer = SmtpMailer(mail_server.url)
        mail_server.postbox.recipient = "451 try later"
        with pytest.raises(NotSent, match="try later"):
            deliver(world, mailer, user)
        [refused] = world.ledger()
        assert (refused.status, "451 try later" in refused.error) == ("refused", True)
        mail_server.postbox.recipient = None
        assert deliver(world, mailer, user).status == "sent"
        [(_, _, message)] = mail_server.postbox.mails
        assert message["Message-ID"] == refused.message_id
        assert world.ledger()[0].error is None

    def test_for_good_it_is_not_tried_again(self, world: World, mail_server: MailServer) -> None:
        """A mailbox that isn't there."""
        world.add_item("First", 5)
        user = world.add_user()
        mail_server.postbox.recipient = "550 no such mailbox"
        with pytest.raises(Refused, match="no such mailbox"):
            deliver(world, SmtpMailer(mail_server.url), user)
        assert world.ledger()[0].status == "refused"

    def test_what_it_held_is_in_the_next_digest_once(self, world: World, outbox: Outbox) -> None:
        """Nothing is lost by a day without a mail server."""
        user = world.add_user()
        world.add_item("First", 5)
        outbox.fails = NotSent("away", temporary=True)
        with pytest.raises(NotSent):
            deliver(world, outbox, user, VIRTUAL_NOW - DAY)
        outbox.fails = None
        world.add_item("Second", 2)
        deliver(world, outbox, user)
        assert deliver(world, outbox, user, VIRTUAL_NOW + DAY).status == "nothing_new"
        assert outbox.titles == [["Second", "First"]]


class TestSettling:
    """An uncertain digest, once somebody has looked into the mail server's log."""

    @pytest.fixture
    def user(self, world: World, outbox: Outbox) -> UUID:
        """Return a user with an uncertain digest, and one that was sent after it."""
        user = world.add_user()
        world.at(DAY.total_seconds() / 60)
        world.add_item("First", 5)
        outbox.fails = MaybeSent("no answer")
        with pytest.raises(Uncertain):
            deliver(world, outbox, user, VIRTUAL_NOW - DAY)
        outbox.fails = None
        world.at(0)
        world.add_item("Second", 5)
        deliver(world, outbox, user)
        return user

    def settle(self, world: World, user: UUID, *, was_sent: bool) -> None:
        """Settle it."""
        with transaction(world.engine) as connection:
            [found] = ledger.uncertain(connection, before=VIRTUAL_NOW)
            assert (found.user_id, found.error) == (user, "no answer")
            ledger.settle(connection, user, found.occurrence, was_sent=was_sent)
            assert not ledger.uncertain(connection, before=VIRTUAL_NOW)

    def test_one_that_was_sent_stays_so(self, world: World, outbox: Outbox, user: UUID) -> None:
        """Nothing is mailed any more."""
        self.settle(world, user, was_sent=True)
        assert deliver(world, outbox, user, VIRTUAL_NOW - DAY).status == "already"
        assert deliver(world, outbox, user, VIRTUAL_NOW + DAY).status == "nothing_new"

    def test_one_that_was_not_is_made_up_for_by_the_next_digest(
        self, world: World, outbox: Outbox, user: UUID
    ) -> None:
        """However many digests came in between; and by no later one again."""
        self.settle(world, user, was_sent=False)
        deliver(world, outbox, user, VIRTUAL_NOW + DAY)
        assert outbox.titles == [["Second"], ["First"]]
        for days in (2, 3):
            world.at(-days * 24 * 60)
            assert deliver(world, outbox, user, VIRTUAL_NOW + days * DAY).status == "nothing_new"

    def test_or_by_its_own_next_try(self, world: World, outbox: Outbox, user: UUID) -> None:
        """Which a backfill may ask for."""
        self.settle(world, user, was_sent=False)
        assert deliver(world, outbox, user, VIRTUAL_NOW - DAY).status == "sent"
        assert outbox.titles == [["Second"], ["First"]]
        assert deliver(world, outbox, user, VIRTUAL_NOW + DAY).status == "nothing_new"

    def test_what_is_not_uncertain_cannot_be_settled(self, world: World, user: UUID) -> None:
        """One that was sent, and one that nobody knows."""
        for occurrence, state in ((VIRTUAL_NOW, "is sent"), (VIRTUAL_NOW + DAY, "isn't known")):
            with transaction(world.engine) as connection, pytest.raises(DigestError, match=state):
                ledger.settle(connection, user, occurrence, was_sent=False)


class TestBadRows:
    """Users as plain SQL may have written them: a clear error, nothing mailed, nothing in the ledger."""

    @pytest.mark.parametrize(
        ("column", "value", "says"),
        [
            ("timezone", "Mars/Base", "unknown"),
            ("email", "reader@example.org\nBcc: everybody@example.org", "can't be used"),
            ("email", "nobody", "is none"),
            ("name", "R\r\nBcc: x@example.org", "can't stand beside"),
            ("tenant_id", "other", "isn't of tenant"),
        ],
    )
    def test_it_fails_for_good(
        self, world: World, outbox: Outbox, column: str, value: str, says: str
    ) -> None:
        """Another try would find the same row."""
        world.add_item("First", 5)
        user = world.add_user()
        world.execute(f"UPDATE cronless_assets.digest_user SET {column} = :value", value=value)
        with pytest.raises(PermanentFailure, match=says):
            deliver(world, outbox, user)
        assert not outbox.mails
        assert not world.ledger()

    def test_a_user_who_is_gone(self, world: World, outbox: Outbox) -> None:
        """It says what to do."""
        with pytest.raises(PermanentFailure, match="remove the scheduled job"):
            deliver(world, outbox, UUID(int=7))

    def test_a_template_that_fails_leaves_nothing_behind(
        self, world: World, outbox: Outbox, tmp_path: Any
    ) -> None:
        """So that the next try is free to mail."""
        (tmp_path / "digest.txt.j2").write_text("{{ missing }}")
        world.add_item("First", 5)
        user = world.add_user()
        with pytest.raises(Exception, match="'missing' is undefined"):
            deliver(world, outbox, user, digests=replace(DIGESTS, templates=tmp_path))
        assert not world.ledger()
        assert deliver(world, outbox, user).status == "sent"


class TestZones:
    """The date in which a digest is counted is the user's own."""

    @pytest.mark.parametrize(
        ("timezone", "occurrence", "local"),
        [
            ("Pacific/Kiritimati", datetime(2026, 3, 1, 18, tzinfo=UTC), date(2026, 3, 2)),  # UTC+14, 08:00
            ("Pacific/Pago_Pago", datetime(2026, 3, 2, 10, tzinfo=UTC), date(2026, 3, 1)),  # UTC-11, 23:00
            (
                "Europe/Berlin",
                datetime(2026, 3, 28, 23, 30, tzinfo=UTC),
                date(2026, 3, 29),
            ),  # the night of the change
            ("America/New_York", datetime(2026, 11, 1, 4, 30, tzinfo=UTC), date(2026, 11, 1)),
        ],
    )
    def test_local_date(
        self, world: World, outbox: Outbox, timezone: str, occurrence: datetime, local: date
    ) -> None:
        """Ahead of UTC, behind it, and in a night that is an hour shorter or longer."""
        user = world.add_user(timezone=timezone)
        assert deliver(world, outbox, user, occurrence).local_date == local
        assert world.ledger()[0].local_date == local


class TestJobs:
    """Scheduled jobs through the engine, without Dagster."""

    @pytest.mark.parametrize("route", ["run", "queue"])
    def test_an_hour_in_the_users_zone(
        self, world: World, mail_server: MailServer, route: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Two users at 08:00 of their own zones, one of them in trouble; each gets what is theirs."""
        caplog.set_level(logging.ERROR)
        mailer = SmtpMailer(mail_server.url)
        types = JobTypes((email_digest(route, mailer=mailer, public_url="https://mail.example.org"),))
        world.add_item("First", 5)
        auckland = world.add_user(
            "a@example.org", timezone="Pacific/Auckland"
        )  # UTC+13: 08:00 is 19:00 the day before
        lima = world.add_user("l@example.org", timezone="America/Lima")  # UTC-5: 08:00 is 13:00
        broken = world.add_user("b@example.org", timezone="America/Lima")
        with transaction(world.engine) as connection:
            for user in (auckland, lima, broken):
                schedule_digest(connection, user)
        world.execute(
            "UPDATE cronless_assets.digest_user SET timezone = 'Mars/Base' WHERE id = :user", user=broken
        )
        tick_and_run(world.engine, types, now=VIRTUAL_NOW)
        assert not mail_server.postbox.mails
        _, [report] = tick_and_run(world.engine, types, now=datetime(2026, 3, 2, 13, 0, 5, tzinfo=UTC))
        assert (report.succeeded, report.failed) == (1, 1)
        assert "Mars/Base" in report.failures[0].error
        tick_and_run(world.engine, types, now=datetime(2026, 3, 2, 19, 0, 5, tzinfo=UTC))
        assert [to for _, [to], _ in mail_server.postbox.mails] == ["l@example.org", "a@example.org"]
        assert [row.local_date for row in world.ledger()] == [date(2026, 3, 2), date(2026, 3, 3)]

    def test_who_has_unsubscribed_gets_no_mail(self, world: World, outbox: Outbox) -> None:
        """A success, and nothing is written down."""
        world.add_item("First", 5)
        user = world.add_user()
        with transaction(world.engine) as connection:
            assert unsubscribe(connection, user)
        assert deliver(world, outbox, user).status == "unsubscribed"
        assert not outbox.mails
        assert not world.ledger()

    @pytest.mark.parametrize("payload", [{}, {"user": "x"}, {"user": 7}, {"user": None}])
    def test_a_payload_without_a_user(self, world: World, payload: dict[str, Any]) -> None:
        """It says what belongs there."""
        from cronless_dagster.store import jobs

        with transaction(world.engine) as connection:
            jobs.add(
                connection,
                tenant_id=TENANT,
                job_type="email_digest",
                schedule="0 13 * * *",
                payload=payload,
                next_run_at=VIRTUAL_NOW,
            )
        _, [report] = tick_and_run(world.engine, JobTypes((email_digest(),)), now=VIRTUAL_NOW)
        assert "names no user" in report.failures[0].error
