"""Calls over real sockets: servers that are slow, hang up, redirect, answer halves, or show a wrong certificate."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import time
from contextlib import suppress
from datetime import UTC, datetime
from threading import Barrier, Event, Thread
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.client.calls import calls_of
from cronless_dagster.client.errors import ClientError
from cronless_dagster.client.sending import send
from tests.client.support import WHO, answer, config_of, serving, unused_port

if TYPE_CHECKING:
    from pathlib import Path

    from cronless_dagster.client.config import Config
    from cronless_dagster.client.outcomes import Outcome, Summary
    from tests.client.support import Handler

NINE = datetime(2026, 12, 1, 9, tzinfo=UTC)
SIXTEEN = '[[check]]\nname = "dispatch"\nprefix_length = 1\n'


def sent(config: Config, seconds: float | None = None) -> Summary:
    """Make the calls of a minute."""
    return send(config, WHO, NINE, calls_of(config, NINE), seconds=seconds)


def only(config: Config) -> Outcome:
    """Make a minute's only call."""
    (outcome,) = sent(config).outcomes
    return outcome


def test_a_call_as_the_api_takes_it() -> None:
    """The path, the query and both tokens are where the API looks for them."""
    with serving(lambda request: request.reply(200, answer(request.path, 7))) as eu:
        outcome = only(config_of({"eu": eu.url + "/scheduler"}))
    assert (outcome.answered, outcome.acted, outcome.status, outcome.tries, outcome.problem) == (
        True,
        7,
        200,
        1,
        "",
    )
    assert eu.paths == ["/scheduler/made-up-path-of-tests/checks/dispatch?range=0-f"]
    (headers,) = eu.headers
    assert headers["Authorization"] == "Bearer made-up-token-of-tests"
    assert headers["X-Cronless-Key"] == "made-up-key-of-the-tests"
    assert headers["Content-Length"] == "0"


def test_connections_are_kept() -> None:
    """As many connections as calls at once, not as calls."""
    with serving() as eu:
        summary = sent(config_of({"eu": eu.url}, SIXTEEN, sending="concurrency = 2"))
    assert not summary.failed
    assert len(eu.paths) == 16
    assert eu.connections <= 2


def test_calls_are_made_at_once_for_each_target() -> None:
    """Four calls wait for each other at the server; one that is slow keeps none from the other target."""
    together = Barrier(4, timeout=30)
    end = Event()

    def meet(request: Handler) -> None:
        together.wait()
        request.reply()

    def wait(request: Handler) -> None:
        end.wait(30)

    four = '[[check]]\nname = "dispatch"\ngroups = 4\n'
    with serving(meet) as eu, serving(wait) as us:
        config = config_of({"us": us.url, "eu": eu.url}, four, sending="concurrency = 4")
        summary = sent(config, seconds=2)
        end.set()
    assert {one.call.target for one in summary.failed} == {"us"}
    assert (summary.lost, summary.acted) == ((), 4)


def test_a_connection_that_the_server_closed_is_made_anew() -> None:
    """A kept connection that turns out to be closed costs no try."""

    def close(request: Handler) -> None:
        request.reply()
        request.close_connection = True

    with serving(close) as eu:
        summary = sent(config_of({"eu": eu.url}, SIXTEEN, sending="concurrency = 1", retries="most = 0"))
    assert not summary.failed
    assert {one.tries for one in summary.outcomes} == {1}


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_call_is_made_again(status: int) -> None:
    """Once the server can answer, the call is answered."""
    with serving(lambda request: request.reply(*([status, b"{}"] if len(eu.paths) < 3 else []))) as eu:
        outcome = only(config_of({"eu": eu.url}))
    assert (outcome.answered, outcome.tries, outcome.status) == (True, 3, 200)


@pytest.mark.parametrize("status", [301, 307, 308, 400, 401, 403, 404])
def test_a_call_that_is_wrong_is_made_once(status: int) -> None:
    """What stays wrong isn't tried again, and a redirect isn't followed: the tokens stay here."""
    with (
        serving() as elsewhere,
        serving(
            lambda request: request.reply(status, b"{}", Location=f"{elsewhere.url}/made-up-path-of-tests")
        ) as eu,
    ):
        outcome = only(config_of({"eu": eu.url}))
    assert (outcome.answered, outcome.tries, outcome.status) == (False, 1, status)
    assert len(eu.paths) == 1
    assert elsewhere.paths == []
    assert "made-up" not in outcome.problem


