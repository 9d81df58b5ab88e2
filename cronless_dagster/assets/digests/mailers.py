"""How a digest leaves: by SMTP, into a Maildir, or by whatever has the same two members."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from cronless_dagster.assets.digests.maildir import MaildirMailer
from cronless_dagster.assets.digests.smtp import SmtpMailer

if TYPE_CHECKING:
    from email.message import EmailMessage

    from cronless_dagster.settings import Settings


class Mailer(Protocol):
    """Hands one mail over. It may be called by several threads at once."""

    @property
    def sender(self) -> str:
        """Whom mails come from, such as `News <news@example.org>`."""
        ...

    def send(self, message: EmailMessage, *, to: str, sender: str) -> None:
        """Hand a mail over; returning says that it was accepted.

        Args:
            message: With all its headers.
            to: The recipient's address, without a name.
            sender: Where reports of a failed delivery go.

        Raises:
            NotSent: It is known that the mail was not accepted.
            MaybeSent: It is not known. Any other exception is taken for this one.
        """
        ...

    def close(self) -> None:
        """Let go of connections; another `send` makes new ones."""
        ...


def make_mailer(url: str, sender: str, maildir: str) -> SmtpMailer | MaildirMailer:
    """Return the mailer of a mail server's address or, where there is none, of a Maildir.

    Raises:
        MailerError: The address can't be used.
        AddressError: The sender can't be used.
    """
    return SmtpMailer(url, sender=sender) if url else MaildirMailer(maildir, sender=sender)


def mailer_from_settings(settings: Settings) -> SmtpMailer | MaildirMailer:
    """Return this process's mailer for these settings, which keeps its connections between digests."""
    return _shared(settings.smtp_url or "", settings.mail_from, str(settings.home / "maildir"))


@lru_cache(maxsize=8)
def _shared(url: str, sender: str, maildir: str) -> SmtpMailer | MaildirMailer:
    return make_mailer(url, sender, maildir)
