"""The mail of a digest, down to its bytes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from cronless_dagster.assets.digests.addresses import address, sender_address
from cronless_dagster.assets.digests.composing import Digest
from cronless_dagster.assets.digests.message import message_id, unsubscribe_url, wire_bytes, write_message

if TYPE_CHECKING:
    from email.message import EmailMessage

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
USER = UUID(int=1)
LONG = "https://a-host-with-quite-a-long-name.mail.example.org/some/path"


def written(public_url: str = LONG, subject: str = "News from Zoë ✓", body: str = "Grüße\n") -> EmailMessage:
    """Return a mail, sent and read again."""
    message = write_message(
        Digest(subject, f"<p>{body}</p>", body),
        sender=sender_address("Zoë's News <news@example.org>"),
        to=address("reader@bücher.example", "Zoë, the Reader"),
        identity=message_id(USER, NOON, "example.org"),
        unsubscribe=unsubscribe_url(public_url, USER),
        now=NOON,
    )
    data = wire_bytes(message)
    assert data.isascii()
    assert max(map(len, data.split(b"\r\n"))) <= 998
    read = message_from_bytes(data, policy=policy.default)
    assert not read.defects
    return read


def test_headers() -> None:
    """What readers, servers and auto-responders look for."""
    mail = written()
    assert mail["Subject"] == "News from Zoë ✓"
    assert mail["From"].addresses[0].display_name == "Zoë's News"
    assert (mail["To"].addresses[0].addr_spec, mail["To"].addresses[0].display_name) == (
        "reader@xn--bcher-kva.example",
        "Zoë, the Reader",
    )
    assert mail["Date"].datetime == NOON
    assert mail["Auto-Submitted"] == "auto-generated"
    assert "Precedence" not in mail


@pytest.mark.parametrize(
    "name", ["=?utf-8?q?x=0D=0ABcc:_x@example.com?=", "=?utf-8?b?eA0KDQo8Yj4=?=", "==?utf-8?q?=0D=0AX:_y?="]
)
def test_what_an_account_is_called_adds_no_header(name: str) -> None:
    """An encoded word would be decoded on the way, its line breaks too."""
    mail = written(subject=f"1 new item from {name}")
    assert mail.keys() == written().keys()
    assert mail["Subject"] == f"1 new item from {name.replace('=?', '= ?')}"


def test_one_click_unsubscribing() -> None:
    """The address stays whole however long it is, since a folded one is found by no mail reader."""
    mail = written()
    assert mail["List-Unsubscribe"] == f"<{LONG}/unsubscribe/{USER}>"
    assert mail["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"


def test_one_click_is_only_for_https() -> None:
    """As its RFC says; the link itself is there all the same."""
    mail = written("http://127.0.0.1:8089/")
    assert mail["List-Unsubscribe"] == f"<http://127.0.0.1:8089/unsubscribe/{USER}>"
    assert "List-Unsubscribe-Post" not in mail


def test_both_forms_with_the_better_one_last() -> None:
    """Mail readers show the last one that they can."""
    mail = written(body="Grüße ✓\n" + "x" * 2_000 + "\n")
    assert [part.get_content_type() for part in mail.iter_parts()] == ["text/plain", "text/html"]
    plain = mail.get_body(("plain",))
    assert plain is not None
    assert plain.get_content().replace("\r\n", "\n").startswith("Grüße ✓\nxxx")


def test_the_message_id_is_stable_and_ones_own() -> None:
    """By user and occurrence, whatever zone the instant is written in."""
    one = message_id(USER, NOON, "example.org")
    assert one == message_id(USER, NOON.astimezone(), "example.org")
    others = {
        message_id(UUID(int=2), NOON, "example.org"),
        message_id(USER, NOON + timedelta(days=1), "example.org"),
    }
    assert len(others | {one}) == 3