def test_secrets_that_a_server_repeats_are_not_told() -> None:
    """A proxy that shows what it was asked doesn't get the secrets into a log."""
    with serving(
        lambda request: request.reply(
            400, json.dumps({"error": f"{request.path} {request.headers}"}).encode()
        )
    ) as eu:
        outcome = only(config_of({"eu": eu.url}))
    assert "/***/checks/dispatch" in outcome.problem
    assert "made-up" not in outcome.problem


def test_retry_after_is_waited_for() -> None:
    """The second try comes no earlier than the server asked for."""
    at: list[float] = []

    def limit(request: Handler) -> None:
        at.append(time.monotonic())
        request.reply(*([429, b"{}"] if len(at) == 1 else []), Retry_After="1")

    with serving(limit) as eu:
        assert only(config_of({"eu": eu.url})).answered
    assert at[1] - at[0] >= 1


def test_a_wait_beyond_the_minute_is_not_begun() -> None:
    """Who is told to come back in an hour gives up at once, and says what the server said."""
    with serving(
        lambda request: request.reply(503, b'{"error": "the database is away"}', Retry_After="3600")
    ) as eu:
        outcome = only(config_of({"eu": eu.url}))
    assert (outcome.tries, outcome.status, outcome.problem) == (1, 503, "503: the database is away")


def hang_up(request: Handler) -> None:
    """End the connection without a word."""
    request.close_connection = True


def answer_half(request: Handler) -> None:
    """Promise more than is sent."""
    request.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + answer(request.path))


def answer_half_of_a_chunk(request: Handler) -> None:
    """Begin a chunk, and end."""
    request.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc")


def answer_garbage(request: Handler) -> None:
    """Say what is no HTTP."""
    request.raw(b"\x00\xff no HTTP at all\r\n\r\n")


def answer_headers_without_end(request: Handler) -> None:
    """Send more headers than anybody wants."""
    request.raw(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 10_000)


@pytest.mark.parametrize(
    ("respond", "words"),
    [
        (hang_up, "hung up"),
        (answer_half, "no whole HTTP"),
        (answer_half_of_a_chunk, "no whole HTTP"),
        (answer_garbage, "no whole HTTP"),
        (answer_headers_without_end, "no whole HTTP"),
    ],
)
def test_an_answer_that_is_none_is_asked_for_again(respond: object, words: str) -> None:
    """Connections that break are tried again, each try is counted, and the reason is told."""
    with serving(respond) as eu:  # type: ignore[arg-type]
        outcome = only(config_of({"eu": eu.url}))
    assert (outcome.answered, outcome.tries, outcome.status) == (False, 3, None)
    assert words in outcome.problem
    assert len(eu.paths) == 3


def test_a_page_of_somebody_else_is_no_answer() -> None:
    """200 and a web page, however long: not answered, not tried again."""
    with serving(lambda request: request.reply(200, b"<p>log in</p>" * 200_000)) as eu:
        outcome = only(config_of({"eu": eu.url}))
    assert (outcome.answered, outcome.tries, outcome.status) == (False, 1, 200)


def drip(end: Event, request: Handler) -> None:
    """Send a byte now and then, each in time for a time limit that counts from the last."""
    try:
        while not end.wait(0.05):
            request.wfile.write(b"H")
            request.wfile.flush()
    except OSError:
        request.close_connection = True


@pytest.mark.parametrize("slow", ["silent", "drips"])
def test_a_slow_server_is_cut_off(slow: str) -> None:
    """The time limit is one of the whole try: single bytes don't stretch it."""
    end = Event()
    with serving(lambda request: drip(end, request) if slow == "drips" else end.wait(30)) as eu:
        config = config_of(
            {"eu": eu.url}, sending="timeout_seconds = 0.4", retries="most = 1\nbase_seconds = 0"
        )
        outcome = only(config)
        end.set()
    assert (outcome.answered, outcome.tries, outcome.problem) == (False, 2, "no answer within 0.4 s")


def test_the_minutes_time_ends_all() -> None:
    """However many calls wait for a slow server, the summary comes in time and counts them all."""
    end = Event()
    with serving(lambda _: end.wait(30)) as eu:
        summary = sent(config_of({"eu": eu.url}, SIXTEEN, sending="concurrency = 2"), seconds=0.5)
        end.set()
    assert len(summary.failed) == len(summary.lost) == 16
    assert "the minute's time was up" in {one.problem for one in summary.failed}
    assert summary.seconds < 5  # of the thirty that the server takes


