"""Mails as files: for a laptop, for tests, and for whoever delivers them by other means."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING

from cronless_dagster.assets.digests.addresses import sender_address
from cronless_dagster.assets.digests.errors import NotSent
from cronless_dagster.assets.digests.message import wire_bytes

if TYPE_CHECKING:
    from email.message import EmailMessage


class MaildirMailer:
    """Writes mails into `new/` of a Maildir. A file is named by its Message-ID, so the same mail twice is one file.

    The form is that of https://cr.yp.to/proto/maildir.html; any mail reader that knows Maildirs shows it.
    """

    def __init__(self, path: str | Path, *, sender: str = "digests@localhost") -> None:
        """Name the directory; the first mail makes it.

        Raises:
            AddressError: The sender can't be used.
        """
        sender_address(sender)
        self.path, self.sender = Path(path), sender

    def send(self, message: EmailMessage, *, to: str, sender: str) -> None:  # noqa: ARG002 - a file has no envelope
        """Write the mail.

        Raises:
            NotSent: The file can't be written.
        """
        name = f"{sha256(str(message['Message-ID']).encode()).hexdigest()[:32]}.cronless"
        unfinished = self.path / "tmp" / f"{name}.{os.getpid()}.{get_ident()}"
        try:
            for directory in ("tmp", "new", "cur"):
                (self.path / directory).mkdir(parents=True, exist_ok=True)
            with unfinished.open("wb") as file:
                # Files in a Maildir end their lines as the system does.
                file.write(wire_bytes(message).replace(b"\r\n", b"\n"))
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self.path / "new" / name)
        except OSError as error:
            raise NotSent(
                f"the mail can't be written into {str(self.path)!r} ({error.strerror or error}): make room there, or"
                " correct its permissions",
                temporary=True,
            ) from error

    def close(self) -> None:
        """Do nothing: no file is kept open."""
