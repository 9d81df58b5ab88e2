"""Whatever comes instead of an answer is one sentence, and says whether the question may have arrived."""

from __future__ import annotations

import logging
import threading
from base64 import b64encode
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.graphql.client import DagsterGraphQL
from cronless_dagster.graphql.errors import DagsterFailed, DagsterUnavailable
from cronless_dagster.graphql.transport import Transport
from tests.graphql.web import Answer, Web

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.graphql.web import Asked

TOKEN = "made-up-token-1f2e3d"


def transport(address: str, seconds: float = 10.0, token: str | None = TOKEN) -> Transport:
    """Return a transport that is patient for so long."""
    return Transport(address, token=token, connect_seconds=3.0, timeout_seconds=seconds)


def answers(answer: Answer) -> Callable[[Asked], Answer]:
    """Answer so, whatever is asked."""
    return lambda _: answer


class TestNoAnswer:
    """One clear sentence each, without the token."""

    @pytest.mark.parametrize(
        ("answer", "says", "sent"),
        [
            (Answer(b"<html>log in</html>"), "something else than GraphQL (status 200)", False),
            (Answer(b"no", 400), "something else than GraphQL (status 400)", False),
            (Answer([1]), "something else than GraphQL", False),
            (Answer({"detail": "x"}), "something else than GraphQL", False),
            (
                Answer(b"", 302, {"Location": "http://127.0.0.1:1/login"}),
                "sends elsewhere (status 302)",
                False,
            ),
            (Answer(b"no", 401), "refuses this token or its absence (status 401)", False),
            (Answer({"errors": []}, 403), "refuses this token or its absence (status 403)", False),
            (Answer(b"no", 404), "correct the address, a path prefix included", False),
            (Answer(b"no", 500), "fails with status 500", True),
            (Answer({"errors": [{"message": "timeout"}]}, 504), "fails with status 504", True),
            (Answer(b"<html>bad gateway</html>", 502), "fails with status 502", True),
            (Answer({"data": {"version": "1"}}, cut=5), "broke off its answer (RemoteProtocolError)", True),
        ],
        ids=lambda value: str(value.status) if isinstance(value, Answer) else None,
    )
    def test_what_comes_instead(self, web: Web, answer: Answer, says: str, *, sent: bool) -> None:
        """Pages of proxies, refusals, failures and halves: what it is, and what to do."""
        web.answers = answers(answer)
        with pytest.raises(DagsterUnavailable) as caught:
            transport(web.address).ask("{ version }", {})
        assert says in str(caught.value)
        assert caught.value.sent is sent
        assert f"{web.address}/graphql" in str(caught.value)
        assert TOKEN not in str(caught.value)
        assert len(web.asked) == 1

    def test_nobody_listens(self, web: Web) -> None:
        """A connection that is refused brought no question anywhere."""
        with Web() as gone:
            address = gone.address
        with pytest.raises(DagsterUnavailable, match="can't be reached \\(ConnectError\\)") as caught:
            transport(address).ask("{ version }", {})
        assert not caught.value.sent

    def test_no_answer_in_time(self, web: Web) -> None:
        """A question that was sent may have been read."""
        end = threading.Event()

        def late(_: Asked) -> Answer:
            end.wait(30)
            return Answer({"data": {}})

        web.answers = late
        with pytest.raises(DagsterUnavailable, match="gives no answer in time") as caught:
            transport(web.address, seconds=0.2).ask("{ version }", {})
        end.set()
        assert caught.value.sent

    def test_too_large_an_answer(self, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
        """It ends before the memory does."""
        monkeypatch.setattr("cronless_dagster.graphql.transport._MOST_BYTES", 10)
        with pytest.raises(DagsterUnavailable, match="answers with more than"):
            transport(web.address).ask("{ version }", {})

    @pytest.mark.parametrize(
        ("answer", "says"),
        [
            (Answer({"errors": [{"message": "Cannot query\nfield"}]}, 400), "error: Cannot query"),
            (Answer({"data": None, "errors": [{"message": "x" * 400}]}), "xxx..."),
            (
                Answer({"data": None, "errors": [{"message": "its code server is gone"}]}, 500),
                "server is gone",
            ),
            (Answer({"data": None}), "says no more"),
            (Answer({"errors": "odd"}), "says no more"),
        ],
    )
    def test_dagsters_own_errors(self, web: Web, answer: Answer, says: str) -> None:
        """An error in the answer is Dagster's word, on one line."""
        web.answers = answers(answer)
        with pytest.raises(DagsterFailed) as caught:
            transport(web.address).ask("{ version }", {})
        assert says in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        "url", ["", "127.0.0.1:3000", "ftp://host", "http://", "http://[::1", "http://h:port"]
    )
    def test_no_web_address(self, url: str) -> None:
        """Said at once, not at the first tick."""
        with pytest.raises(DagsterUnavailable, match="is no web address"):
            DagsterGraphQL(url)


class TestQuestion:
    """Where a question goes, and what goes along."""

    @pytest.mark.parametrize(
        ("suffix", "path"),
        [
            ("", "/graphql"),
            ("/", "/graphql"),
            ("/dagster", "/dagster/graphql"),
            ("/dagster/", "/dagster/graphql"),
            ("/prod/graphql", "/prod/graphql"),
        ],
    )
    def test_the_address(self, web: Web, suffix: str, path: str) -> None:
        """With a path prefix or without, and as Dagster shows it itself."""
        transport(web.address + suffix).ask("{ version }", {"a": 1})
        [asked] = web.asked
        assert (asked.path, asked.body) == (path, {"query": "{ version }", "variables": {"a": 1}})

    def test_the_token_is_a_bearers(self, web: Web) -> None:
        """For the proxy in front of Dagster's own web server."""
        transport(web.address).ask("{ version }", {})
        assert web.asked[0].headers["authorization"] == f"Bearer {TOKEN}"
        assert "dagster-cloud-api-token" not in web.asked[0].headers

    def test_the_token_of_dagster_plus(self) -> None:
        """It goes into the one header that is read there."""
        headers = transport("https://acme.dagster.cloud/prod")._client.headers
        assert headers["Dagster-Cloud-Api-Token"] == TOKEN
        assert "Authorization" not in headers
        other = transport("https://dagster.cloud.example")._client.headers
        assert "Dagster-Cloud-Api-Token" not in other

    def test_no_token(self, web: Web) -> None:
        """Nothing is sent that nobody gave."""
        transport(web.address, token=None).ask("{ version }", {})
        assert "authorization" not in web.asked[0].headers

    def test_a_login_in_the_address_stays_out_of_messages(
        self, web: Web, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It is a secret like any other; a program that logs what httpx says logs no login."""
        web.answers = answers(Answer(b"no", 500))
        with caplog.at_level(logging.INFO), pytest.raises(DagsterUnavailable) as caught:
            transport(web.address.replace("//", "//user:hid%40den@"), token=None).ask("{ version }", {})
        assert web.asked[0].headers["authorization"] == f"Basic {b64encode(b'user:hid@den').decode()}"
        assert "/graphql" in caplog.text
        assert "hid" not in caplog.text
        assert "user:" not in caplog.text
        assert "den" not in str(caught.value)
        assert "user" not in str(caught.value)
