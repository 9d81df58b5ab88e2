"""Addresses: what may stand in a header and in an SMTP command."""

from __future__ import annotations

import pytest

from cronless_dagster.assets.digests.addresses import address, sender_address
from cronless_dagster.assets.digests.errors import AddressError


@pytest.mark.parametrize(
    "email",
    ["a@b.example", "first.last+tag@b.example", '"a b"@b.example', "a@[192.0.2.1]", "o'neil@b.example"],
)
def test_addresses(email: str) -> None:
    """As RFC 5322 has them."""
    assert address(email, "A Name").addr_spec == email


@pytest.mark.parametrize(
    "email",
    [
        "",
        "a",
        "a@",
        "@b.example",
        "a b@c.example",
        "a@b@c.example",
        "a@b..example",
        "a@b.example ",
        " a@b.example",
        "a@b.example\n",
        "a@b.example\r\nBcc: x@y.example",
        "a\x00@b.example",
        "a@b.example, c@d.example",
        "A <a@b.example>",
        "a(comment)@b.example",
        "ä@b.example",
        f"{'a' * 65}@b.example",
        f"a@{'b' * 250}.example",
        "a@\u2028b.example",
        "a@" + "ü" * 70 + ".example",
    ],
)
def test_what_is_none(email: str) -> None:
    """One sentence with what to do, on one line."""
    with pytest.raises(AddressError, match=r"give one such as reader@example\.org") as caught:
        address(email)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["R\nBcc: x", "R\r", "R\x00", "R" * 201, "R\u2028", "=?utf-8?q?R=0D=0ABcc:_x?="]
)
def test_names_add_no_line(name: str) -> None:
    """A name is a header's text too."""
    with pytest.raises(AddressError, match="can't stand beside"):
        address("a@b.example", name)


def test_domains_beyond_ascii() -> None:
    """Written as the domain name system has them, so that every mail server takes them."""
    assert address("a@bücher.example").addr_spec == "a@xn--bcher-kva.example"


def test_senders() -> None:
    """With a name, or without."""
    made = sender_address("The News <news@example.org>")
    assert (made.display_name, made.addr_spec) == ("The News", "news@example.org")
    assert sender_address("news@example.org").addr_spec == "news@example.org"
    for wrong in ("nobody", "A <a@b.example>\nBcc: x@y.example", ""):
        with pytest.raises(AddressError):
            sender_address(wrong)
