"""One user's digest for one occurrence: the ledger first, then the mail, then the ledger again."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID, uuid4

from cronless_dagster.assets.digests import ledger
from cronless_dagster.assets.digests.addresses import address, sender_address
from cronless_dagster.assets.digests.composing import MAX_SHOWN, Digest, compose
from cronless_dagster.assets.digests.errors import DigestError, MaybeSent, NotSent, Refused, Uncertain
from cronless_dagster.assets.digests.mailers import mailer_from_settings
from cronless_dagster.assets.digests.message import message_id, unsubscribe_url, write_message
from cronless_dagster.assets.digests.news import count_by_account, load_items
from cronless_dagster.assets.digests.users import find_user
from cronless_dagster.engine.errors import PermanentFailure
from cronless_dagster.scheduling.errors import TimezoneError
from cronless_dagster.scheduling.zones import zone
from cronless_dagster.settings import Settings
from cronless_dagster.store.database import patiently, transaction

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date, datetime
    from email.headerregistry import Address
    from email.message import EmailMessage
    from pathlib import Path

    from sqlalchemy import Connection, Engine

    from cronless_dagster.assets.digests.mailers import Mailer
    from cronless_dagster.assets.digests.users import DigestUser
    from cronless_dagster.engine.handlers import HandlerContext
    from cronless_dagster.store.rows import ClaimedJob

# So long the ledger waits for a database that is away: a mail that was accepted must not stay uncertain for that.
PATIENCE_SECONDS = 60.0
MAILER_KEY = "mailer"
MAX_ERROR = 500


@dataclass(frozen=True, slots=True)
class Delivered:
    """How an occurrence ended that is no failure. `local_date` is its date in the user's zone."""

    status: Literal["sent", "nothing_new", "unsubscribed", "already"]
    local_date: date


@dataclass(frozen=True, slots=True)
class _Mail:
    """A mail whose `sending` is committed."""

    message: EmailMessage
    to: str
    sender: str
    local_date: date


