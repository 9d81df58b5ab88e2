"""Fetching from a real server: good, slow, huge, broken and hostile."""

from __future__ import annotations

import gzip
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from random import Random
from threading import Barrier, Event
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.assets.fetching import (
    Fetched,
    Fetcher,
    FetchError,
    FetchFailed,
    FetchLater,
    FetchRefused,
    NotModified,
)
from tests.assets.web import Raw, Reply, Request, Reset, WebServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Make = Callable[..., Fetcher]

ODD_STARTS = [
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 200\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 204 No Content\r\n",
    b"HTTP/1.1 302 Found\r\n",
    b"HTTP/1.1 304 Not Modified\r\n",
    b"HTTP/1.1 503 Service Unavailable\r\n",
    b"HTTP/1.1 999 What\r\n",
    b"HTTP/2 200\r\n",
]
ODD_FIELDS = [
    b"Location: \xff\xfe//\r\n",
    b"Location: ?\xc3\xbc\r\n",
    b"Location: http://a..b/\r\n",
    b"Location: http://xn--/\r\n",
    b"Location: http://h:0/\r\n",
    b"Location: https://.127.0.0.1/\r\n",
    b"Content-Length: -1\r\n",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Encoding: gzip\r\n",
    b"Content-Type: \xff; charset*0=a; charset*=utf-8''x\r\n",
    b"ETag: \xfc\x80\r\n",
    b"Retry-After: \xff\r\n",
    b"Bad Field: x\r\n",
    b" folded\r\n",
]
ODD_BODIES = [
    b"",
    b"hello",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"ffffffffffffffff\r\nx",
    b"\x1f\x8b\x08\x00",
    b"zz\r\n",
]


def _redirect(to: str, status: int = 302) -> Callable[[Request], Reply]:
    return lambda _: Reply(status, body=b"moved", headers={"Location": to})


def _fetched(fetcher: Fetcher, url: str) -> Fetched:
    fetched = fetcher.fetch(url)
    assert isinstance(fetched, Fetched)
    return fetched


class TestDocuments:
    """What comes back when all is well."""

    def test_all_of_it(self, web: WebServer, make: Make) -> None:
        """A document comes with its type, charset, validators and where it was."""
        headers = {
            "Content-Type": 'Text/HTML; Charset="windows-1252"',
            "ETag": 'W/"1"',
            "Last-Modified": "Mon, 04 Jan 2027 09:00:00 GMT",
            "Link": '<https://hub.example/>; rel="hub"',
        }
        web.routes["/page"] = lambda _: Reply(body=b"<p>\xfc</p>", headers=headers)
        fetched = _fetched(make(), web.url("/page"))
        assert (fetched.status, fetched.body) == (200, b"<p>\xfc</p>")
        assert (fetched.content_type, fetched.charset) == ("text/html", "windows-1252")
        assert (fetched.etag, fetched.last_modified) == (headers["ETag"], headers["Last-Modified"])
        assert fetched.headers["link"] == headers["Link"]
        assert fetched.url_final == web.url("/page")
        assert fetched.fetched_in > 0

    @pytest.mark.parametrize(
        ("given", "kind", "charset"),
        [
            ("", "", None),
            ("text", "", None),
            (";Charset=utf-8", "", "utf-8"),
            ("\x80/", "\x80/", None),
            ('Text/HTML; charset="', "text/html", None),
            ("text/html; charset*0=a; charset*1=b, text/plain; charset*=utf-8''x", "text/html", None),
            ("text/html; a=b;charset=x;charset=y", "text/html", "x"),
        ],
    )
    def test_odd_content_type(
        self, web: WebServer, make: Make, given: str, kind: str, charset: str | None
    ) -> None:
        """A Content-Type that is missing or garbage doesn't hurt."""
        web.routes["/"] = lambda _: Reply(body=b"x", headers={"Content-Type": given} if given else {})
        fetched = _fetched(make(), web.url())
        assert (fetched.content_type, fetched.charset) == (kind, charset)

    def test_what_is_sent(self, web: WebServer, make: Make) -> None:
        """Requests say who asks, what is welcome and that gzip is; cookies of earlier answers aren't sent."""
        web.routes["/"] = lambda _: Reply(headers={"Set-Cookie": "id=1"})
        fetcher = make(user_agent="Example/1")
        fetcher.fetch(web.url("/?a=b"))
        fetcher.fetch(web.url(), accept="application/rss+xml")
        first, second = web.requests
        assert first.headers == {
            "host": f"127.0.0.1:{web.port}",
            "user-agent": "Example/1",
            "accept": "*/*",
            "accept-encoding": "gzip",
        }
        assert first.query == {"a": "b"}
        assert second.headers["accept"] == "application/rss+xml"
        assert "cookie" not in second.headers

    def test_gzip(self, web: WebServer, make: Make) -> None:
        """A compressed document is unfolded."""
        packed = gzip.compress(b"text" * 1_000)
        web.routes["/"] = lambda _: Reply(
            body=[packed[:50], packed[50:]], headers={"Content-Encoding": "gzip"}
        )
        assert _fetched(make(), web.url()).body == b"text" * 1_000

    def test_one_connection(self, web: WebServer, make: Make) -> None:
        """A connection is kept for what is asked next, whatever the answers were."""
        packed = gzip.compress(b"text")
        web.routes = {
            "/plain": lambda _: b"text",
            "/parts": lambda _: Reply(body=[b"te", b"xt"]),
            "/gzip": lambda _: Reply(body=[packed], headers={"Content-Encoding": "gzip"}),
            "/moved": _redirect("/plain"),
            "/same": lambda _: Reply(304),
        }
        fetcher = make(robots=True)
        for path in ("/plain", "/parts", "/gzip", "/moved"):
            assert _fetched(fetcher, web.url(path)).body == b"text"
        fetcher.fetch(web.url("/same"), etag='"1"')
        with pytest.raises(FetchRefused):
            fetcher.fetch(web.url("/absent"))
        assert web.connections == 1


