"""Who may call what: the secrets that a call brings are held against every one that is known, whatever was right.

How long that takes depends on the access file alone. A secret that isn't there is compared as an empty one, no
comparison is left out after one that failed, and there is one decision at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from hmac import compare_digest
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import TYPE_CHECKING

from cronless_dagster.api import secrets

if TYPE_CHECKING:
    from collections.abc import Sequence

EVERY_CHECK = "*"


@dataclass(frozen=True, slots=True, repr=False)
class Caller:
    """Somebody who calls checks, and what they may.

    Attributes:
        tokens: Digests of what `Authorization: Bearer` may carry; two while they are rotated.
        keys: Digests of what `X-Cronless-Key` may carry.
        checks: Names of checks, or the one word `*`.
        now: Whether they may say what time it is, where the database's clock is virtual.
        networks: Where they may call from; none: from anywhere.
    """

    name: str
    tokens: tuple[bytes, ...]
    keys: tuple[bytes, ...]
    checks: frozenset[str]
    now: bool = False
    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    def may_call(self, check: str) -> bool:
        """Tell whether this check is among theirs."""
        return EVERY_CHECK in self.checks or check in self.checks

    def __repr__(self) -> str:
        return f"Caller({self.name!r})"


@dataclass(frozen=True, slots=True, repr=False)
class Access:
    """All that may open the API: digests of the secret first part of its paths, and the callers."""

    paths: tuple[bytes, ...]
    callers: tuple[Caller, ...]

    def admit(self, path: bytes, token: bytes, key: bytes, peer: str | None) -> Caller | None:
        """Return the caller whose secrets these are, or None.

        Args:
            path: The first part of the request's path.
            token: What came as bearer token; empty where none did, or more than one.
            key: What came as the second token; likewise.
            peer: The address at the other end of the connection.
        """
        path_digest, token_digest, key_digest = map(secrets.digest_of, (path, token, key))
        path_known = _one_of(self.paths, path_digest)
        found = None
        for caller in self.callers:
            known = _one_of(caller.tokens, token_digest) & _one_of(caller.keys, key_digest)
            known &= _from_there(caller, peer)
            # One place for both outcomes: the secrets of two callers differ, so at most one is known.
            found = (found, caller)[known]
        return (None, found)[path_known]

    def __repr__(self) -> str:
        return f"Access({len(self.paths)} paths, {', '.join(one.name for one in self.callers)})"


def _one_of(known: Sequence[bytes], digest: bytes) -> bool:
    equal = False
    for one in known:
        equal |= compare_digest(one, digest)
    return equal


def _from_there(caller: Caller, peer: str | None) -> bool:
    if not caller.networks:
        return True
    try:
        address = ip_address(peer or "")
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in network for network in caller.networks)