@dataclass(frozen=True, kw_only=True)
class Digests:
    """The handler of digests and its knobs.

    Attributes:
        mailer: Who hands mails over; None: the resource `mailer` in a Dagster run, and otherwise as the settings say,
            CRONLESS_SMTP_URL or a Maildir in CRONLESS_HOME.
        public_url: Where mail readers reach `cronless callbacks`; None: CRONLESS_PUBLIC_URL.
        max_shown: The most items of one digest; the others are counted.
        overlap: How much later than an item's `first_seen_at` its refresh may have committed.
        templates: A directory whose `digest.html.j2` and `digest.txt.j2` are used in place of ours.
    """

    mailer: Mailer | None = None
    public_url: str | None = None
    max_shown: int = MAX_SHOWN
    overlap: timedelta = field(default=timedelta(minutes=10))
    templates: Path | None = None

    def handle(self, job: ClaimedJob, context: HandlerContext) -> None:
        """Send the digest of the user that the job's payload names."""
        self.deliver_job(job, context)

    def deliver_job(self, job: ClaimedJob, context: HandlerContext) -> Delivered:
        """Send the digest of a scheduled job.

        Raises:
            Uncertain: It may have been mailed by an earlier try.
            Refused: The mail server refused it for good.
            NotSent: The mail server refused it for now.
            PermanentFailure: User, zone or address can't be used.
        """
        return self.deliver(
            context.engine,
            self.mailer_in(context.dagster),
            tenant_id=job.tenant_id,
            user_id=_user_of(job),
            occurrence=job.scheduled_for,
            # A new one for each try, behind what people look for.
            execution=f"{context.run_id or job.claim_id}/{uuid4().hex[:12]}",
        )

    def mailer_in(self, dagster: Any) -> Mailer:
        """Return who hands mails over in a Dagster run, or outside of one where it is None."""
        if self.mailer is not None:
            return self.mailer
        if dagster is not None:
            found: Mailer = getattr(dagster.resources, MAILER_KEY)
            return found
        return mailer_from_settings(_settings())

    def deliver(
        self,
        engine: Engine,
        mailer: Mailer,
        *,
        tenant_id: str,
        user_id: UUID,
        occurrence: datetime,
        execution: str,
    ) -> Delivered:
        """Send a user's digest for an occurrence, unless that is done, or may have been. Raises as `deliver_job`."""
        begin = partial(self._begin, engine, mailer.sender, tenant_id, user_id, occurrence, execution)
        begun = patiently(begin, PATIENCE_SECONDS)
        if isinstance(begun, Delivered):
            return begun
        finish = partial(self._finish, engine, user_id, occurrence, execution)
        try:
            mailer.send(begun.message, to=begun.to, sender=begun.sender)
        except NotSent as error:
            finish("refused", str(error))
            if error.temporary:
                raise
            raise Refused(str(error)) from error
        except Exception as error:
            reason = str(error) if isinstance(error, MaybeSent) else f"{type(error).__name__}: {error}"
            self._note(engine, user_id, occurrence, execution, reason)
            raise Uncertain(
                f"the digest may have been mailed ({reason}): see `cronless digests uncertain`"
            ) from error
        finish("sent", None)
        return Delivered("sent", begun.local_date)

    def compose_for(
        self, connection: Connection, user: DigestUser, ids: Sequence[int], occurrence: datetime
    ) -> Digest:
        """Return the digest of these items, the newest first."""
        shown = load_items(connection, ids[: self.max_shown])
        return compose(
            user,
            shown,
            occurrence,
            counts=count_by_account(connection, ids),
            unsubscribe_url=self._unsubscribe_url(user.id),
            templates=self.templates,
        )

    def _begin(
        self,
        engine: Engine,
        sent_by: str,
        tenant_id: str,
        user_id: UUID,
        occurrence: datetime,
        execution: str,
    ) -> Delivered | _Mail:
        """Commit `sending` and return what to mail. All that can fail before the mail server does so in here."""
        sender = sender_address(sent_by)
        with transaction(engine) as connection:
            user, to, local_date = _mailable(connection, tenant_id, user_id, occurrence)
            if user.unsubscribed_at is not None:
                return Delivered("unsubscribed", local_date)
            identity = message_id(user_id, occurrence, sender.domain)
            entry = ledger.begin(
                connection,
                user,
                occurrence,
                local_date=local_date,
                message_id=identity,
                execution=execution,
                overlap=self.overlap,
            )
            if entry.status != "sending":
                return Delivered("already" if entry.already else "nothing_new", local_date)
            message = write_message(
                self.compose_for(connection, user, entry.items, occurrence),
                sender=sender,
                to=to,
                identity=identity,
                unsubscribe=self._unsubscribe_url(user_id),
                now=entry.at,
            )
        return _Mail(message, to.addr_spec, sender.addr_spec, local_date)

    def _finish(
        self,
        engine: Engine,
        user_id: UUID,
        occurrence: datetime,
        execution: str,
        status: Literal["sent", "refused"],
        error: str | None,
    ) -> None:
        def write() -> None:
            with transaction(engine) as connection:
                ledger.end(
                    connection,
                    user_id,
                    occurrence,
                    execution=execution,
                    status=status,
                    error=error and _storable(error),
                )

        patiently(write, PATIENCE_SECONDS)

    def _note(self, engine: Engine, user_id: UUID, occurrence: datetime, execution: str, reason: str) -> None:
        def write() -> None:
            with transaction(engine) as connection:
                ledger.note(connection, user_id, occurrence, execution=execution, error=_storable(reason))

        patiently(write, PATIENCE_SECONDS)

    def _unsubscribe_url(self, user_id: UUID) -> str:
        return unsubscribe_url(self.public_url or _settings().public_url, user_id)


def _mailable(
    connection: Connection, tenant_id: str, user_id: UUID, occurrence: datetime
) -> tuple[DigestUser, Address, date]:
    """Return a user, locked, with their address and the occurrence's date in their zone.

    Raises:
        PermanentFailure: Another try would find the same row.
    """
    try:
        user = find_user(connection, user_id, lock=True)
        to = address(user.email, user.name)
        local_date = occurrence.astimezone(zone(user.timezone)).date()
    except (DigestError, TimezoneError) as error:
        raise PermanentFailure(str(error)) from error
    if user.tenant_id != tenant_id:
        raise PermanentFailure(f"user {user_id} isn't of tenant {tenant_id!r}: correct the job's payload")
    return user, to, local_date


def _storable(reason: str) -> str:
    # A mailer of somebody's own may quote anything, and PostgreSQL stores no NUL and no half of a character.
    return reason.encode("utf-8", "replace").decode().replace("\0", " ")[:MAX_ERROR]


def _settings() -> Settings:
    return Settings.from_env(os.environ)


def _user_of(job: ClaimedJob) -> UUID:
    try:
        return UUID(job.payload["user"])
    except (KeyError, ValueError, TypeError, AttributeError):
        raise PermanentFailure(
            f'the payload names no user ({str(job.payload)[:80]}): write {{"user": "<the user\'s id>"}}'
        ) from None