class TestConditional:
    """Asking only for what changed."""

    def test_etag(self, web: WebServer, make: Make) -> None:
        """An ETag is sent back as it came, and an unchanged document isn't sent again."""

        def feed(request: Request) -> Reply:
            same = request.headers.get("if-none-match") == '"one"'
            return Reply(304) if same else Reply(body=b"feed", headers={"ETag": '"one"'})

        web.routes["/feed"] = feed
        fetcher = make()
        first = _fetched(fetcher, web.url("/feed"))
        again = fetcher.fetch(web.url("/feed"), etag=first.etag)
        assert isinstance(again, NotModified)
        assert again.etag == '"one"'
        assert _fetched(fetcher, web.url("/feed")).body == b"feed"

    def test_last_modified(self, web: WebServer, make: Make) -> None:
        """A date does as well, and a 304 may bring newer validators."""
        date = "Mon, 04 Jan 2027 09:00:00 GMT"
        web.routes["/"] = lambda _: Reply(304, headers={"ETag": '"new"'})
        answer = make().fetch(web.url(), last_modified=date)
        assert isinstance(answer, NotModified)
        assert (answer.etag, answer.last_modified) == ('"new"', date)
        assert web.requests[0].headers["if-modified-since"] == date

    def test_unasked(self, web: WebServer, make: Make) -> None:
        """A 304 to an unconditional request is no document."""
        web.routes["/"] = lambda _: Reply(304)
        with pytest.raises(FetchRefused, match="answered with 304"):
            make().fetch(web.url())

    def test_unusable_validator(self, web: WebServer, make: Make) -> None:
        """A stored ETag that can't be a header's value is left out."""
        web.routes["/"] = lambda _: b"x"
        make().fetch(web.url(), etag='"a"\r\nX-Injected: yes')
        assert "if-none-match" not in web.requests[0].headers
        assert "x-injected" not in web.requests[0].headers