def test_a_target_that_nobody_serves() -> None:
    """The other target answers for it: calls failed, and no group is lost."""
    with serving() as eu:
        config = config_of({"eu": eu.url, "us": f"http://127.0.0.1:{unused_port()}"}, SIXTEEN)
        summary = sent(config)
    assert len(summary.failed) == 16
    assert {one.problem for one in summary.failed} == {"nobody listens there"}
    assert summary.lost == ()
    assert summary.as_dict()["failures"][0] == {
        "target": "us",
        "check": "dispatch",
        "prefix": "0",
        "status": None,
        "tries": 3,
        "seconds": pytest.approx(summary.failed[0].seconds, abs=0.001),
        "problem": "nobody listens there",
    }


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens go to the targets that are written down, whatever the environment says."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{unused_port()}")
    with serving() as eu:
        assert only(config_of({"eu": eu.url})).answered


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for `localhost` that signed itself, and its key, in one file."""
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    key, cert = file.with_name("key.pem"), file.with_name("cert.pem")
    subprocess.run(
        ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert),
        check=True, capture_output=True,
    )  # fmt: skip
    file.write_text(cert.read_text() + key.read_text())
    return file


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    """How a server shows that certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def test_a_certificate_that_is_trusted(certificate: Path, tls: ssl.SSLContext) -> None:
    """By an authority of one's own, which the configuration names."""
    with serving(context=tls) as eu:
        config = config_of(
            {"eu": f"https://localhost:{eu.port}"}, SIXTEEN, sending=f'ca_file = "{certificate}"'
        )
        assert not sent(config).failed


@pytest.mark.parametrize(("host", "trusted"), [("localhost", False), ("127.0.0.1", True)])
def test_a_wrong_certificate(host: str, trusted: bool, certificate: Path, tls: ssl.SSLContext) -> None:
    """Signed by nobody who is trusted, or for another name: no token is sent, and it isn't tried again."""
    with serving(context=tls) as eu:
        ca_file = f'ca_file = "{certificate}"' if trusted else ""
        outcome = only(config_of({"eu": f"https://{host}:{eu.port}"}, sending=ca_file))
    assert (outcome.answered, outcome.tries, eu.paths) == (False, 1, [])
    assert "certificate isn't trusted" in outcome.problem


def test_tls_with_who_speaks_none() -> None:
    """A target that speaks plain HTTP where TLS was asked for gets nothing but a greeting."""
    with serving() as eu:
        outcome = only(config_of({"eu": f"https://127.0.0.1:{eu.port}"}))
    assert not outcome.answered
    assert "TLS" in outcome.problem
    assert eu.paths == []


def test_authorities_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file and one without a certificate are refused before anything is sent."""
    (tmp_path / "empty.pem").write_text("nothing\n")
    for name in ("absent.pem", "empty.pem"):
        config = config_of({"eu": "https://eu.example.org"}, sending=f'ca_file = "{tmp_path / name}"')
        with pytest.raises(ClientError, match="ca_file in"):
            sent(config)


def tunnel(listening: socket.socket, heads: list[bytes], port: int) -> None:
    """Serve one CONNECT: note what the client says, and pass the rest to a port of loopback."""
    ours, _ = listening.accept()
    with ours, socket.create_connection(("127.0.0.1", port)) as theirs:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += ours.recv(1)
        heads.append(head)
        ours.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        back = Thread(target=passed_on, args=(theirs, ours), daemon=True)
        back.start()
        passed_on(ours, theirs)
        back.join(30)


def passed_on(source: socket.socket, sink: socket.socket) -> None:
    """Pass bytes on until there are no more."""
    with suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def test_a_proxy_that_is_written_down(certificate: Path, tls: ssl.SSLContext) -> None:
    """The target is reached through it by CONNECT; it learns the name and the port, and no secret."""
    heads: list[bytes] = []
    with serving(context=tls) as eu, socket.create_server(("127.0.0.1", 0)) as proxy:
        Thread(target=tunnel, args=(proxy, heads, eu.port), daemon=True).start()
        through = f'ca_file = "{certificate}"\nproxy = "127.0.0.1:{proxy.getsockname()[1]}"'
        outcome = only(config_of({"eu": f"https://localhost:{eu.port}"}, sending=through))
        port = eu.port
    assert outcome.answered, outcome
    assert heads[0].startswith(f"CONNECT localhost:{port} HTTP/1.".encode())
    assert b"made-up" not in heads[0]


def test_a_proxy_that_refuses() -> None:
    """What the proxy says is told."""
    with serving() as proxy:
        through = f'proxy = "127.0.0.1:{proxy.port}"'
        outcome = only(config_of({"eu": "https://eu.example.org"}, sending=through, retries="most = 0"))
    assert not outcome.answered
    assert "501" in outcome.problem
