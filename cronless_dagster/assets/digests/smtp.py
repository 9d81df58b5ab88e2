"""Mails by SMTP, with one question kept apart: was the mail accepted, refused, or is that unknown?

A reply of the server settles it (RFC 5321, 4.2.1: 2yz accepted, 4yz and 5yz not). A connection that ends before the
server has asked for the mail's text settles it too, since nothing was handed over. One that ends between the text and
its reply leaves it open (RFC 5321, 6.1), and then nothing here tries again.
"""

from __future__ import annotations

import smtplib
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

from cronless_dagster.assets.digests.addresses import sender_address
from cronless_dagster.assets.digests.errors import MailerError, MaybeSent, NotSent
from cronless_dagster.assets.digests.message import wire_bytes

if TYPE_CHECKING:
    from email.message import EmailMessage

SUBMISSION_PORT = 587
"""RFC 6409, 3.1."""
TLS_PORT = 465
"""RFC 8314, 7.3."""
TIMEOUT_SECONDS = 60.0
# Servers hang up on the idle after some minutes; a connection of a batch before isn't worth the try.
_IDLE_SECONDS = 30.0
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_ASKS_FOR_TEXT = 354


@dataclass(frozen=True, slots=True, repr=False)
class SmtpServer:
    """A mail server and how to speak to it."""

    host: str
    port: int
    tls: str
    user: str | None
    password: str | None
    timeout: float
    ca_file: str | None

    @classmethod
    def of(cls, url: str) -> SmtpServer:
        """Read `smtp://user:password@host:587` (STARTTLS) or `smtps://user:password@host:465` (TLS at once).

        In the query: `tls=no` speaks without TLS, `ca_file=/path` names certificates to trust in place of the
        system's, `timeout=60` gives the seconds of each step.

        Raises:
            MailerError: It can't be read; the address isn't repeated, since it may hold a password.
        """
        try:
            parts = urlsplit(url)
            port, query = parts.port, parse_qs(parts.query, strict_parsing=bool(parts.query))
            timeout = float(query.get("timeout", [str(TIMEOUT_SECONDS)])[-1])
        except ValueError:
            raise MailerError(
                "the mail server's address can't be read: give one such as smtp://user:password@host:587, with / ? #"
                " @ : in a password written as %2F %3F %23 %40 %3A"
            ) from None
        unknown = sorted(query.keys() - {"tls", "ca_file", "timeout"})
        if parts.scheme not in ("smtp", "smtps") or not parts.hostname or unknown:
            raise MailerError(
                "the mail server's address begins with neither smtp:// nor smtps://, names no host, or asks for"
                f" {', '.join(unknown) or 'nothing'}: give one such as smtp://user:password@host:587?timeout=60"
            )
        plain = query.get("tls", ["yes"])[-1]
        if (
            plain not in ("yes", "no")
            or (plain == "no" and parts.scheme == "smtps")
            or not 1 <= timeout <= 600
        ):
            raise MailerError(
                "the mail server's address asks for another tls than yes or no, for smtps without TLS, or for a timeout"
                " that isn't 1 to 600 seconds: correct it"
            )
        server = cls(
            host=parts.hostname,
            port=port or (TLS_PORT if parts.scheme == "smtps" else SUBMISSION_PORT),
            tls="at once" if parts.scheme == "smtps" else "none" if plain == "no" else "starttls",
            user=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password or ""),
            timeout=timeout,
            ca_file=query.get("ca_file", [None])[-1],
        )
        if server.user and server.tls == "none" and server.host not in _LOOPBACK:
            raise MailerError(
                "the mail server's address has a login and tls=no, which would show the password to the network: leave"
                " one of them out"
            )
        return server

    def context(self) -> ssl.SSLContext:
        """Return what checks the server's certificate and its name."""
        return ssl.create_default_context(cafile=self.ca_file)

    def __repr__(self) -> str:
        return f"SmtpServer({self.host}:{self.port})"


