"""Signatures of delivered content."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from cronless_dagster.assets.webhooks.signatures import METHODS, is_signed

BODY = b"<feed>\xff\x00</feed>"
SECRET = "made-up-secret"


def signed(method: str, body: bytes = BODY, secret: str = SECRET) -> str:
    """Return a header as a hub makes it."""
    return f"{method}={hmac.new(secret.encode(), body, getattr(hashlib, method)).hexdigest()}"


@pytest.mark.parametrize("method", METHODS)
def test_each_registered_algorithm_is_recognised(method: str) -> None:
    """WebSub 7.1.1 names four; case and blanks around are the hub's own."""
    assert is_signed(BODY, signed(method), SECRET)
    assert is_signed(BODY, f" {signed(method).upper()} ", SECRET)


def test_a_known_answer_of_the_standard_holds() -> None:
    """RFC 4231, test case 2."""
    digest = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    assert is_signed(b"what do ya want for nothing?", f"sha256={digest}", "Jefe")


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "sha256",
        "sha256=",
        "=",
        signed("sha256").partition("=")[2],
        signed("sha256")[:-1],
        signed("sha256") + "0",
        signed("sha256", BODY + b" "),
        signed("sha256", secret="another"),
        signed("sha256").replace("sha256", "sha512"),
        signed("md5"),
        "sha256=ÿÿ",
        "sha256=" + "\ud800",
        "__class__=x",
    ],
)
def test_anything_else_is_not_signed(header: str | None) -> None:
    """Without a header, with another algorithm, another body, another secret, or with garbage."""
    assert not is_signed(BODY, header, SECRET)


def test_weak_algorithms_can_be_left_out() -> None:
    """Whose hubs all sign with SHA-256 needs no SHA-1."""
    assert not is_signed(BODY, signed("sha1"), SECRET, ("sha256",))
    assert not is_signed(BODY, signed("md5"), SECRET, ("md5",))