class TestRedirects:
    """Following, but not for ever and not to anywhere."""

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_followed(self, web: WebServer, make: Make, status: int) -> None:
        """Every redirect is followed, relative ones too, with what the first request said."""
        web.routes = {"/old/a": _redirect("../new?x=ü#part", status), "/new": lambda _: b"here"}
        fetched = make().fetch(web.url("/old/a"), accept="text/html")
        assert isinstance(fetched, Fetched)
        assert fetched.url_final == web.url("/new?x=%C3%BC")
        assert web.requests[-1].headers["accept"] == "text/html"

    def test_circle(self, web: WebServer, make: Make) -> None:
        """A circle is recognised when it closes."""
        web.routes = {"/a": _redirect("/b"), "/b": _redirect("/a#again")}
        with pytest.raises(FetchRefused, match="/a redirects in a circle"):
            make().fetch(web.url("/a"))
        assert sum(web.counts.values()) == 2

    def test_too_many(self, web: WebServer, make: Make) -> None:
        """Five are followed, a sixth isn't."""
        for number in range(6):
            web.routes[f"/{number}"] = _redirect(f"/{number + 1}")
        web.routes["/6"] = lambda _: b"here"
        assert _fetched(make(), web.url("/1")).body == b"here"
        with pytest.raises(FetchRefused, match="one redirect more than the 5"):
            make().fetch(web.url("/0"))

    @pytest.mark.parametrize(
        "to",
        ["file:///etc/passwd", "javascript:alert(1)", "http://u:hunter2@127.0.0.1/", "http://[::1", "//:1:2"],
    )
    def test_to_nowhere(self, web: WebServer, make: Make, to: str) -> None:
        """A redirect to what isn't fetched is refused, and names the server that sent it."""
        web.routes["/"] = _redirect(to)
        with pytest.raises(FetchRefused, match=f"^http://127.0.0.1:{web.port}/ redirects") as caught:
            make().fetch(web.url())
        assert "hunter2" not in str(caught.value)

    def test_without_location(self, web: WebServer, make: Make) -> None:
        """A redirect that doesn't say where to is a refusal like another."""
        web.routes["/"] = lambda _: Reply(302)
        with pytest.raises(FetchRefused, match="answered with 302"):
            make().fetch(web.url())


class TestStatuses:
    """Which answers may pass, and which won't."""

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451])
    def test_refused(self, web: WebServer, make: Make, status: int) -> None:
        """An answer of 4xx stays until something is changed; the message shows no query."""
        web.routes["/"] = lambda _: Reply(status, body=b"x" * 100_000)
        with pytest.raises(FetchRefused, match=f"/ was answered with {status}\\.$") as caught:
            make().fetch(web.url("/?key=hunter2"))
        assert "hunter2" not in str(caught.value)

    @pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
    def test_may_pass(self, web: WebServer, make: Make, status: int) -> None:
        """An answer of 5xx, or one that says "not now", may pass."""
        web.routes["/"] = lambda _: Reply(status)
        with pytest.raises(FetchFailed, match=f"answered with {status}"):
            make().fetch(web.url())

    @pytest.mark.parametrize("status", [429, 503])
    def test_later(self, web: WebServer, make: Make, status: int) -> None:
        """A server that says when to come again is heard."""
        web.routes["/"] = lambda _: Reply(status, headers={"Retry-After": "90"})
        with pytest.raises(FetchLater, match="asked again in 90 s") as caught:
            make().fetch(web.url())
        assert caught.value.after == timedelta(seconds=90)


