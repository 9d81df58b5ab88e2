"""A connection to a target: its certificate is verified, no proxy but the configured one, a limit on each exchange."""

from __future__ import annotations

import socket
import ssl
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Event, Timer
from time import monotonic
from typing import TYPE_CHECKING

from .errors import ClientError, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .addresses import Target
    from .config import Sending

LARGEST_ANSWER = 1_048_576
"""Bytes of an answer's body that are read at most."""


class NoAnswer(Exception):
    """A try ended without an answer; the text says why in a few words.

    Attributes:
        again: Whether it may be different the next time.
    """

    def __init__(self, why: str, *, again: bool = True) -> None:
        super().__init__(why)
        self.again = again


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: its HTTP status, its headers of interest, its body."""

    status: int
    retry_after: str | None
    body: bytes


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Return how targets are verified: by the system's authorities, or by those of a file (PEM).

    Raises:
        ClientError: The file can't be read, or holds no certificate.
    """
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ClientError(
            f"ca_file in [sending] is {shown(ca_file)}, which can't be used ({error.strerror or error}): name a file"
            " of certificates (PEM)"
        ) from error


class Connection:
    """A connection that is kept between calls, and made anew after any trouble. For one thread."""

    def __init__(self, target: Target, sending: Sending, context: ssl.SSLContext | None) -> None:
        """Connect to nothing yet; the context is for targets of https."""
        self._target, self._sending, self._context = target, sending, context
        self._open: HTTPConnection | None = None

    def post(self, path: str, headers: Mapping[str, str], seconds: float) -> Answer:
        """Make one call and return its answer, a redirect included: it isn't followed, it could lead anywhere.

        Args:
            path: With the secret in it.
            headers: Who calls.
            seconds: The time for all of it; a server that sends a byte now and then doesn't stretch it.

        Raises:
            NoAnswer: There is none.
        """
        until = monotonic() + seconds
        try:
            if self._open is not None:
                # Servers close connections that were idle, and it shows only now. A check may be asked twice.
                with suppress(NoAnswer):
                    return self._exchange(self._open, path, headers, until)
            self._open = self._connection()
            return self._exchange(self._open, path, headers, until)
        except TimeoutError as error:
            raise NoAnswer(f"no answer within {seconds:.3g} s") from error

    def close(self) -> None:
        """Close it, if it is open."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _connection(self) -> HTTPConnection:
        target, proxy = self._target, self._sending.proxy
        if not target.secure:
            return HTTPConnection(target.host, target.port)
        host, port = proxy or (target.host, target.port)
        made = HTTPSConnection(host, port, context=self._context)
        if proxy is not None:
            made.set_tunnel(target.host, target.port)
        return made

    def _exchange(self, used: HTTPConnection, path: str, headers: Mapping[str, str], until: float) -> Answer:
        with _cut_off(used, max(0.001, until - monotonic())) as too_long:
            try:
                return _exchanged(used, path, headers)
            except (OSError, HTTPException, ValueError) as error:
                self.close()
                if too_long.is_set() or isinstance(error, TimeoutError):
                    raise TimeoutError from error
                raise _reason(error) from error
            finally:
                if used.sock is None:
                    # The server said that this was its last answer here.
                    self._open = None


@contextmanager
def _cut_off(used: HTTPConnection, seconds: float) -> Iterator[Event]:
    """Cut a connection off after some time; the sockets' own time limit begins anew with each byte."""
    too_long = Event()

    def cut() -> None:
        too_long.set()
        if used.sock is not None:
            with suppress(OSError):
                # Not an SSL socket's own, which would only pretend to the thread that reads from it.
                socket.socket.shutdown(used.sock, socket.SHUT_RDWR)

    used.timeout = seconds
    if used.sock is not None:
        used.sock.settimeout(seconds)
    timer = Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield too_long
    finally:
        timer.cancel()


def _exchanged(used: HTTPConnection, path: str, headers: Mapping[str, str]) -> Answer:
    used.request(
        "POST", path, body=b"", headers={**headers, "User-Agent": "cronless-client", "Accept": "*/*"}
    )
    with used.getresponse() as response:
        body = response.read(LARGEST_ANSWER + 1)
        if len(body) > LARGEST_ANSWER:
            used.close()
        elif (missing := response.length or 0) > 0:
            # `read` with a limit doesn't complain of a body that ends too early.
            raise HTTPException(f"the answer ended {missing} bytes too early")
        return Answer(response.status, response.headers.get("Retry-After"), body)


def _reason(error: Exception) -> NoAnswer:
    if isinstance(error, ssl.SSLCertVerificationError):
        return NoAnswer(f"its certificate isn't trusted ({error.verify_message})", again=False)
    if not isinstance(error, OSError):
        return NoAnswer(f"what it sent is no whole HTTP ({type(error).__name__})")
    for kind, why in _REASONS.items():
        if isinstance(error, kind):
            return NoAnswer(why)
    return NoAnswer(f"it can't be reached ({error.strerror or error})")


_REASONS: dict[type[OSError], str] = {
    ssl.SSLEOFError: "it hung up",
    ssl.SSLError: "it speaks no TLS that this client takes",
    socket.gaierror: "its name can't be resolved",
    ConnectionRefusedError: "nobody listens there",
    ConnectionError: "it hung up",
}
