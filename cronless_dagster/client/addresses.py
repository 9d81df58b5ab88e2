"""The address of a target: which are taken, and what is made of one."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .errors import ClientError

if TYPE_CHECKING:
    from .tables import Table


@dataclass(frozen=True, slots=True)
class Target:
    """An API that is called.

    Attributes:
        name: What the configuration calls it.
        secure: By https.
        host, port: Where it listens; an IPv6 address without brackets.
        base: What comes before the secret path: nothing, or a path such as `/scheduler`.
    """

    name: str
    secure: bool
    host: str
    port: int
    base: str = ""

    @property
    def address(self) -> str:
        """The address as a person writes it, without a secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == (443 if self.secure else 80)
        return f"http{'s' if self.secure else ''}://{host}{'' if usual else f':{self.port}'}{self.base}"


def read_target(table: Table, name: str, *, plain_http: bool) -> Target:
    """Read the address of a target from the table of targets.

    Raises:
        ClientError: It is no web address, holds what doesn't belong there, or would send the tokens over a network
            in plain text though that wasn't asked for.
    """
    write = "write an address such as https://eu.example.org, without user, query or the secret path"
    text = table.text(name, write) or ""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        # Its value may hold a password, and stays out of the message.
        raise ClientError(f"the address of target {name} can't be read: {write}") from None
    host = parts.hostname or ""
    odd = parts.query or parts.fragment or "@" in parts.netloc or not text.isascii() or " " in text
    if parts.scheme not in ("http", "https") or not host or odd:
        raise ClientError(f"the address of target {name} can't be used: {write}")
    secure = parts.scheme == "https"
    if not secure and not plain_http and not _on_this_machine(host):
        raise ClientError(
            f"target {name} is reached by http://, which shows the tokens to the network: write https://, or"
            " plain_http = true where nobody else is on that network"
        )
    return Target(name, secure, host, port or (443 if secure else 80), parts.path.rstrip("/"))


def _on_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
