"""Which broker, how to reach it, and how long to wait for it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self
from urllib.parse import quote, unquote, urlsplit

import pika

from cronless_dagster.rabbitmq.errors import BrokerError
from cronless_dagster.settings import (
    BROKER_CONNECT_SECONDS,
    BROKER_PREFIX,
    BROKER_PREFIX_LENGTH,
    BROKER_PUBLISH_SECONDS,
    SettingsError,
)

if TYPE_CHECKING:
    from pathlib import Path

    from cronless_dagster.settings import Settings

_EXAMPLE = "amqps://user:password@host:5671/virtual-host"
_LONGEST = 3_600


@dataclass(frozen=True, repr=False)
class Broker:
    """A RabbitMQ and everything needed to connect to it; it holds no connection.

    Attributes:
        url: ``amqp://`` or ``amqps://``, with user and password; ``/`` in a virtual host is written ``%2F``. No
            port: 5672, or 5671 with TLS. No login: guest, guest. No virtual host: ``/``.
        ca_file: Certificates (PEM) that may sign the broker's; None: the system's. Only with ``amqps``.
        cert_file: This client's certificate (PEM), for a broker that asks for one.
        key_file: The private key (PEM, without a password) of that certificate.
        connection_name: How the broker's own list of connections shows this one.
        prefix: What the names of our queues and exchanges begin with.
        connect_seconds: From the first packet to an open connection, for each address the host's name has.
        heartbeat_seconds: A peer that was silent for so long is given up; whole seconds.
        blocked_seconds: How long the broker may refuse to take anything (its memory or disk alarm).
        publish_seconds: How long publishing one page of messages may take.
    """

    url: str
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    connection_name: str = "cronless"
    prefix: str = "cronless"
    connect_seconds: float = BROKER_CONNECT_SECONDS
    heartbeat_seconds: int = 30
    blocked_seconds: float = 10.0
    publish_seconds: float = BROKER_PUBLISH_SECONDS

    def __post_init__(self) -> None:
        """Refuse what could never work.

        Raises:
            BrokerError: An address, a prefix or a limit that can't be used, or a certificate without its key.
        """
        fault = _address_fault(self.url)
        if fault:
            raise BrokerError(f"The address of RabbitMQ {fault}, so that it looks like {_EXAMPLE}.")
        if len(self.prefix) > BROKER_PREFIX_LENGTH or not BROKER_PREFIX.match(self.prefix):
            raise BrokerError(
                f"The prefix {self.prefix!r} can't begin a queue's name: give at most {BROKER_PREFIX_LENGTH}"
                " letters, digits, '_' and '-', in parts separated by dots, of which the first isn't 'amq'."
            )
        self._check_files()
        self._check_limits()

    @classmethod
    def from_settings(cls, settings: Settings, *, connection_name: str = "cronless") -> Self | None:
        """Return the broker that the settings name, or None where they name none.

        Raises:
            SettingsError: The settings name one that can't be used.
        """
        if settings.broker_url is None:
            return None
        try:
            return cls(
                settings.broker_url,
                ca_file=settings.broker_ca_file,
                cert_file=settings.broker_cert_file,
                key_file=settings.broker_key_file,
                connection_name=connection_name,
                prefix=settings.broker_prefix,
            )
        except BrokerError as error:
            raise SettingsError(f"The settings CRONLESS_BROKER_* can't be used: {error}") from None

    @property
    def shown(self) -> str:
        """The address without user and password, for messages and logs."""
        parts = urlsplit(self.url)
        host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
        port = parts.port or (5671 if self._tls else 5672)
        return f"{parts.scheme}://{host}:{port}/{quote(unquote(parts.path[1:]) or '/', safe='')}"

    def __repr__(self) -> str:
        return f"Broker({self.shown!r}, prefix={self.prefix!r})"

    def parameters(self) -> pika.URLParameters:
        """Return what pika needs for one attempt to connect, every limit set; certificates are read here.

        Raises:
            BrokerError: A certificate or key can't be read, or the two don't belong together.
        """
        parameters = pika.URLParameters(self.url)
        parameters.connection_attempts = 1
        parameters.socket_timeout = self.connect_seconds
        parameters.stack_timeout = self.connect_seconds
        parameters.blocked_connection_timeout = self.blocked_seconds
        parameters.heartbeat = self.heartbeat_seconds
        parameters.client_properties = {"connection_name": self.connection_name}
        if self._tls:
            parameters.ssl_options = pika.SSLOptions(self._context(), parameters.host)
        return parameters

    @property
    def _tls(self) -> bool:
        return self.url.startswith("amqps:")

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise BrokerError(
                f"The file {str(self.ca_file)!r} of certificates that may sign the broker's can't be used ({error}):"
                " give a readable file of PEM certificates."
            ) from error
        if self.cert_file:
            try:
                # An answer of our own: OpenSSL would ask for a protected key's password on the terminal.
                context.load_cert_chain(self.cert_file, self.key_file, password="")
            except OSError as error:
                raise BrokerError(
                    f"The client certificate {str(self.cert_file)!r} and its key {str(self.key_file)!r} can't be"
                    f" used ({error}): give two readable PEM files that belong together, the key without a password."
                ) from error
        return context

    def _check_files(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            given, missing = ("cert_file", "key_file") if self.cert_file else ("key_file", "cert_file")
            raise BrokerError(
                f"The broker {self.shown} has a {given} without a {missing}: give both, or neither of them."
            )
        if not self._tls and (self.ca_file or self.cert_file):
            raise BrokerError(
                f"The broker {self.shown} has certificates, but is addressed without TLS: write amqps://, or leave"
                " them out."
            )

    def _check_limits(self) -> None:
        for name in ("connect_seconds", "blocked_seconds", "publish_seconds"):
            value = getattr(self, name)
            if not 0 < value <= _LONGEST:
                raise BrokerError(f"{name} is {value!r}: give seconds above 0, up to {_LONGEST:,}.")
        if self.heartbeat_seconds not in range(1, _LONGEST + 1):
            raise BrokerError(
                f"heartbeat_seconds is {self.heartbeat_seconds!r}: give whole seconds from 1 to {_LONGEST:,}."
            )


def _address_fault(url: str) -> str | None:
    """Say what is wrong with an address without quoting it: what looks like a host may be part of a password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "can't be read: write / ? # @ : in a password as %2F %3F %23 %40 %3A, and the port as a number"
    login = (parts.username, parts.password)
    faults = {
        "doesn't begin with amqp:// or amqps://: add it": not url.startswith(("amqp://", "amqps://")),
        "holds a space, a control character or one beyond ASCII: write it percent-encoded": (
            not url.isascii() or not url.isprintable() or " " in url
        ),
        "names no host, or the port 0: correct it": not parts.hostname or port == 0,
        "holds a '?' or '#': write them in a password as %3F and %23, and give limits and certificates by their own"
        " settings": "?" in url or "#" in url,
        "holds a further '/' or an '@' behind the host: write them as %2F and %40": (
            "/" in parts.path[1:] or "@" in parts.path
        ),
        "names a user without a password, or a password without a user: give both": (
            login != (None, None) and not all(login)
        ),
    }
    return next((fault for fault, found in faults.items() if found), None)
