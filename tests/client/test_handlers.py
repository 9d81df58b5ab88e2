"""The client as a function in a cloud: Lambda's signature, an HTTP function, a WSGI application."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import urlopen
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from cronless_dagster.client import handlers
from cronless_dagster.client.errors import ClientError
from cronless_dagster.client.handlers import CallsFailed, http_handler, lambda_handler, wsgi_app
from tests.client.support import ENVIRONMENT, serving, text_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOW = datetime(2026, 12, 1, 9, 0, 20, tzinfo=UTC)
SPREAD = '[[check]]\nname = "garbage-collect"\nspread_minutes = 4\n'


@pytest.fixture
def deploy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a function find its configuration and its secrets, and stop its clock at nine."""
    monkeypatch.setattr(handlers, "now", lambda: NOW)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)

    def deployed(targets: dict[str, str], checks: str = SPREAD, **more: str) -> None:
        file = tmp_path / "checks.toml"
        file.write_text(text_of(targets, checks, retries="most = 0", **more))
        monkeypatch.setenv("CRONLESS_CLIENT_CONFIG", str(file))

    return deployed


def context(seconds: float) -> Any:
    """What Lambda says of the time that is left."""
    return SimpleNamespace(get_remaining_time_in_millis=lambda: int(seconds * 1_000))


@pytest.mark.parametrize(
    ("event", "ids"),
    [
        ({}, "range=0-3"),
        (None, "range=0-3"),
        ({"time": "2026-12-01T09:00:00Z"}, "range=0-3"),
        ({"time": "2026-12-01T08:59:07Z", "detail-type": "Scheduled Event"}, "range=c-f"),
    ],
)
def test_an_event_says_its_minute(deploy: Callable[..., None], event: object, ids: str) -> None:
    """The minute that the event was planned for, else the clock's: so each share of a spread has its turn."""
    with serving() as eu:
        deploy({"eu": eu.url})
        summary = lambda_handler(event, context(60))
    assert eu.paths == [f"/made-up-path-of-tests/checks/garbage-collect?{ids}"]
    assert (summary["answered"], summary["acted"], summary["failures"]) == (1, 1, [])
    json.dumps(summary)


@pytest.mark.parametrize(
    "time", ["soon", 5, "2026-12-01T09:00", "2020-01-01T00:00:00Z", "2199-01-01T00:00:00Z"]
)
def test_an_event_of_another_time_is_refused(deploy: Callable[..., None], time: object) -> None:
    """A time that can't be read or is far away is a mistake in the schedule's input, not a minute."""
    deploy({"eu": "http://127.0.0.1:9"})
    with pytest.raises(ClientError):
        lambda_handler({"time": time}, context(60))


def test_what_no_target_answered_fails_the_function(deploy: Callable[..., None]) -> None:
    """Lambda counts the error; its message says what failed and holds no secret."""
    with serving(lambda request: request.reply(404, b"Not Found")) as eu:
        deploy({"eu": eu.url})
        with pytest.raises(CallsFailed) as caught:
            lambda_handler({}, context(60))
    said = json.loads(str(caught.value))
    assert (said["lost"], said["failures"][0]["status"]) == (1, 404)
    assert "made-up" not in str(caught.value)


def test_one_answer_is_enough(deploy: Callable[..., None]) -> None:
    """A region that is away is in the summary, and no error while another answers."""
    with serving() as eu:
        deploy({"eu": eu.url, "us": "http://127.0.0.1:9"})
        summary = lambda_handler({}, context(60))
    assert (summary["answered"], summary["failed"], summary["lost"]) == (1, 1, 0)


def test_the_functions_own_time_is_kept(deploy: Callable[..., None]) -> None:
    """It ends with what it knows before the platform ends it."""
    end = Event()
    with serving(lambda _: end.wait(30)) as eu:
        deploy({"eu": eu.url})
        with pytest.raises(CallsFailed) as caught:
            lambda_handler({}, context(1.4))
        end.set()
    assert json.loads(str(caught.value))["seconds"] < 5  # of the thirty that the server takes


def test_each_invocation_is_a_log_line(deploy: Callable[..., None], caplog: pytest.LogCaptureFixture) -> None:
    """One object, by a stable event name, as a warning where calls failed."""
    with serving() as eu, caplog.at_level("INFO"):
        deploy({"eu": eu.url, "us": "http://127.0.0.1:9"})
        lambda_handler({}, None)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert json.loads(record.getMessage())["event"] == "client.called"
    assert "made-up" not in record.getMessage()


def test_an_http_function(deploy: Callable[..., None]) -> None:
    """200 where each group was answered; the minute is the one that Google's scheduler says it planned."""
    planned = (NOW - timedelta(minutes=1)).isoformat()
    with serving() as eu:
        deploy({"eu": eu.url})
        body, status, headers = http_handler(
            SimpleNamespace(headers={"X-CloudScheduler-ScheduleTime": planned})
        )
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body)["minute"] == "2026-12-01T08:59:00Z"


def asked(url: str) -> tuple[int, dict[str, Any]]:
    """Make a request and return its status and JSON."""
    try:
        with urlopen(url) as response:  # noqa: S310 - on loopback
            return response.status, json.load(response)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - wsgiref's name
        """Say nothing."""


def test_a_wsgi_server(deploy: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Over HTTP: 200 for answered, 502 for lost, 500 for a secret that is missing."""
    with serving() as eu, make_server("127.0.0.1", 0, wsgi_app, handler_class=Quiet) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        deploy({"eu": eu.url})
        assert asked(url)[0] == 200
        deploy({"eu": "http://127.0.0.1:9"})
        status, said = asked(url)
        assert (status, said["lost"]) == (502, 1)
        monkeypatch.delenv("CRONLESS_CLIENT_KEY")
        status, said = asked(url)
        assert status == 500
        assert "CRONLESS_CLIENT_KEY" in said["error"]
        server.shutdown()
