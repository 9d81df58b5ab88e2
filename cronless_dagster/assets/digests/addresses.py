"""E-mail addresses: what may stand in a header and in an SMTP command, and nothing that could add a line to either."""

from __future__ import annotations

from email.errors import MessageError
from email.headerregistry import Address
from email.utils import parseaddr

from cronless_dagster.assets.digests.errors import AddressError

MAX_ADDRESS = 254
MAX_LOCAL_PART = 64
"""Octets, as RFC 5321 bounds them: 4.5.3.1.1, and 4.5.3.1.3 with the two angle brackets of a path."""
MAX_NAME = 200


def address(email: str, name: str = "") -> Address:
    """Return an address for a header; a domain beyond ASCII is written as IDNA writes it.

    The form is RFC 5322's `addr-spec` (3.4.1), as the standard library reads it, without comments and blanks.

    Args:
        email: Such as `reader@example.org`.
        name: Shown beside it; may be empty.

    Raises:
        AddressError: Either can't be used: no `@`, a line break or another control character, too long, a part
            before the `@` that isn't ASCII.
    """
    if not email.isprintable() or not 3 <= len(email) <= MAX_ADDRESS:
        raise AddressError(
            f"the address {_shown(email)} can't be used: give one such as reader@example.org, without line breaks, of"
            f" at most {MAX_ADDRESS} characters"
        )
    # An encoded word (RFC 2047) would be decoded when the header is written, whatever line breaks it hides.
    if not name.isprintable() or len(name) > MAX_NAME or "=?" in name:
        raise AddressError(
            f"the name {_shown(name)} can't stand beside an address: give at most {MAX_NAME} characters, plain ones"
            " without line breaks and without =?"
        )
    local, _, domain = email.rpartition("@")
    try:
        spec = f"{local}@{domain if domain.isascii() else domain.encode('idna').decode('ascii')}"
        made = Address(name, addr_spec=spec)
    except (MessageError, ValueError, IndexError) as error:
        # The standard library meets an address that ends early with an IndexError.
        raise AddressError(
            f"the address {_shown(email)} is none ({error}): give one such as reader@example.org"
        ) from error
    if made.addr_spec != spec or not made.domain or len(local) > MAX_LOCAL_PART or len(spec) > MAX_ADDRESS:
        raise AddressError(
            f"the address {_shown(email)} is none: give one such as reader@example.org, without comments or blanks,"
            f" with at most {MAX_LOCAL_PART} characters before the @"
        )
    return made


def sender_address(text: str) -> Address:
    """Return the address of a sender written as `News <news@example.org>`, or as the address alone.

    Raises:
        AddressError: It can't be used.
    """
    if not text.isprintable():
        raise AddressError(
            f"the sender {_shown(text)} can't be used: give one such as News <news@example.org>"
        )
    name, email = parseaddr(text)
    return address(email, name)


def _shown(text: str) -> str:
    return ascii(text)[:80]
