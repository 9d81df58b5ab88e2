"""How Dagster runs hand digests over: a mail server, or a Maildir."""

# No `from __future__ import annotations`: Dagster reads the annotations of fields as classes.

import os
from email.message import EmailMessage

import dagster as dg
from pydantic import Field, PrivateAttr

from cronless_dagster.assets.digests.maildir import MaildirMailer
from cronless_dagster.assets.digests.mailers import make_mailer
from cronless_dagster.assets.digests.smtp import SmtpMailer
from cronless_dagster.settings import Settings


class MailerResource(dg.ConfigurableResource):  # type: ignore[type-arg]  # has no inner resource of its own
    """A `Mailer` whose connections last as long as the run."""

    url: str = Field(
        default="",
        description=(
            "The mail server, such as smtp://user:password@host:587 (STARTTLS) or smtps://user:password@host:465."
            " Empty: CRONLESS_SMTP_URL, or the file named by CRONLESS_SMTP_URL_FILE. Dagster's UI shows what is written"
            " here, so give an EnvVar rather than a text with a password in it."
        ),
    )
    sender_address: str = Field(
        default="",
        description="Whom digests come from, as News <news@example.org>. Empty: CRONLESS_MAIL_FROM.",
    )
    maildir: str = Field(
        default="",
        description=(
            "Write mails into this Maildir in place of a mail server. Empty, with no mail server named either:"
            " maildir in CRONLESS_HOME."
        ),
    )
    _mailer: SmtpMailer | MaildirMailer | None = PrivateAttr(default=None)

    def mailer(self) -> SmtpMailer | MaildirMailer:
        """Return the mailer, made at its first use.

        Raises:
            SettingsError: A setting can't be used.
            MailerError, AddressError: The mail server's address or the sender can't be used.
        """
        if self._mailer is None:
            settings = Settings.from_env(os.environ)
            url = self.url or ("" if self.maildir else settings.smtp_url or "")
            sender = self.sender_address or settings.mail_from
            self._mailer = make_mailer(url, sender, self.maildir or str(settings.home / "maildir"))
        return self._mailer

    @property
    def sender(self) -> str:
        """Whom mails come from."""
        return self.mailer().sender

    def send(self, message: EmailMessage, *, to: str, sender: str) -> None:
        """Hand one mail over. Raises as `Mailer.send` says."""
        self.mailer().send(message, to=to, sender=sender)

    def close(self) -> None:
        """Let go of connections."""
        if self._mailer is not None:
            self._mailer.close()

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002 - Dagster's signature
        """Read the settings before the run holds a claim, so that a bad one uses up nobody's tries."""
        self.mailer()

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002 - Dagster's signature
        """Let go of connections at the run's end."""
        self.close()
