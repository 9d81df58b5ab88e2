"""What the tests of digests share: a reader with news, a mail server of their own, mails that came in."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Session
from sqlalchemy import text

from cronless_dagster.assets.digests import users
from tests.conftest import VIRTUAL_NOW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from email.message import EmailMessage
    from pathlib import Path

    from sqlalchemy import Engine

TENANT = "acme"
PASSWORD = "open/sesame"


@dataclass
class Postbox:
    """A mail server's behaviour, and what it accepted.

    Attributes:
        mails: Accepted, as (sender, recipients, message).
        recipient: What RCPT TO is answered, where it isn't accepted.
        data: What DATA is answered, where the text isn't asked for.
        text: What the mail's text is answered, where it isn't accepted.
        hang_up: "before": the connection ends when DATA is asked for. "after": it ends with the text taken in
            and no answer given. "accepted": the same, once the mail is accepted.
        arrived: Set with each text that came in.
        go_on: Where the test gives one, the answer waits for it.
    """

    mails: list[tuple[str, list[str], EmailMessage]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    recipient: str | None = None
    data: str | None = None
    text: str | None = None
    hang_up: str | None = None
    arrived: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event | None = None
    connections: int = 0
    logins: list[bytes] = field(default_factory=list)

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Any, address: str, options: list[str]
    ) -> str:
        """Accept a recipient, or not."""
        if self.recipient is not None:
            return self.recipient
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Any) -> str:  # noqa: N802
        """Accept a mail, or not."""
        if self.text is None and self.hang_up != "after":
            self.raw.append(envelope.content)
            message = message_from_bytes(envelope.content, policy=policy.default)
            self.mails.append((envelope.mail_from, envelope.rcpt_tos, message))
        self.arrived.set()
        while self.go_on is not None and not self.go_on.is_set():
            await asyncio.sleep(0.01)
        if self.text is not None:
            return self.text
        if self.hang_up is not None:
            server.transport.abort()
        return "250 Accepted"


class _Server(SMTP):
    """Ends a connection where it is told to."""

    async def smtp_DATA(self, arg: str) -> None:  # noqa: N802
        if self.event_handler.hang_up == "before":
            self.transport.abort()
            return
        if self.event_handler.data is not None:
            await self.push(self.event_handler.data)
            return
        await super().smtp_DATA(arg)

    smtp_DATA.__smtp_syntax__ = "DATA"  # type: ignore[attr-defined]


class _Controller(Controller):
    """Takes any free port."""

    def _trigger_server(self) -> None:
        socket.create_connection(self.server.sockets[0].getsockname()).close()

    def factory(self) -> SMTP:
        self.handler.connections += 1
        return _Server(self.handler, **self.SMTP_kwargs)


@dataclass
class MailServer:
    """A running mail server: its postbox and its address."""

    postbox: Postbox
    controller: Controller

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.controller.server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """Its address, spoken to without TLS."""
        return f"smtp://127.0.0.1:{self.port}?tls=no&timeout=10"


@pytest.fixture
def serve_mail() -> Iterator[Callable[..., MailServer]]:
    """Start mail servers on loopback ports, as aiosmtpd's options say."""
    running: list[Controller] = []

    def start(**options: Any) -> MailServer:
        postbox = Postbox()
        controller = _Controller(postbox, hostname="127.0.0.1", port=0, **options)
        controller.start()
        postbox.connections = 0
        running.append(controller)
        return MailServer(postbox, controller)

    yield start
    for controller in running:
        controller.stop()


@pytest.fixture
def mail_server(serve_mail: Callable[..., MailServer]) -> MailServer:
    """A mail server that accepts everything, without TLS."""
    return serve_mail()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for `localhost` that signs itself, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    directory = tmp_path_factory.mktemp("tls")
    (directory / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (directory / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    return directory / "cert.pem", directory / "key.pem"


@pytest.fixture
def server_context(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    """What a mail server speaks TLS with."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


def authenticate(server: SMTP, session: Session, envelope: Any, mechanism: str, login: Any) -> AuthResult:
    """Let in whoever knows the password."""
    server.event_handler.logins.append(login.login)
    return AuthResult(success=login.password == PASSWORD.encode(), handled=False)


class World:
    """A database with an account, and users who follow it; times are given in minutes before now."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.now = engine, VIRTUAL_NOW
        self.account = self.add_account("Northwind")

    def add_account(self, name: str, tenant: str = TENANT) -> UUID:
        """Add an account with a source."""
        with self.engine.begin() as connection:
            account = connection.scalar(
                text(
                    "INSERT INTO cronless_assets.account (tenant_id, name) VALUES (:tenant, :name) RETURNING id"
                ),
                {"tenant": tenant, "name": name},
            )
            connection.execute(
                text(
                    "INSERT INTO cronless_assets.source (account_id, kind, location)"
                    " VALUES (:account, 'feed', 'https://example.org/feed')"
                ),
                {"account": account},
            )
        assert isinstance(account, UUID)
        return account

    def add_item(self, title: str, minutes_ago: float, *, account: UUID | None = None, **values: Any) -> int:
        """Add an item that was first seen so long ago."""
        row = {
            "account": account or self.account,
            "title": title,
            "seen": self.now - timedelta(minutes=minutes_ago),
            "url": "https://example.org/a",
            "summary": "",
            "published": None,
            **values,
        }
        with self.engine.begin() as connection:
            found = connection.scalar(
                text(
                    "INSERT INTO cronless_assets.item (account_id, source_id, key, content_hash, title, url, summary,"
                    " published_at, fetched_from, first_seen_at)"
                    " SELECT :account, id, gen_random_uuid()::text, '', :title, :url, :summary, :published,"
                    " 'https://example.org/feed', :seen FROM cronless_assets.source WHERE account_id = :account"
                    " RETURNING id"
                ),
                row,
            )
        assert isinstance(found, int)
        return found

    def add_user(self, email: str = "reader@example.org", *, since_days: float = 30, **values: Any) -> UUID:
        """Add a user who has followed the account for so long."""
        with self.engine.begin() as connection:
            user = users.add_user(connection, **{"tenant_id": TENANT, "email": email, **values})
            users.follow(connection, user, self.account)
            connection.execute(
                text("UPDATE cronless_assets.follow SET since = :since WHERE user_id = :user"),
                {"since": self.now - timedelta(days=since_days), "user": user},
            )
        return user

    def execute(self, sql: str, **values: Any) -> None:
        """Write by plain SQL, as somebody's own code may."""
        with self.engine.begin() as connection:
            connection.execute(text(sql), values)

    def ledger(self) -> list[Any]:
        """Return the deliveries by occurrence and user."""
        with self.engine.connect() as connection:
            rows = connection.execute(
                text("SELECT * FROM cronless_assets.digest_delivery ORDER BY occurrence, user_id")
            )
            return list(rows)

    def at(self, minutes_ago: float) -> None:
        """Set the clock so long before the test's noon."""
        self.now = VIRTUAL_NOW - timedelta(minutes=minutes_ago)
        self.execute("UPDATE cronless.clock SET virtual_now = :now", now=self.now)


@pytest.fixture
def world(virtual_assets_engine: Engine) -> World:
    """A database whose clock stands still at noon."""
    return World(virtual_assets_engine)