class TestHostile:
    """Servers that hang, flood and break off."""

    @pytest.mark.timeout(60)
    def test_dripping_body(self, web: WebServer, make: Make) -> None:
        """A body that comes byte by byte, each well in time, is cut by the total."""

        def drip() -> Iterator[bytes]:
            while True:
                yield b"x"
                web.wait(0.02)

        web.routes["/"] = lambda _: Reply(body=drip())
        with pytest.raises(FetchFailed, match=r"took longer than 0\.5 s"):
            make(seconds=0.5).fetch(web.url())

    @pytest.mark.timeout(60)
    def test_dripping_headers(self, web: WebServer, make: Make) -> None:
        """So are headers without an end."""

        def drip() -> Iterator[bytes]:
            yield b"HTTP/1.1 200 OK\r\n"
            while True:
                yield b"X: 1\r\n"
                web.wait(0.02)

        web.routes["/"] = lambda _: Raw(drip())
        with pytest.raises(FetchFailed, match=r"took longer than 0\.5 s"):
            make(seconds=0.5).fetch(web.url())

    def test_slow_redirects(self, web: WebServer, make: Make) -> None:
        """Redirects share one total."""

        def slow(request: Request) -> Reply:
            web.wait(0.2)
            return Reply(302, headers={"Location": f"{request.path}x"})

        web.routes["*"] = slow
        with pytest.raises(FetchFailed, match=r"took longer than 0\.5 s"):
            make(seconds=0.5, redirects=100).fetch(web.url("/x"))

    def test_huge(self, web: WebServer, make: Make) -> None:
        """A body without an end is cut at the limit."""

        def flood() -> Iterator[bytes]:
            while True:
                yield bytes(100_000)

        web.routes["/"] = lambda _: Reply(body=flood())
        with pytest.raises(FetchRefused, match="larger than 1,000,000 bytes"):
            make(bytes=1_000_000).fetch(web.url())

    def test_bomb(self, web: WebServer, make: Make) -> None:
        """The limit is of what a body unfolds to."""
        bomb = gzip.compress(bytes(50_000_000))
        web.routes["/"] = lambda _: Reply(body=bomb, headers={"Content-Encoding": "gzip"})
        with pytest.raises(FetchRefused, match="larger than 1,000,000 bytes"):
            make(bytes=1_000_000).fetch(web.url())

    def test_exactly_the_limit(self, web: WebServer, make: Make) -> None:
        """A body of just the limit is taken."""
        web.routes["/"] = lambda _: bytes(1_000)
        assert len(_fetched(make(bytes=1_000), web.url()).body) == 1_000

    def test_reset(self, web: WebServer, make: Make) -> None:
        """A connection that is torn down, or ends too early, may be better next time."""
        short = [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", b"short"]
        web.routes = {
            "/reset": lambda _: Reset(),
            "/short": lambda _: Raw(short),
            "/empty": lambda _: Raw([]),
        }
        fetcher = make()
        for path in web.routes:
            with pytest.raises(FetchFailed, match=f"{path} (broke|gave|couldn't)"):
                fetcher.fetch(web.url(path))

    @pytest.mark.parametrize(
        "answer",
        [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", bytes(200_000)],
    )
    def test_not_http(self, web: WebServer, make: Make, answer: bytes) -> None:
        """Something else than HTTP is said to be so, on one line."""
        web.routes["/"] = lambda _: Raw([answer])
        with pytest.raises(FetchFailed, match="isn't HTTP") as caught:
            make().fetch(web.url())
        assert str(caught.value).isprintable()

    def test_anything(self, web: WebServer, make: Make) -> None:
        """Whatever a server says is a document or one of our errors, with one line of a message."""
        draw = Random(1)  # noqa: S311  # the same odd answers each time
        fetcher = make(seconds=5, bytes=1_000)
        for _ in range(300):
            fields = b"".join(draw.sample(ODD_FIELDS, draw.randint(0, 3)))
            answer = draw.choice(ODD_STARTS) + fields + b"\r\n" + draw.choice(ODD_BODIES)
            web.routes["/"] = lambda _, answer=answer: Raw([answer])
            try:
                fetcher.fetch(web.url(), etag='"1"')
            except FetchError as error:
                assert str(error).isprintable()  # noqa: PT017  # most answers are errors, but not all

    def test_nobody_there(self, make: Make) -> None:
        """A closed port is a failure that may pass."""
        with WebServer() as gone:
            url = gone.url()
        with pytest.raises(FetchFailed, match=r"couldn't be connected to: .*refused"):
            make().fetch(url)


class TestAtOnce:
    """Many threads, one fetcher."""

    @pytest.mark.timeout(120)
    def test_per_host(self, web: WebServer, make: Make) -> None:
        """Thirty-two threads reach one host four at a time: no more, and no fewer."""
        four = Barrier(4)

        def together(_: Request) -> bytes:
            four.wait(60)
            return b"x"

        web.routes["/"] = together
        fetcher = make(seconds=60)
        with ThreadPoolExecutor(32) as threads:
            for done in [threads.submit(fetcher.fetch, web.url()) for _ in range(64)]:
                done.result()
        assert web.highest == 4
        assert web.counts["/"] == 64

    @pytest.mark.timeout(120)
    def test_hosts_apart(self, web: WebServer, make: Make) -> None:
        """A host whose turns are all taken keeps nobody from another host."""
        release = Event()

        def hang(_: Request) -> bytes:
            release.wait(60)
            return b"x"

        web.routes["/"] = hang
        fetcher = make(per_host=1, seconds=60)
        with WebServer({"/": lambda _: b"other"}) as other, ThreadPoolExecutor(8) as threads:
            hanging = [threads.submit(fetcher.fetch, web.url()) for _ in range(8)]
            try:
                assert _fetched(fetcher, other.url()).body == b"other"
            finally:
                release.set()
            for done in hanging:
                done.result()

    def test_turns_are_given_back(self, web: WebServer, make: Make) -> None:
        """Fetches that fail give back their turn, connection or not."""
        web.routes = {"/reset": lambda _: Reset(), "/": lambda _: b"x"}
        fetcher = make(per_host=1)
        for _ in range(3):
            with pytest.raises(FetchFailed):
                fetcher.fetch(web.url("/reset"))
        assert _fetched(fetcher, web.url()).body == b"x"


class TestForms:
    """Sending a form, as to a WebSub hub."""

    def test_sent(self, web: WebServer, make: Make) -> None:
        """The fields arrive, and any answer is returned, its body cut."""
        web.routes["/hub"] = lambda _: Reply(403, body=b"n" * 100_000, headers={"Content-Type": "text/plain"})
        response = make(robots=True).post_form(web.url("/hub"), {"hub.mode": "subscribe", "hub.topic": "ä&="})
        (request,) = web.requests
        assert (request.method, request.form) == ("POST", {"hub.mode": "subscribe", "hub.topic": "ä&="})
        assert request.headers["content-type"] == "application/x-www-form-urlencoded"
        assert (response.status, response.body) == (403, b"n" * 65_536)
        assert response.headers["content-type"] == "text/plain"

    def test_answer_in_an_encoding(self, web: WebServer, make: Make) -> None:
        """What was accepted isn't failed for the form in which the server says so."""
        web.routes["/"] = lambda _: Reply(202, body=b"ok", headers={"Content-Encoding": "br"})
        response = make().post_form(web.url(), {"a": "b"})
        assert (response.status, response.body) == (202, b"ok")
        assert web.requests[0].headers["accept-encoding"] == "identity"

    @pytest.mark.parametrize("status", [307, 308])
    def test_redirected(self, web: WebServer, make: Make, status: int) -> None:
        """The redirects that mean the same request again are followed with the form."""
        web.routes = {"/old": _redirect("/new", status), "/new": lambda _: Reply(202)}
        response = make().post_form(web.url("/old"), {"a": "b"})
        assert (response.status, response.url_final) == (202, web.url("/new"))
        assert (web.requests[-1].method, web.requests[-1].form) == ("POST", {"a": "b"})

    @pytest.mark.parametrize("status", [301, 302, 303])
    def test_other_redirects(self, web: WebServer, make: Make, status: int) -> None:
        """Other redirects are answers."""
        web.routes = {"/old": _redirect("/new", status)}
        response = make().post_form(web.url("/old"), {"a": "b"})
        assert (response.status, response.headers["location"]) == (status, "/new")

    def test_circle(self, web: WebServer, make: Make) -> None:
        """A circle ends here too."""
        web.routes = {"/a": _redirect("/b", 307), "/b": _redirect("/a", 308)}
        with pytest.raises(FetchRefused, match="in a circle"):
            make().post_form(web.url("/a"), {})
