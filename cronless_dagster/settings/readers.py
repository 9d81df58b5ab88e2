"""Reading one setting's text: each reader takes the variable's name and its text, and says what is wrong."""

from __future__ import annotations

import re
from email.utils import parseaddr
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cronless_dagster.scheduling.errors import CronlessError

if TYPE_CHECKING:
    from collections.abc import Callable

BROKER_PREFIX = re.compile(r"(?!amq(\.|\Z))[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\Z")
"""What names of queues and exchanges may begin with; RabbitMQ keeps ``amq.`` for itself."""
BROKER_PREFIX_LENGTH = 100
"""With a job type of 100 characters a name still fits the 255 bytes that AMQP allows."""


class SettingsError(CronlessError):
    """A setting can't be used; the message names the variable, its value and what to write instead."""


def whole(low: int, high: int) -> Callable[[str, str], int]:
    """Return a reader of whole numbers in a range, both ends included."""

    def read(variable: str, text: str) -> int:
        # int() also takes '1_000', ' 7 ' and other scripts' digits, none of which is meant here.
        if not (text.isascii() and text.isdigit() and low <= int(text[:12]) <= high):
            raise SettingsError(f"{variable} is {text!r}: give a whole number from {low} to {high}.")
        return int(text)

    return read


def modules(variable: str, text: str) -> tuple[str, ...]:
    """Read names of Python modules, separated by commas."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise SettingsError(
                f"{variable} holds {name!r}: give names of Python modules, separated by commas."
            )
    return names


def path(what: str) -> Callable[[str, str], Path]:
    """Return a reader of the path of such a thing."""

    def read(variable: str, text: str) -> Path:
        if "\0" in text:
            raise SettingsError(f"{variable} is {text!r}: give the path of a {what}.")
        return Path(text).expanduser()

    return read


def database_url(variable: str, text: str) -> str:
    """Read a PostgreSQL's address."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        # Without the parser's message, which may quote a part of the password.
        raise SettingsError(
            f"{variable} is no address: give one such as postgresql://user@host/database, with / ? # @ : in a"
            " password written as %2F %3F %23 %40 %3A."
        ) from None
    if parts.scheme not in ("postgresql", "postgresql+psycopg") or not parts.path.strip("/"):
        # The value stays out of the message: it may hold a password.
        raise SettingsError(
            f"{variable} starts with {parts.scheme!r} or names no database: give an address such as"
            " postgresql://user@host/database."
        )
    return text


def broker_url(variable: str, text: str) -> str:
    """Read a RabbitMQ's address."""
    if not re.match(r"amqps?://.", text):
        raise SettingsError(
            f"{variable} doesn't begin with amqp:// or amqps://: give an address such as"
            " amqps://user:password@host/virtual-host."
        )
    return text


def broker_prefix(variable: str, text: str) -> str:
    """Read what names of queues and exchanges begin with."""
    if len(text) > BROKER_PREFIX_LENGTH or not BROKER_PREFIX.match(text):
        raise SettingsError(
            f"{variable} is {text!r}: give at most {BROKER_PREFIX_LENGTH} letters, digits, '_' and '-', in parts"
            " separated by dots, of which the first isn't 'amq'."
        )
    return text


def web_address(variable: str, text: str) -> str:
    """Read a web address; a slash at its end is left out."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.netloc)
    except ValueError:
        usable = False
    if not usable:
        raise SettingsError(f"{variable} is {text!r}: give a web address such as http://127.0.0.1:3000.")
    return text.rstrip("/")


def networks(variable: str, text: str) -> tuple[str, ...]:
    """Read networks in CIDR notation, separated by commas."""
    found = []
    for part in (one.strip() for one in text.split(",")):
        try:
            found.append(str(ip_network(part)))
        except ValueError:
            raise SettingsError(
                f"{variable} holds {part!r}: give networks such as 10.0.0.0/8 or fd00::/8, separated by commas."
            ) from None
    return tuple(found)


def smtp_url(variable: str, text: str) -> str:
    """Read the address of a mail server; the value stays out of messages, since it may hold a password."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise SettingsError(
            f"{variable} is no address: give one such as smtp://user:password@host:587, with / ? # @ : in a password"
            " written as %2F %3F %23 %40 %3A."
        ) from None
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname or parts.path.strip("/") or parts.fragment:
        raise SettingsError(
            f"{variable} is no mail server's address: give smtp://user:password@host:587 (STARTTLS) or"
            " smtps://user:password@host:465 (TLS from the start)."
        )
    return text


def mail_address(variable: str, text: str) -> str:
    """Read one mail address, with or without a name before it."""
    _, address = parseaddr(text)
    if not re.fullmatch(r"[^@\s]+@[^@\s]+", address) or not text.isprintable():
        raise SettingsError(f"{variable} is {text!r}: give one address, such as News <news@example.org>.")
    return text


def bind_address(variable: str, text: str) -> str:
    """Read where a server listens: host:port, an IPv6 address in brackets; port 0 is any free one."""
    try:
        parts = urlsplit(f"//{text}")
        usable = bool(parts.hostname) and parts.port is not None and f"//{parts.netloc}" == f"//{text}"
        usable = usable and parts.username is None
    except ValueError:
        usable = False
    if not usable:
        raise SettingsError(f"{variable} is {text!r}: give an address and a port, such as 127.0.0.1:8088.")
    return text


def secret(variable: str, text: str) -> str:
    """Read a token; it stays out of messages."""
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise SettingsError(f"{variable} holds a blank or a character that no token has: copy it again.")
    return text


def name_of(what: str) -> Callable[[str, str], str]:
    """Return a reader of the name of such a thing."""

    def read(variable: str, text: str) -> str:
        if not text.isprintable() or len(text) > 200:
            raise SettingsError(f"{variable} is {text[:80]!r}: give the name of a {what}.")
        return text

    return read