class SmtpMailer:
    """Sends by one mail server. Connections are kept for the next mail; it may be used by several threads."""

    def __init__(self, url: str, *, sender: str = "digests@localhost") -> None:
        """Read the address; the first mail connects.

        Raises:
            MailerError: The address can't be used.
            AddressError: The sender can't be used.
        """
        sender_address(sender)
        self.server, self.sender = SmtpServer.of(url), sender
        self._idle: list[tuple[float, _Session]] = []
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"SmtpMailer({self.server!r})"

    def send(self, message: EmailMessage, *, to: str, sender: str) -> None:
        """Hand one mail to the server. Raises as `Mailer.send` says."""
        data = wire_bytes(message)
        session = self._take()
        if session is not None:
            try:
                self._transmit(session, data, to, sender)
            except _Stale:
                # The server hung up in between. It had not asked for this mail, so nothing is sent twice.
                session.quietly_close()
            else:
                return
        session = self._connect()
        try:
            self._transmit(session, data, to, sender)
        except _Stale as stale:
            session.quietly_close()
            raise NotSent(
                f"{self._at} hung up before the mail was handed over ({stale})", temporary=True
            ) from stale

    def close(self) -> None:
        """Say goodbye on the connections that wait."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, session in idle:
            with suppress(smtplib.SMTPException, OSError):
                session.quit()
            session.quietly_close()

    def _take(self) -> _Session | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                since, session = self._idle.pop()
            if time.monotonic() - since < _IDLE_SECONDS:
                return session
            session.quietly_close()

    def _keep(self, session: _Session) -> None:
        with self._lock:
            self._idle.append((time.monotonic(), session))

    @property
    def _at(self) -> str:
        return f"the mail server {self.server.host}:{self.server.port}"

    def _transmit(self, session: _Session, data: bytes, to: str, sender: str) -> None:
        session.asked_for_text = False
        try:
            self._require(session, session.mail(sender), "the sender")
            self._require(session, session.rcpt(to), "the recipient")
            # smtplib doubles the dots at the start of lines.
            code, words = session.data(data)
        except smtplib.SMTPDataError as error:
            if 200 <= error.smtp_code < 300:
                # A positive reply to a text that wasn't asked for is one out of turn: nothing was handed over.
                raise _Stale(f"it answered DATA by {error.smtp_code}") from error
            self._require(session, (error.smtp_code, error.smtp_error), "the mail")
        except (smtplib.SMTPException, OSError) as error:
            if not session.asked_for_text:
                raise _Stale(_words(error)) from error
            session.quietly_close()
            raise MaybeSent(
                f"{self._at} took the mail's text and the connection ended before its answer ({_words(error)})"
            ) from error
        else:
            self._require(session, (code, words), "the mail")
            self._keep(session)

    def _require(self, session: _Session, reply: tuple[int, bytes | str], what: str) -> None:
        """Go on where a reply is positive.

        Raises:
            NotSent: The server refused.
            MaybeSent: The mail's text was handed over, and what came back is no reply.
        """
        code, words = reply
        if 200 <= code < 300:
            return
        said = f"{code} {_words(words)}"
        if session.asked_for_text and not 400 <= code < 600:
            session.quietly_close()
            raise MaybeSent(f"{self._at} took the mail's text and gave an answer that is none ({said})")
        if code == 421 and not session.asked_for_text and what == "the sender":
            raise _Stale(said)
        self._reset(session)
        # What isn't known to be for good may pass.
        raise NotSent(f"{self._at} refused {what} ({said})", temporary=not 500 <= code < 600)

    def _reset(self, session: _Session) -> None:
        try:
            session.rset()
        except (smtplib.SMTPException, OSError):
            session.quietly_close()
        else:
            self._keep(session)

    def _connect(self) -> _Session:
        """Return a connection that is ready for a mail.

        Raises:
            NotSent: None could be made. That says nothing of this mail, so it is temporary.
        """
        server = self.server
        session: _Session | None = None
        try:
            if server.tls == "at once":
                session = _TlsSession(
                    server.host, server.port, timeout=server.timeout, context=server.context()
                )
            else:
                session = _Session(server.host, server.port, timeout=server.timeout)
            session.ehlo_or_helo_if_needed()
            if server.tls == "starttls":
                self._start_tls(session)
            if server.user:
                session.login(server.user, server.password or "")
        # A ValueError is smtplib's word for a host or a login that it can't encode.
        except (smtplib.SMTPException, OSError, ValueError) as error:
            if session is not None:
                session.quietly_close()
            raise NotSent(
                f"{self._at} can't be used ({_words(error)}): check its address, login and certificate",
                temporary=True,
            ) from error
        return session

    def _start_tls(self, session: _Session) -> None:
        if not session.has_extn("starttls"):
            raise smtplib.SMTPNotSupportedError(
                "it offers no STARTTLS; use smtps://, or write ?tls=no where the way to it is safe"
            )
        session.starttls(context=self.server.context())
        session.ehlo_or_helo_if_needed()


class _Stale(Exception):
    """The connection ended before this mail was handed over."""


class _Session(smtplib.SMTP):
    """A connection that knows whether the server has asked for a mail's text."""

    asked_for_text = False

    def getreply(self) -> tuple[int, bytes]:
        """Read a reply and remember whether it asks for the text."""
        code, words = super().getreply()
        if code == _ASKS_FOR_TEXT:
            self.asked_for_text = True
        return code, words

    def quietly_close(self) -> None:
        """End the connection, whatever state it is in."""
        with suppress(OSError):
            self.close()


class _TlsSession(_Session, smtplib.SMTP_SSL):
    """The same, in TLS from the start."""


def _words(said: object) -> str:
    """Return what a server or an exception said, on one line and without a login's words."""
    if isinstance(said, smtplib.SMTPAuthenticationError):
        return f"it refused the login with {said.smtp_code}"
    if isinstance(said, UnicodeError):
        return "its name can't be looked up, or the login has characters beyond ASCII"
    if isinstance(said, smtplib.SMTPResponseException):
        said = said.smtp_error
    words = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in words).split())
    return line[:300] or type(said).__name__
