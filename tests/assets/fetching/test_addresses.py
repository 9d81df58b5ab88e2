"""Which addresses may be connected to."""

from __future__ import annotations

import pytest

from cronless_dagster.assets.fetching.addresses import allowed, networks_of


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "172.32.0.1", "192.0.1.1", "2606:4700:4700::1111", "64:ff9b::808:808", "2002:808:808::1"],
)
def test_public(address: str) -> None:
    """Public addresses may be reached, also those that carry a public IPv4 address."""
    assert allowed(address)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",  # noqa: S104  # nothing is bound to it
        "0.1.2.3",
        "10.1.2.3",
        "100.64.0.1",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.0.2.1",
        "192.168.1.1",
        "198.18.0.1",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::a00:1",
        "64:ff9b:1::808:808",
        "100::1",
        "2001::1",
        "2001:db8::1",
        "2002:7f00:1::1",
        "2002:a9fe:a9fe::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
    ],
)
def test_not_public(address: str) -> None:
    """Private, local, shared, reserved and multicast addresses may not, in whatever they are wrapped."""
    assert not allowed(address)


def test_named_networks() -> None:
    """A network that is named may be reached, and only that; an IPv4 network also through IPv6."""
    networks = networks_of(["10.0.0.0/8", "fd00::/8"])
    assert allowed("10.1.2.3", networks)
    assert allowed("::ffff:10.1.2.3", networks)
    assert allowed("fd00::1", networks)
    assert not allowed("192.168.1.1", networks)
    assert not allowed("fe80::1", networks)
    assert allowed("64:ff9b::a00:1", networks_of(["64:ff9b::/96"]))
