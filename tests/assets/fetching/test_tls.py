"""https: whose certificate is believed, and no way back to plain http for what was sent encrypted."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.assets.fetching import Fetched, Fetcher, FetchFailed, FetchRefused
from tests.assets.web import Reply, WebServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Make = Callable[..., Fetcher]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate signed by itself, for localhost, and its key."""
    directory = tmp_path_factory.mktemp("certificate")
    made, key = directory / "localhost.pem", directory / "localhost.key"
    kind = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    command = [*kind, "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(made)]
    subprocess.run(command, check=True, capture_output=True)
    return made, key


@pytest.fixture
def secure(certificate: tuple[Path, Path]) -> Iterator[WebServer]:
    """A web server with that certificate."""
    with WebServer({"*": lambda _: b"here"}, certificate=certificate) as server:
        yield server


def test_unknown_authority(secure: WebServer, make: Make) -> None:
    """A certificate that nobody vouches for is refused, before anything is sent."""
    with pytest.raises(FetchFailed, match="certificate verify failed"):
        make().fetch(secure.url("/", host="localhost"))
    assert not secure.requests


def test_known_authority(
    secure: WebServer, make: Make, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificates that SSL_CERT_FILE names are believed, for the names that they are for."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    fetcher = make(robots=True)
    for _ in range(3):
        fetched = fetcher.fetch(secure.url("/", host="localhost"))
        assert isinstance(fetched, Fetched)
        assert fetched.body == b"here"
    assert secure.connections == 1
    with pytest.raises(FetchFailed, match="certificate verify failed"):
        fetcher.fetch(secure.url("/", host="127.0.0.1"))


def test_plain_after_secure(
    web: WebServer,
    secure: WebServer,
    make: Make,
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A document may have moved to plain http; a form, which may hold a secret, isn't sent there."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    web.routes["/"] = lambda _: b"plain"
    secure.routes["/"] = lambda _: Reply(307, headers={"Location": web.url()})
    fetcher, url = make(), secure.url("/", host="localhost")
    fetched = fetcher.fetch(url)
    assert isinstance(fetched, Fetched)
    assert fetched.body == b"plain"
    with pytest.raises(FetchRefused, match="in the clear"):
        fetcher.post_form(url, {"hub.secret": "made-up"})
    assert len(web.requests) == 1


def test_no_tls_there(web: WebServer, make: Make) -> None:
    """A server that doesn't speak TLS is no crash."""
    with pytest.raises(FetchFailed, match="couldn't be connected to"):
        make().fetch(web.url().replace("http:", "https:"))
