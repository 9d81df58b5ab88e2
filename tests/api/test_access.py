"""Who is admitted: all candidates are compared, and only a path with both tokens of one caller opens."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network
from itertools import product
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.api import access as subject
from cronless_dagster.api.access import Access, Caller
from cronless_dagster.api.secrets import digest_of, hash_of, new_secret, read_hash
from tests.api.support import ALL, FEW, KEY, OTHER_KEY, OTHER_TOKEN, PATH, TOKEN, access_of

if TYPE_CHECKING:
    from collections.abc import Callable

SECRETS = {"right": (PATH, TOKEN, KEY), "other": ("x" * 43, OTHER_TOKEN, OTHER_KEY), "none": ("", "", "")}


def admitted(
    access: Access, path: str = PATH, token: str = TOKEN, key: str = KEY, peer: str | None = None
) -> str:
    """Return the name of the caller who is admitted; empty: nobody."""
    found = access.admit(path.encode(), token.encode(), key.encode(), peer)
    return found.name if found else ""


def test_only_what_belongs_together_opens() -> None:
    """Of all combinations of right, other and no secrets, two do: with the path and both tokens of one caller."""
    opened = {}
    for path, token, key in product(SECRETS, repeat=3):
        found = admitted(access_of(), SECRETS[path][0], SECRETS[token][1], SECRETS[key][2])
        if found:
            opened[path, token, key] = found
    assert opened == {("right", "right", "right"): "all", ("right", "other", "other"): "few"}


def test_two_of_each_while_they_are_rotated() -> None:
    """Old and new ones open alike, in any combination."""
    rotated = replace(
        ALL,
        tokens=(digest_of(b"old token"), digest_of(b"new token")),
        keys=(digest_of(b"old key"), digest_of(b"new key")),
    )
    access = access_of(rotated, FEW, paths=("old path", "new path"))
    for path, token, key in product(
        ("old path", "new path"), ("old token", "new token"), ("old key", "new key")
    ):
        assert admitted(access, path, token, key) == "all"
    assert not admitted(access)


@pytest.mark.parametrize(
    ("peer", "opens"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("2001:db8::7", True),
        ("11.1.2.3", False),
        ("2001:db9::7", False),
        ("no address", False),
        ("", False),
        (None, False),
    ],
)
def test_networks_are_those_of_the_connection(peer: str | None, opens: bool) -> None:
    """IPv4 in IPv6's notation, as a socket for both shows it, is IPv4; an unknown address lies in no network."""
    near = replace(ALL, networks=(ip_network("10.0.0.0/8"), ip_network("2001:db8::/32")))
    assert bool(admitted(access_of(near), peer=peer)) is opens
    assert admitted(access_of(ALL), peer=peer)


class TestWork:
    @pytest.fixture
    def count(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
        """Return what was hashed and compared for one admission, in order, by length alone."""
        done: list[str] = []
        compare, digest = subject.compare_digest, digest_of

        def compared(one: bytes, other: bytes) -> bool:
            done.append(f"compare {len(one)} {len(other)}")
            return compare(one, other)

        def hashed(secret: bytes) -> bytes:
            done.append("hash")
            return digest(secret)

        monkeypatch.setattr(subject, "compare_digest", compared)
        monkeypatch.setattr(subject.secrets, "digest_of", hashed)

        def two(name: str, token: str, key: str) -> Caller:
            old = digest_of(f"old of {name}".encode())
            return Caller(name, (digest(token.encode()), old), (digest(key.encode()), old), frozenset())

        access = access_of(
            two("all", TOKEN, KEY), two("few", OTHER_TOKEN, OTHER_KEY), paths=(PATH, "old path")
        )

        def count(*secrets: str) -> list[str]:
            done.clear()
            admitted(access, *secrets)
            return list(done)

        return count

    @pytest.mark.parametrize(
        "secrets",
        [
            pytest.param(("", "", ""), id="nothing"),
            pytest.param((PATH, "x" + TOKEN[1:], KEY), id="first byte of the token"),
            pytest.param((PATH, TOKEN[:-1] + "x", KEY), id="last byte of the token"),
            pytest.param((PATH, "", KEY), id="no token"),
            pytest.param((PATH, TOKEN, "x" + KEY[1:]), id="wrong key"),
            pytest.param((PATH, TOKEN, OTHER_KEY), id="another's key"),
            pytest.param(("x" + PATH[1:], TOKEN, KEY), id="wrong path"),
            pytest.param(("", TOKEN, KEY), id="no path"),
            pytest.param((PATH, "stranger", "stranger"), id="unknown caller"),
            pytest.param((PATH, OTHER_TOKEN, OTHER_KEY), id="the second caller"),
        ],
    )
    def test_whatever_is_wrong_costs_what_the_right_one_costs(
        self, count: Callable[..., list[str]], secrets: tuple[str, str, str]
    ) -> None:
        """Three hashes, and a comparison with every secret that is known."""
        right = count(PATH, TOKEN, KEY)
        assert right == ["hash"] * 3 + ["compare 32 32"] * 10
        assert count(*secrets) == right


def test_no_secret_is_shown() -> None:
    """Nor its hash, whatever prints an access or a caller."""
    shown = f"{access_of()!r} {access_of()} {ALL!r} {[ALL]}"
    for secret in (PATH, TOKEN, KEY):
        assert secret not in shown
        assert digest_of(secret.encode()).hex() not in shown
        assert repr(digest_of(secret.encode())) not in shown


def test_secrets_are_random_and_known_by_their_hash() -> None:
    """256 bits as 43 signs that need no quoting; the hash is the digest's text."""
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    for secret in made:
        assert len(secret) == 43
        assert secret.replace("-", "").replace("_", "").isalnum()
        assert read_hash(hash_of(secret)) == digest_of(secret.encode())


@pytest.mark.parametrize(
    "text", ["", "sha256:", "sha256:" + "0" * 63, "sha256:" + "A" * 64, "0" * 64, "x sha256:" + "0" * 64]
)
def test_other_texts_are_no_hash(text: str) -> None:
    """Only the whole form is read."""
    assert read_hash(text) is None
