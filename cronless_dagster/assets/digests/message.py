"""From a digest to a mail, and to the bytes that a mail server is given."""

from __future__ import annotations

from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import TYPE_CHECKING
from uuid import UUID, uuid5

if TYPE_CHECKING:
    from datetime import datetime
    from email.headerregistry import Address

    from cronless_dagster.assets.digests.composing import Digest

# RFC 5322, 2.1.1: a line has at most 998 characters. Folded to 78, a long address in List-Unsubscribe would be written
# as an encoded word, and no mail reader would find it.
_WIRE = SMTP.clone(max_line_length=998)


def message_id(user_id: UUID, occurrence: datetime, domain: str) -> str:
    """Return the Message-ID of a user's digest: the same for each try of an occurrence, and for no other."""
    return f"<{uuid5(user_id, occurrence.isoformat())}@{domain}>"


def unsubscribe_url(public_url: str, user_id: UUID) -> str:
    """Return where a user ends their digests; the id is random, so it can't be guessed."""
    return f"{public_url.rstrip('/')}/unsubscribe/{user_id}"


def write_message(
    digest: Digest,
    *,
    sender: Address,
    to: Address,
    identity: str,
    unsubscribe: str,
    now: datetime,
) -> EmailMessage:
    """Return the mail of a digest, as plain text and as HTML (RFC 2046, 5.1.4).

    Args:
        digest: What it says.
        sender: Whom it comes from.
        to: The one recipient.
        identity: Its Message-ID.
        unsubscribe: A web address; https ones can be used by one click in the mail reader (RFC 8058).
        now: Its date.
    """
    message = EmailMessage(policy=SMTP)
    message["From"] = sender
    message["To"] = to
    # The standard library decodes RFC 2047's encoded words in what it is given, and a line break within one would end
    # the header: a subject, in which feeds and tenants have their say, is to hold none.
    message["Subject"] = digest.subject.replace("=?", "= ?")
    message["Date"] = format_datetime(now)
    message["Message-ID"] = identity
    # RFC 3834, 5: no auto-responder answers it.
    message["Auto-Submitted"] = "auto-generated"
    message["List-Unsubscribe"] = f"<{unsubscribe}>"
    if unsubscribe.startswith("https://"):
        # RFC 8058, 3.1: only of an https address.
        message["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    message.set_content(digest.text, cte="quoted-printable")
    message.add_alternative(digest.html, subtype="html", cte="quoted-printable")
    return message


def wire_bytes(message: EmailMessage) -> bytes:
    """Return the mail as a server is given it: ASCII, lines ended by CRLF."""
    return message.as_bytes(policy=_WIRE)
