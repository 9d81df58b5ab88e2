"""What goes over the wire: raw bytes to a real uvicorn, and the bytes that come back."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.api.serving import Server, config_of, listen
from tests.api.support import KEY, PATH, TOKEN, api_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_DATE = re.compile(rb"date: [A-Z][a-z]{2}, [^\r]+ GMT\r\n")
THE_404 = (
    b"HTTP/1.1 404 Not Found\r\ndate: (then)\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 9\r\n"
    b"connection: close\r\n\r\nNot Found"
)
RIGHT = f"Authorization: Bearer {TOKEN}\r\nX-Cronless-Key: {KEY}\r\n"
DISPATCH = f"/{PATH}/checks/dispatch"


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    """Serve an API with two checks that find nothing to do; returns where."""
    listening = listen("127.0.0.1", 0)
    server = Server(config_of(api_of(body_bytes=100, calls_per_second=1e6)))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
    thread.start()
    yield listening.getsockname()
    server.should_exit = True
    thread.join(60)
    assert not thread.is_alive()


def said(address: tuple[str, int], request: str | bytes) -> bytes:
    """Send bytes, and return all that comes until the other side closes, the date left out."""
    with closing(socket.create_connection(address, timeout=60)) as connection:
        connection.sendall(request.encode() if isinstance(request, str) else request)
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
    return _DATE.sub(b"date: (then)\r\n", answer)


def request(method: str = "POST", target: str = DISPATCH, headers: str = "", body: str = "") -> str:
    """Return a request's text."""
    return f"{method} {target} HTTP/1.1\r\nHost: example.test\r\n{headers}\r\n{body}"


UNAUTHORISED = {
    "nothing": request("GET", "/"),
    "no tokens": request(),
    "wrong token": request(headers=RIGHT.replace(TOKEN, "wrong")),
    "wrong key": request(headers=RIGHT.replace(KEY, "wrong")),
    "no bearer": request(headers=RIGHT.replace("Bearer", "Basic")),
    "two tokens": request(headers=RIGHT + RIGHT),
    "wrong path": request(target="/wrong/checks/dispatch", headers=RIGHT),
    "unknown check": request(target=f"/{PATH}/checks/nothing", headers=RIGHT),
    "wrong method": request("PUT", headers=RIGHT),
    "get": request("GET", headers=RIGHT),
    "options": request("OPTIONS", headers=RIGHT),
    "options of all": request("OPTIONS", "*", headers=RIGHT),
    "trace": request("TRACE", headers=RIGHT),
    "connect": request("CONNECT", "example.test:443", headers=RIGHT),
    "absolute": request("GET", "http://example.test/", headers=RIGHT),
    "encoded": request(target=f"/{PATH}/checks/dis%2fpatch", headers=RIGHT),
    "no utf-8": request(target="/%ff%fe/checks/dispatch", headers=RIGHT),
    "query alone": request(target="/?prefix=b", headers=RIGHT),
    "a body": request(headers="Content-Length: 3\r\n", body="abc"),
    "a large body": request(headers=RIGHT + "Content-Length: 101\r\n", body="a" * 101),
    "a large body to come": request(headers=RIGHT + "Content-Length: 1000000\r\n"),
    "a large body in chunks": request(
        headers=RIGHT + "Transfer-Encoding: chunked\r\n", body=f"65\r\n{'a' * 101}\r\n0\r\n\r\n"
    ),
    "asks whether to go on": request(headers="Content-Length: 3\r\nExpect: 100-continue\r\n"),
    "websocket": request(
        "GET",
        headers="Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
    ),
    "http/2": request(
        headers="Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n"
    ),
    "keep alive": request(headers="Connection: keep-alive\r\n"),
    "many headers": request(headers="".join(f"X-{n}: {n}\r\n" for n in range(100))),
    "a long token": request(headers=RIGHT.replace(TOKEN, "t" * 10_000)),
    "two requests": request() + request(headers=RIGHT),
}


@pytest.mark.parametrize("sent", UNAUTHORISED.values(), ids=UNAUTHORISED)
def test_whatever_is_not_authorised_gets_the_same_bytes(address: tuple[str, int], sent: str) -> None:
    """Head and body, the date aside; then the connection is closed, with what is left of a body unread."""
    assert said(address, sent) == THE_404


def test_a_head_without_a_body_is_the_same_head(address: tuple[str, int]) -> None:
    """HEAD has no body (RFC 9110, 9.3.2)."""
    assert said(address, request("HEAD", headers=RIGHT)) == THE_404.removesuffix(b"Not Found")


def test_an_older_http_gets_the_same_bytes(address: tuple[str, int]) -> None:
    """Whether its secrets are right or not; h11 writes one header's name in another case for it."""
    answers = {
        said(address, f"{method} {target} HTTP/1.0\r\n{headers}\r\n")
        for method, target, headers in (("GET", "/", ""), ("POST", DISPATCH, ""), ("GET", DISPATCH, RIGHT))
    }
    assert [answer.lower() for answer in answers] == [THE_404.lower()]


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 100_000,
    ],
    ids=["nonsense", "no host", "tls", "long target", "long header"],
)
def test_what_is_no_request_never_comes_to_us(address: tuple[str, int], sent: bytes) -> None:
    """The server says so to everybody alike, whatever secrets it holds."""
    assert said(address, sent).startswith(b"HTTP/1.1 400 ")


def test_a_right_call_is_answered_and_the_connection_kept(address: tuple[str, int]) -> None:
    """Two calls on one connection; the scheme's case doesn't matter."""
    first = request(target=f"{DISPATCH}?prefix=b", headers=RIGHT.replace("Bearer", "bearer"))
    second = request(target=f"{DISPATCH}?range=0-f", headers=RIGHT + "Connection: close\r\n")
    answer = said(address, first + second)
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 2
    assert b"server:" not in answer


def test_an_authorised_body_is_asked_for(address: tuple[str, int]) -> None:
    """Who waits to be told to go on is told."""
    headers = RIGHT + "Content-Length: 3\r\nExpect: 100-continue\r\nConnection: close\r\n"
    answer = said(address, request(target=f"{DISPATCH}?prefix=b", headers=headers, body="abc"))
    assert b"HTTP/1.1 200 OK\r\n" in answer


def test_a_forwarded_address_is_not_believed(address: tuple[str, int]) -> None:
    """Unless a proxy is named; see the command's tests for one that is."""
    answer = said(
        address,
        request(
            target=f"{DISPATCH}?prefix=b",
            headers=RIGHT + "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\nConnection: close\r\n",
        ),
    )
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


def test_idle_connections_outlive_those_of_load_balancers() -> None:
    """Whose usual patience is 60 s: the side that takes connections must not be the first to close them."""
    assert config_of(api_of()).timeout_keep_alive > 60


def test_answers_do_not_wait_for_acknowledgements() -> None:
    """Whatever writes an answer in pieces."""
    with closing(listen("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
        with closing(client), closing(accepted):
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
