"""A process that sends one digest and stops for ever at a named point, to be killed there.

Run as `python -m tests.assets.digests.dying DATABASE_URL MAIL_URL USER OCCURRENCE POINT FILE`; FILE appears once the
point is reached.
"""

from __future__ import annotations

import sys
import threading
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from cronless_dagster.assets.digests.sending import Digests
from cronless_dagster.assets.digests.smtp import SmtpMailer
from cronless_dagster.store.database import create_store_engine

if TYPE_CHECKING:
    from email.message import EmailMessage


class DyingMailer(SmtpMailer):
    """Stops before the mail server is spoken to, or after it has accepted."""

    point = ""
    file = Path()

    def send(self, message: EmailMessage, *, to: str, sender: str) -> None:
        """Send, and stop."""
        if self.point == "begun":
            self.reached()
        super().send(message, to=to, sender=sender)
        if self.point == "accepted":
            self.reached()

    def reached(self) -> None:
        """Say so, and wait for the end."""
        self.file.touch()
        threading.Event().wait()


def main(url: str, mail_url: str, user: str, occurrence: str, point: str, file: str) -> None:
    """Send the digest; it never ends."""
    mailer = DyingMailer(mail_url)
    mailer.point, mailer.file = point, Path(file)
    Digests(public_url="https://mail.example.org").deliver(
        create_store_engine(url),
        mailer,
        tenant_id="acme",
        user_id=UUID(user),
        occurrence=datetime.fromisoformat(occurrence),
        execution="dying/1",
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
