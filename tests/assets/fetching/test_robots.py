"""robots.txt: what it forbids, and what its absence means."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.assets.fetching import Fetched, FetchFailed, FetchLimits, FetchRefused
from cronless_dagster.assets.fetching.budgets import budget
from cronless_dagster.assets.fetching.client import Client
from cronless_dagster.assets.fetching.robots import Robots, parse
from cronless_dagster.assets.fetching.urls import parsed
from tests.assets.web import Reply, Request, Reset, WebServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cronless_dagster.assets.fetching import Fetcher

    Make = Callable[..., Fetcher]

RULES = b"""\
User-agent: *
Disallow: /

User-agent: Cronless_Dagster
Allow: /public/
Disallow: /private/
Allow: /private/but-this
Disallow: /*.pdf$
"""


class Clock:
    """A clock that is set by hand, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Read it."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The clock of `robots`."""
    return Clock()


@pytest.fixture
def robots(clock: Clock) -> Iterator[Robots]:
    """Robots that may reach 127.0.0.1, with a clock of their own."""
    client = Client(FetchLimits(networks=("127.0.0.1/32",), seconds=5))
    with budget(60):
        yield Robots(client, clock)
    client.close()


def test_rules(web: WebServer, make: Make) -> None:
    """The group of our name counts, the longest match wins, and what is forbidden isn't asked for."""
    web.routes = {"*": lambda _: b"here", "/robots.txt": lambda _: RULES}
    fetcher = make(robots=True)
    for path in ("/public/a", "/private/but-this", "/other", "/a.pdf?page=1"):
        assert isinstance(fetcher.fetch(web.url(path)), Fetched)
    for path in ("/private/a", "/b.pdf"):
        with pytest.raises(
            FetchRefused, match=f"forbids http://127.0.0.1:{web.port}{path} to cronless_dagster"
        ):
            fetcher.fetch(web.url(path))
        assert not web.counts[path]
    assert web.counts["/robots.txt"] == 1


def test_other_name(web: WebServer, make: Make) -> None:
    """Another user agent has another group."""
    web.routes = {"*": lambda _: b"here", "/robots.txt": lambda _: RULES}
    with pytest.raises(FetchRefused, match="to ExampleBot: leave it out"):
        make(robots=True, user_agent="ExampleBot/2.0 (made up)").fetch(web.url("/public/a"))


def test_off(web: WebServer, make: Make) -> None:
    """Without robots nothing is asked, and nothing is forbidden."""
    web.routes = {"*": lambda _: b"here", "/robots.txt": lambda _: RULES}
    assert isinstance(make(robots=False).fetch(web.url("/private/a")), Fetched)
    assert not web.counts["/robots.txt"]


def test_redirect_target(web: WebServer, make: Make) -> None:
    """A redirect's target is looked up in its own server's file."""
    with WebServer({"*": lambda _: b"here", "/robots.txt": lambda _: RULES}) as other:
        web.routes["/"] = lambda _: Reply(302, headers={"Location": other.url("/private/a")})
        with pytest.raises(FetchRefused, match=r"robots\.txt of .*forbids"):
            make(robots=True).fetch(web.url())
        assert dict(other.counts) == {"/robots.txt": 1}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_absent(web: WebServer, robots: Robots, status: int) -> None:
    """A file that isn't there forbids nothing."""
    web.routes["/robots.txt"] = lambda _: Reply(status, body=b"User-agent: *\nDisallow: /")
    robots.check(parsed(web.url("/a")))


@pytest.mark.parametrize("reply", [Reply(500), Reply(503), Reply(429, headers={"Retry-After": "9"}), Reset()])
def test_unreachable(web: WebServer, robots: Robots, clock: Clock, reply: Reply | Reset) -> None:
    """A file that can't be had forbids everything for a minute, in which it isn't asked for again."""
    web.routes["/robots.txt"] = lambda _: reply
    for _ in range(3):
        with pytest.raises(
            FetchFailed, match=f"^Nothing is fetched from http://127.0.0.1:{web.port} for now"
        ):
            robots.check(parsed(web.url("/a")))
    assert web.counts["/robots.txt"] == 1
    web.routes["/robots.txt"] = lambda _: b""
    clock.now = 61.0
    robots.check(parsed(web.url("/a")))


def test_kept_for_a_day(web: WebServer, robots: Robots, clock: Clock) -> None:
    """What was read counts for a day; if it can't be read again then, it goes on counting."""
    web.routes["/robots.txt"] = lambda _: RULES
    robots.check(parsed(web.url("/public/")))
    clock.now = 86_399.0
    robots.check(parsed(web.url("/public/")))
    assert web.counts["/robots.txt"] == 1
    web.routes["/robots.txt"] = lambda _: Reply(500)
    clock.now = 86_401.0
    robots.check(parsed(web.url("/public/")))
    with pytest.raises(FetchRefused):
        robots.check(parsed(web.url("/private/")))
    assert web.counts["/robots.txt"] == 2
    web.routes["/robots.txt"] = lambda _: b""
    clock.now = 86_501.0
    robots.check(parsed(web.url("/private/")))


@pytest.mark.timeout(60)
def test_spent_elsewhere(web: WebServer, robots: Robots) -> None:
    """A fetch that comes with hardly any time left keeps nobody else away."""

    def slow(_: Request) -> bytes:
        web.wait(0.5)
        return b""

    web.routes["/robots.txt"] = slow
    with budget(0.1), pytest.raises(FetchFailed, match="took longer"):
        robots.check(parsed(web.url("/a")))
    robots.check(parsed(web.url("/a")))
    assert web.counts["/robots.txt"] == 2


def test_redirected(web: WebServer, robots: Robots) -> None:
    """The file may be elsewhere, though not behind more than five redirects."""
    with WebServer({"/rules": lambda _: RULES}) as other:
        web.routes["/robots.txt"] = lambda _: Reply(301, headers={"Location": other.url("/rules")})
        with pytest.raises(FetchRefused):
            robots.check(parsed(web.url("/private/")))
        other.routes["/robots.txt"] = lambda _: Reply(302, headers={"Location": "/robots.txt?"})
        robots.check(parsed(other.url("/private/")))


def test_large(web: WebServer, robots: Robots) -> None:
    """Of a large file the first 500 KiB count, to the last whole line."""
    start = b"User-agent: *\nDisallow: /early\n"
    cut_short = b"Disallow: /"
    filler = b"#" * (512_000 - len(start) - len(cut_short) - 1) + b"\n"
    body = start + filler + cut_short + b"x" * 1_000_000
    web.routes["/robots.txt"] = lambda _: body
    robots.check(parsed(web.url("/a")))
    with pytest.raises(FetchRefused):
        robots.check(parsed(web.url("/early")))


@pytest.mark.timeout(60)
def test_hostile(web: WebServer, robots: Robots) -> None:
    """Files that are made to cost time are read quickly, or not at all."""
    names = b"".join(b"User-agent: a%d\n" % number for number in range(15_000))
    web.routes["/robots.txt"] = lambda _: names + b"Disallow: /\n" * 20_000
    with pytest.raises(FetchFailed, match="too many names"):
        robots.check(parsed(web.url("/a")))
    stars = parse(b"User-agent: *\nDisallow: /" + b"*a" * 300 + b"*b\n")
    assert stars.can_fetch("http://example.org/" + "a" * 1_900, "cronless_dagster")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<!DOCTYPE html><html><body>Not found</body></html>",
        b"\xff\xfe\x00\x01 garbage \x00",
        b"\xef\xbb\xbfUser-agent: other\r\nDisallow: /\r\n",
        b"Disallow: /",
        b"User-agent: *\nDisallow:\n",
    ],
)
def test_forbids_nothing(body: bytes) -> None:
    """What has no rule for us forbids nothing."""
    assert parse(body).can_fetch("http://example.org/a", "cronless_dagster")


def test_mark_and_case() -> None:
    """A byte order mark, capitals and carriage returns are no obstacle."""
    rules = parse(b"\xef\xbb\xbfUSER-AGENT: *\r\nDISALLOW: /a # a comment\r\n")
    assert not rules.can_fetch("http://example.org/a/b", "cronless_dagster")
    assert rules.can_fetch("http://example.org/A", "cronless_dagster")


def test_asked_once(web: WebServer, make: Make) -> None:
    """Thirty-two threads that come together ask for the file once."""

    def slow(_: Request) -> bytes:
        web.wait(0.2)
        return b""

    web.routes = {"*": lambda _: b"here", "/robots.txt": slow}
    fetcher = make(robots=True)
    with ThreadPoolExecutor(32) as threads:
        for done in [threads.submit(fetcher.fetch, web.url("/a")) for _ in range(64)]:
            done.result()
    assert web.counts["/robots.txt"] == 1


def test_bounded(robots: Robots) -> None:
    """However many servers there are, the files of so many are kept."""
    for number in range(1_500):
        robots._server(f"http://host-{number}.example")
    assert len(robots._servers) == 1_000
    assert "http://host-1499.example" in robots._servers
