"""Mails as files."""

from __future__ import annotations

from email import policy
from email.message import EmailMessage
from mailbox import Maildir
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.assets.digests.errors import MailerError, NotSent
from cronless_dagster.assets.digests.maildir import MaildirMailer
from cronless_dagster.assets.digests.mailers import mailer_from_settings, make_mailer
from cronless_dagster.assets.digests.smtp import SmtpMailer
from cronless_dagster.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path


def mail(identity: str = "<1@example.org>") -> EmailMessage:
    """Return a small mail."""
    made = EmailMessage(policy=policy.SMTP)
    made["Message-ID"], made["Subject"] = identity, "News"
    made.set_content("Grüße\n")
    return made


def send(mailer: MaildirMailer, message: EmailMessage) -> None:
    """Hand a mail over."""
    mailer.send(message, to="reader@example.org", sender="news@example.org")


def test_a_mail_reader_finds_it(tmp_path: Path) -> None:
    """In a directory that wasn't there before."""
    send(MaildirMailer(tmp_path / "a" / "mails"), mail())
    [found] = Maildir(tmp_path / "a" / "mails", create=False)
    assert found["Subject"] == "News"
    assert found.get_payload(decode=True) == "Grüße\n".encode()
    assert not list((tmp_path / "a" / "mails" / "tmp").iterdir())


def test_the_same_mail_twice_is_one_file(tmp_path: Path) -> None:
    """A file is named by its Message-ID."""
    mailer = MaildirMailer(tmp_path / "mails")
    for identity in ("<1@example.org>", "<1@example.org>", "<../../2@example.org>"):
        send(mailer, mail(identity))
    assert len(Maildir(tmp_path / "mails")) == 2


def test_a_directory_that_cannot_be_written_is_temporary(tmp_path: Path) -> None:
    """Nothing was mailed, and somebody makes room."""
    (tmp_path / "mails").write_text("a file")
    with pytest.raises(NotSent, match="can't be written") as caught:
        send(MaildirMailer(tmp_path / "mails"), mail())
    assert caught.value.temporary


def test_the_settings_choose(tmp_path: Path) -> None:
    """A mail server where one is named, else a Maildir in our home; the same mailer each time."""
    kept = mailer_from_settings(Settings(home=tmp_path))
    assert isinstance(kept, MaildirMailer)
    assert kept.path == tmp_path / "maildir"
    smtp = Settings(smtp_url="smtp://mail.example.org", mail_from="News <news@example.org>")
    assert isinstance(mailer_from_settings(smtp), SmtpMailer)
    assert mailer_from_settings(smtp) is mailer_from_settings(smtp)
    assert mailer_from_settings(smtp).sender == "News <news@example.org>"


def test_a_sender_that_is_none_is_refused_at_once() -> None:
    """Not with the first mail."""
    for url in ("", "smtp://mail.example.org"):
        with pytest.raises((MailerError, Exception), match="address"):
            make_mailer(url, "nobody", "mails")
