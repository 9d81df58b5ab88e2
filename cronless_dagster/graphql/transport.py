"""Questions over HTTP: one POST each, and a sentence for whatever comes instead of an answer."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NoReturn

import httpx

from cronless_dagster.graphql.errors import DagsterFailed, DagsterUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from httpx import Response

_MOST_BYTES = 32 * 1024 * 1024
# Below the five seconds after which the web server ends an idle connection: a question that meets the end is lost,
# and whether it was answered stays open.
_IDLE_SECONDS = 2.0
# What a connection reports before any question was sent over it.
_UNSENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
# Dagster's answers have these, errors in GraphQL among them.
_DAGSTERS = (200, 400, 500)
_CLOUD = ".dagster.cloud"


class Transport:
    """Asks one web server, from any number of threads.

    Args:
        url: The web server's address, with its path prefix if it has one; "/graphql" is added where it is missing.
        token: Sent as `Dagster-Cloud-Api-Token` to hosts of dagster.cloud, which read no other header, and as
            `Authorization: Bearer` to any other, for the proxy in front: Dagster's own web server reads none.
        connect_seconds: How long a connection may take.
        timeout_seconds: How long an answer may take, from the first byte sent to the last one read.

    Raises:
        DagsterUnavailable: `url` is no web address.
    """

    def __init__(
        self, url: str, *, token: str | None, connect_seconds: float, timeout_seconds: float
    ) -> None:
        try:
            address = httpx.URL(url.rstrip("/"))
        except httpx.InvalidURL:
            address = httpx.URL("")
        if address.scheme not in ("http", "https") or not address.host:
            raise DagsterUnavailable(
                "the address of Dagster's web server is no web address: give one such as http://127.0.0.1:3000.",
                sent=False,
            )
        if not address.path.endswith("/graphql"):
            address = address.copy_with(path=f"{address.path.rstrip('/')}/graphql")
        # A login in the address goes along with each question, and into no message: httpx logs where it asks.
        login = (address.username, address.password) if address.userinfo else None
        self._url = address.copy_with(username=None, password=None)
        self._shown = str(self._url.copy_with(query=None))
        self._seconds = timeout_seconds
        headers = {"Accept": "application/json"}
        if token is not None and address.host.endswith(_CLOUD):
            headers["Dagster-Cloud-Api-Token"] = token
        elif token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self._client = httpx.Client(
            auth=login,
            headers=headers,
            timeout=httpx.Timeout(timeout_seconds, connect=connect_seconds),
            limits=httpx.Limits(keepalive_expiry=_IDLE_SECONDS),
        )

    def close(self) -> None:
        """End the connections."""
        self._client.close()

    def ask(self, query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Ask a question; returns the answer's data.

        Raises:
            DagsterUnavailable: There is no answer of Dagster's.
            DagsterFailed: Dagster answers that the question failed.
        """
        deadline = time.monotonic() + self._seconds
        try:
            asked = {"query": query, "variables": dict(variables)}
            with self._client.stream("POST", self._url, json=asked) as response:
                body = self._read(response, deadline)
        except httpx.TimeoutException as error:
            self._away("gives no answer in time", sent=not isinstance(error, _UNSENT), error=error)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            sent = not isinstance(error, _UNSENT)
            self._away("broke off its answer" if sent else "can't be reached", sent=sent, error=error)
        return self._data(response, body)

    def _read(self, response: Response, deadline: float) -> bytes:
        parts, size = [], 0
        for part in response.iter_bytes():
            size += len(part)
            if size > _MOST_BYTES:
                self._away(f"answers with more than {_MOST_BYTES >> 20} MiB", sent=True)
            if time.monotonic() > deadline:
                self._away("gives no answer in time", sent=True)
            parts.append(part)
        return b"".join(parts)

    def _data(self, response: Response, body: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        # Whatever else comes is somebody else's, such as a gateway's that waits no longer.
        ours = isinstance(answer, dict) and ("data" in answer or "errors" in answer)
        if not ours or response.status_code not in _DAGSTERS:
            self._no_answer(response)
        errors, data = answer.get("errors"), answer.get("data")
        if errors or not isinstance(data, dict):
            raise DagsterFailed(f"Dagster's web server answers with an error: {_first(errors)}")
        return data

    def _no_answer(self, response: Response) -> NoReturn:
        status = response.status_code
        if status in (401, 403):
            self._away(f"refuses this token or its absence (status {status}): correct it", sent=False)
        if status == 404:
            self._away(
                "has nothing there (status 404): correct the address, a path prefix included", sent=False
            )
        if response.is_redirect:
            # A login page, or http for https: what a question sent on would do there nobody knows.
            self._away(f"sends elsewhere (status {status}): give the address itself, and a token", sent=False)
        if status >= 500:
            self._away(f"fails with status {status}: see its log, or that of the proxy before it", sent=True)
        self._away(
            f"answers with something else than GraphQL (status {status}): correct the address, or log in by a"
            " token if that is a proxy's page",
            sent=False,
        )

    def _away(self, what: str, *, sent: bool, error: Exception | None = None) -> NoReturn:
        kind = "" if error is None else f" ({type(error).__name__})"
        raise DagsterUnavailable(f"Dagster's web server at {self._shown} {what}{kind}.", sent=sent) from None


def _first(errors: object) -> str:
    match errors:
        case [{"message": str(message)}, *_] if message.strip():
            return one_line(message)
        case _:
            return "it says no more; see its log."


def one_line(text: str) -> str:
    """Return the first line of what Dagster says, short enough for a message."""
    line = (text.strip().splitlines() or [""])[0]
    return line if len(line) <= 300 else f"{line[:297]}..."
