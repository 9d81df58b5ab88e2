"""Which IP addresses a fetch may connect to: public ones, and those of networks that are named.

Whoever may write an address into a table could otherwise make this process read what only it can reach: a
database's console, a cloud's metadata, a neighbour's printer.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_GLOBAL_UNICAST = IPv6Network("2000::/3")
"""The only part of IPv6 that is given out for hosts anywhere (IANA's registry of the IPv6 address space)."""
_NAT64 = IPv6Network("64:ff9b::/96")
"""Carries an IPv4 address in its last 32 bits (RFC 6052, section 2.1)."""
_NOT_PUBLIC = (
    # IANA's special-purpose registry sets all of it aside; older Pythons know its first eight addresses only. One
    # cloud has its metadata here.
    IPv4Network("192.0.0.0/24"),
    # By number public, but inside one cloud the host's own platform.
    IPv4Network("168.63.129.16/32"),
)


def allowed(address: str, networks: Sequence[IPv4Network | IPv6Network] = ()) -> bool:
    """Say whether a connection to an address may be made.

    Args:
        address: IPv4 or IPv6, as a resolver returns it; an IPv6 scope (``%eth0``) is put aside.
        networks: What may be reached although it isn't public.

    Raises:
        ValueError: It is no address.
    """
    plain = ip_address(address.partition("%")[0])
    meant = _carried(plain) or plain
    if any(one in network for one in (plain, meant) for network in networks):
        return True
    return _public(meant)


def networks_of(texts: Sequence[str]) -> tuple[IPv4Network | IPv6Network, ...]:
    """Read networks in CIDR notation.

    Raises:
        ValueError: One of them can't be read.
    """
    return tuple(ip_network(text) for text in texts)


def _carried(address: IPv4Address | IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that packets to an IPv6 address end up at, by a mapping or a gateway."""
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour


def _public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address):
        return address in _GLOBAL_UNICAST and address.is_global
    return address.is_global and not address.is_multicast and not any(address in one for one in _NOT_PUBLIC)
