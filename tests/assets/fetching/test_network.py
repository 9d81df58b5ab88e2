"""Where connections go: the check is of the address that is connected to, each time."""

from __future__ import annotations

import socket
import sys
from threading import Event
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.assets.fetching import Fetched, Fetcher, FetchFailed, FetchRefused
from tests.assets.web import Reply, WebServer

if TYPE_CHECKING:
    from collections.abc import Callable


class Names:
    """A resolver that knows what it is told: the answers to be given one after the other, the last for good."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> list[str]:
        """Answer."""
        self.asked.append(host)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def _body(fetcher: Fetcher, url: str) -> bytes:
    fetched = fetcher.fetch(url)
    assert isinstance(fetched, Fetched)
    return fetched.body


def test_private_is_refused_by_default(web: WebServer) -> None:
    """Without a named network nothing on this machine is reached, by whatever name."""
    with Fetcher() as fetcher:
        for name in (
            "127.0.0.1",
            "localhost",
            "127.1",
            "2130706433",
            "0x7f000001",
            "::1",
            "::ffff:127.0.0.1",
        ):
            with pytest.raises(FetchRefused, match="no public address"):
                fetcher.fetch(web.url("/", host=name))
    assert not web.connections


def test_one_lookup_for_check_and_connection(web: WebServer, make: Callable[..., Fetcher]) -> None:
    """The address that was checked is the one connected to: a name that only our resolver knows is looked up once."""
    web.routes["/"] = lambda _: b"here"
    names = Names(["127.0.0.1"], ["127.0.0.2"])
    assert _body(make(resolve=names), web.url("/", host="rebinding.example")) == b"here"
    assert names.asked == ["rebinding.example"]
    assert web.requests[0].headers["host"] == f"rebinding.example:{web.port}"


def test_rebinding(web: WebServer, make: Callable[..., Fetcher]) -> None:
    """A name that was fine a moment ago is checked again for its next connection."""
    web.routes["/"] = lambda _: Reply(body=b"here", headers={"Connection": "close"})
    fetcher = make(resolve=Names(["127.0.0.1"], ["127.0.0.2"]))
    assert _body(fetcher, web.url("/", host="rebinding.example")) == b"here"
    with pytest.raises(FetchRefused, match=r"'rebinding\.example' has no public address"):
        fetcher.fetch(web.url("/", host="rebinding.example"))


def test_allowed_ones_in_order(web: WebServer, make: Callable[..., Fetcher]) -> None:
    """Of several addresses the ones that may not be reached are left out, and a dead one isn't the end."""
    web.routes["/"] = lambda _: b"here"
    refused_then_good = Names(["10.0.0.1", "127.0.0.2", "127.0.0.1"])
    assert _body(make(resolve=refused_then_good), web.url("/", host="a.example")) == b"here"
    dead_then_good = Names(["127.0.0.2", "127.0.0.1"])
    fetcher = make(resolve=dead_then_good, networks=("127.0.0.0/8",))
    assert _body(fetcher, web.url("/", host="b.example")) == b"here"


@pytest.mark.skipif(sys.platform == "darwin", reason="has no second loopback address")
def test_redirect_to_private(web: WebServer, make: Callable[..., Fetcher]) -> None:
    """A redirect to an address that may not be reached is refused, and nothing arrives there."""
    with WebServer({"/secret": lambda _: b"secret"}, host="127.0.0.2") as inner:
        web.routes["/"] = lambda _: Reply(302, headers={"Location": inner.url("/secret")})
        with pytest.raises(FetchRefused, match=r"'127\.0\.0\.2' has no public address"):
            make().fetch(web.url())
        with pytest.raises(FetchRefused, match=r"'127\.0\.0\.2' has no public address"):
            make().post_form(inner.url("/secret"), {"a": "b"})
        assert not inner.connections


@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6")
def test_ipv6(make: Callable[..., Fetcher]) -> None:
    """IPv6 works the same: refused unless its network is named."""
    with WebServer({"/": lambda _: b"here"}, host="::1") as six:
        with pytest.raises(FetchRefused, match="no public address"):
            make().fetch(six.url())
        assert _body(make(networks=("::1/128",)), six.url()) == b"here"


def test_no_proxy(web: WebServer, make: Callable[..., Fetcher], monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of the environment isn't used: it would connect for us to what we may not."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    web.routes["/"] = lambda _: b"here"
    assert _body(make(), web.url()) == b"here"


def test_unknown_name(make: Callable[..., Fetcher]) -> None:
    """A name that can't be resolved may be there tomorrow; one that can't be a name is no crash."""

    def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(FetchFailed, match=r"can't be resolved: .*Name or service not known"):
        make(resolve=unknown).fetch("http://nowhere.example/")
    with pytest.raises(FetchFailed, match="can't be resolved"):
        make().fetch(f"http://{'a' * 70}.example/")


@pytest.mark.timeout(60)
def test_slow_resolver(make: Callable[..., Fetcher]) -> None:
    """A resolver that doesn't answer is left behind in time."""
    answered = Event()

    def slow(host: str, port: int) -> list[str]:
        answered.wait(120)
        return ["127.0.0.1"]

    with pytest.raises(FetchFailed, match="couldn't be connected to in time"):
        make(resolve=slow, connect_seconds=0.1).fetch("http://slow.example/")
    answered.set()


@pytest.mark.timeout(60)
def test_silent_server(make: Callable[..., Fetcher]) -> None:
    """A server that accepts a connection for TLS, or a request, and says nothing more is given up in time."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(FetchFailed, match="couldn't be connected to in time"):
            make(connect_seconds=0.1).fetch(f"https://127.0.0.1:{port}/")
        with pytest.raises(FetchFailed, match=r"took longer than 0\.2 s"):
            make(seconds=0.2).fetch(f"http://127.0.0.1:{port}/")


def test_nothing_is_left_of_refusals(make: Callable[..., Fetcher]) -> None:
    """Refused connections leave nothing in the pool, so that none of them blocks a later one."""
    fetcher = make()
    for _ in range(20):
        with pytest.raises(FetchRefused):
            fetcher.fetch("http://10.0.0.1/")
    assert not fetcher._client._pool.connections
