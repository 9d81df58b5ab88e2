"""The callback, as hubs and strangers call it over HTTP."""

from __future__ import annotations

import hmac
import logging
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import text

from cronless_dagster.assets.callbacks import callback_app
from cronless_dagster.assets.webhooks import unsubscribe
from cronless_dagster.assets.webhooks.callback import routes
from cronless_dagster.store.database import create_store_engine
from tests.assets.webhooks.hub import TOPIC, served

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cronless_dagster.assets.webhooks.content import Content
    from tests.assets.webhooks.conftest import Site


@pytest.fixture
def leased(site: Site) -> Site:
    """A site whose subscription has its lease of ten days."""
    site.subscribe()
    site.tick()
    site.hub.verify()
    return site


def stored(site: Site) -> list[tuple[bytes, str]]:
    """Return bodies and types of what is stored."""
    with site.engine.connect() as connection:
        rows = connection.execute(
            text("SELECT body, content_type FROM cronless_assets.webhook_content ORDER BY id")
        )
        return [(bytes(row.body), row.content_type) for row in rows]


class TestGet:
    """Verifications, wanted and unwanted."""

    def test_the_challenge_comes_back_byte_by_byte(self, site: Site) -> None:
        """With whatever characters a hub's random strings have."""
        site.subscribe()
        site.tick()
        challenge = "a+b/c==%20 é✓<script>"
        answer = site.hub.verify(challenge=challenge)
        assert answer.content == challenge.encode()
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"

    def test_a_verification_that_comes_twice_is_confirmed_twice(self, leased: Site) -> None:
        """The lease begins anew, the job waits for its renewal."""
        assert leased.hub.verify().status_code == 200
        assert leased.subscription().renewals == 2
        assert leased.due_in() == timedelta(days=8)

    def test_verifications_at_once_are_all_confirmed(self, site: Site) -> None:
        """None waits in a ring with another."""
        site.subscribe()
        site.tick()
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: site.hub.verify().status_code, range(16)))
        assert answers == [200] * 16
        assert site.subscription().renewals == 16

    def test_a_late_verification_still_counts(self, site: Site) -> None:
        """After the check-back has asked again."""
        site.subscribe()
        site.tick()
        site.tick(minutes=10)
        assert site.hub.verify().status_code == 200
        assert site.due_in() == timedelta(days=8)

    @pytest.mark.parametrize(
        "changed",
        [
            {"topic": "https://feeds.example/another.xml"},
            {"topic": TOPIC.upper()},
            {"mode": "unsubscribe"},
            {"mode": "publish"},
            {"lease_seconds": "0"},
            {"lease_seconds": "soon"},
            {"lease_seconds": "-60"},
            {"challenge": ""},
            {"challenge": "x" * 1_001},
        ],
    )
    def test_what_was_not_asked_is_answered_as_an_unknown_id(
        self, leased: Site, changed: dict[str, str]
    ) -> None:
        """By the same 404, byte for byte, and nothing changes."""
        before = leased.subscription()
        wrong = leased.hub.verify(**changed)
        unknown = httpx.get(f"{leased.public_url}/websub/{uuid4()}", params={"hub.mode": "subscribe"})
        nothing = httpx.get(f"{leased.public_url}/websub/nothing")
        assert wrong.status_code == unknown.status_code == nothing.status_code == 404
        assert wrong.content == unknown.content == nothing.content
        assert [*wrong.headers] == [*unknown.headers] == [*nothing.headers]
        assert leased.subscription() == before
        assert leased.due_in() == timedelta(days=8)

    @pytest.mark.parametrize(
        "query", ["", "%ff=%ff", "hub.topic=%00", "hub.mode=subscribe&hub.challenge=%ff%fe", "&" * 60]
    )
    def test_a_strangers_get_is_answered_by_404(self, leased: Site, query: str) -> None:
        """Whatever the bytes."""
        assert httpx.get(f"{leased.callback()}?{query}").status_code == 404
        flood = "&".join("a=1" for _ in range(60))
        assert httpx.get(f"{leased.callback()}?{flood}").status_code == 404

    def test_bytes_that_no_client_sends_are_refused(
        self, leased: Site, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Not percent-encoded, and no UTF-8."""
        parts = urlsplit(leased.callback())
        with socket.create_connection((parts.hostname, parts.port), timeout=60) as connection:
            connection.sendall(
                f"GET {parts.path}?hub.mode=denied&hub.topic=".encode()
                + b"\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n"
            )
            assert connection.recv(100).split()[1] in (b"400", b"404")
        assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []

    def test_a_get_before_anything_was_asked_is_refused(self, site: Site) -> None:
        """The row is there, and the hub wasn't asked yet."""
        site.subscribe()
        fields = {
            "hub.mode": "subscribe",
            "hub.topic": TOPIC,
            "hub.challenge": "abc",
            "hub.lease_seconds": "60",
        }
        assert httpx.get(site.callback(), params=fields).status_code == 404
        assert site.subscription().status == "new"

    @pytest.mark.parametrize(("lease", "days"), [("99999999999999999999", 3_653), ("9" * 4_000, 3_653)])
    def test_a_lease_without_an_end_is_cut(self, site: Site, lease: str, days: int) -> None:
        """At ten years."""
        site.hub.lease = lease
        site.subscribe()
        site.tick()
        assert site.hub.verify().status_code == 200
        assert site.subscription().expires_at == site.now + timedelta(days=days)

    @pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"])
    def test_other_methods_are_refused(self, leased: Site, method: str) -> None:
        """A HEAD too: a GET here isn't safe."""
        answer = httpx.request(method, leased.callback())
        assert answer.status_code == 405
        assert sorted(answer.headers["allow"].split(", ")) == ["GET", "POST"]


class TestPost:
    """Deliveries."""

    @pytest.mark.parametrize("method", ["sha1", "sha256", "sha384", "sha512"])
    def test_signed_content_is_stored_and_told(self, leased: Site, method: str) -> None:
        """As it came, bytes that are no text included."""
        body = b"<feed>\xff\x00made up</feed>"
        assert leased.hub.deliver(body, method=method).status_code == 202
        assert stored(leased) == [(body, "application/atom+xml")]
        [heard] = leased.hear(1)
        assert (heard.body, heard.topic, heard.tenant_id) == (body, TOPIC, "acme")
        assert heard.received_at == leased.now
        assert "made up" not in repr(heard)

    def test_content_that_comes_again_is_kept_once(self, leased: Site) -> None:
        """A hub delivers again what it isn't sure of; it is told once."""
        for body in (b"one", b"one", b"two", b"one"):
            assert leased.hub.deliver(body).status_code == 202
        assert [body for body, _ in stored(leased)] == [b"one", b"two"]
        assert [one.body for one in leased.hear(2)] == [b"one", b"two"]

    @pytest.mark.parametrize(
        "signature",
        [
            "",
            "sha256",
            "sha256=",
            "sha256=00",
            "md5=d41d8cd98f00b204e9800998ecf8427e",
            "plain=x",
            "sha256=\xff",
        ],
    )
    def test_unsigned_content_is_ignored_and_counted(
        self, leased: Site, signature: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """With the answer that a valid one gets."""
        header = {"X-Hub-Signature": signature.encode("latin-1")}
        answer = httpx.post(leased.callback(), content=b"forged", headers=header)  # type: ignore[arg-type]
        valid = leased.hub.deliver(b"true")
        assert (answer.status_code, answer.content, [*answer.headers]) == (
            valid.status_code,
            valid.content,
            [*valid.headers],
        )
        assert [body for body, _ in stored(leased)] == [b"true"]
        assert leased.subscription().ignored == 1
        assert "a delivery of 6 bytes without a valid signature is ignored" in caplog.text
        assert str(leased.subscription().id) not in caplog.text

    def test_content_without_a_signature_is_ignored(self, leased: Site) -> None:
        """No header at all."""
        assert httpx.post(leased.callback(), content=b"forged").status_code == 202
        assert stored(leased) == []

    def test_a_signature_of_another_body_is_none(self, leased: Site) -> None:
        """Replayed with other content."""
        secret = leased.hub.requests[0]["hub.secret"]
        digest = hmac.new(secret.encode(), b"true", "sha256").hexdigest()
        leased.hub.deliver(b"other", **{"X-Hub-Signature": f"sha256={digest}"})
        leased.hub.deliver(b"true", **{"X-Hub-Signature": f"sha256={digest}"})
        assert [body for body, _ in stored(leased)] == [b"true"]

    def test_weak_signatures_can_be_refused(self, leased: Site) -> None:
        """By the application's option."""
        app = callback_app(leased.engine, methods=("sha256",))
        with served(app) as url:
            for asked in leased.hub.requests:
                asked["hub.callback"] = asked["hub.callback"].replace(leased.public_url, url)
            leased.hub.deliver(b"weak", method="sha1")
            leased.hub.deliver(b"strong", method="sha256")
        assert [body for body, _ in stored(leased)] == [b"strong"]

    def test_a_body_that_is_too_large_is_refused(self, leased: Site) -> None:
        """Announced or not."""
        assert leased.hub.deliver(b"x" * 100_000).status_code == 202
        assert leased.hub.deliver(b"x" * 100_001).status_code == 413
        chunks = (b"x" * 10_000 for _ in range(1_000))
        with suppress(httpx.WriteError):  # the server may hang up on what it won't read
            assert httpx.post(leased.callback(), content=chunks).status_code == 413
        assert len(stored(leased)) == 1

    def test_a_hub_that_hangs_up_is_no_fault(self, leased: Site, caplog: pytest.LogCaptureFixture) -> None:
        """Half a body leaves nothing, not even a traceback."""
        parts = urlsplit(leased.callback())
        with socket.create_connection((parts.hostname, parts.port)) as connection:
            connection.sendall(
                f"POST {parts.path} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nhalf".encode()
            )
        assert leased.hub.deliver(b"whole").status_code == 202
        assert [body for body, _ in stored(leased)] == [b"whole"]
        assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []

    def test_content_after_the_lease_is_refused(self, leased: Site) -> None:
        """410 tells the hub to forget the subscription (WebSub 7)."""
        leased.tick(days=10)
        assert leased.hub.deliver(b"late").status_code == 410
        assert stored(leased) == []

    def test_an_unknown_id_is_answered_by_404(self, leased: Site) -> None:
        """Before its body is read."""
        assert httpx.post(f"{leased.public_url}/websub/{uuid4()}", content=b"x").status_code == 404

    def test_a_broken_hook_is_logged_and_hurts_nobody(
        self, leased: Site, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The content is stored; the hub has its answer."""

        def broken(content: Content) -> None:
            leased.heard.append(content)
            raise RuntimeError("made up")

        with served(callback_app(leased.engine, on_content=broken)) as url:
            for asked in leased.hub.requests:
                asked["hub.callback"] = asked["hub.callback"].replace(leased.public_url, url)
            assert leased.hub.deliver(b"one").status_code == 202
            assert leased.hub.deliver(b"two").status_code == 202
            leased.hear(2)
        assert caplog.text.count("which is stored") == 2


class TestApp:
    """The application around it."""

    def test_health_says_that_it_serves(self, site: Site) -> None:
        """For whoever watches the process."""
        assert httpx.get(f"{site.public_url}/healthz").text == "ok\n"

    def test_the_access_log_holds_no_secret(self, leased: Site, caplog: pytest.LogCaptureFixture) -> None:
        """Neither the id, which is a capability, nor a query."""
        with caplog.at_level(logging.INFO):
            leased.hub.verify()
            httpx.get(f"{leased.public_url}/healthz?key=made-up-key")
        assert "GET '/websub' 200" in caplog.text
        assert "GET '/healthz' 200" in caplog.text
        ours = "\n".join(one.getMessage() for one in caplog.records if one.name.startswith("cronless"))
        row = leased.subscription()
        for secret in (str(row.id), row.secret, "made-up-challenge", "made-up-key"):
            assert secret not in ours

    def test_a_database_that_cannot_be_used_is_503(
        self, leased: Site, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Which hubs try again; the log shows no parameters."""
        with leased.engine.begin() as connection:
            connection.execute(text("ALTER TABLE cronless_assets.subscription RENAME TO elsewhere"))
        assert httpx.post(leased.hub.requests[0]["hub.callback"], content=b"x").status_code == 503
        assert "a request could not be answered: the database at" in caplog.text

    def test_routes_of_ones_own_can_be_added(self, assets_engine: Engine) -> None:
        """Beside the websub routes; and these alone fit into another application."""
        from starlette.responses import PlainTextResponse
        from starlette.routing import Route

        app = callback_app(assets_engine, routes=[Route("/mine", lambda _: PlainTextResponse("mine"))])
        with served(app) as url:
            assert httpx.get(f"{url}/mine").text == "mine"
        assert [one.path for one in routes(assets_engine)] == ["/websub/{subscription_id:uuid}"]


def test_the_applications_role_may_do_all_of_it(site: Site, pg_url: str) -> None:
    """Subscribe, verify, deliver and leave with the rights of `cronless_app` alone."""
    owner, site.engine = site.engine, create_store_engine(f"{pg_url}&options=-c%20role%3Dcronless_app")
    with served(callback_app(site.engine)) as site.public_url:
        site.subscribe()
        site.engine, application = owner, site.engine
        site.tick()
        assert site.hub.verify().status_code == 200
        assert site.hub.deliver(b"content").status_code == 202
        assert site.hub.deliver(b"forged", **{"X-Hub-Signature": "sha256=0"}).status_code == 202
        with application.begin() as connection:
            unsubscribe(connection, site.subscription().id)
        site.tick(minutes=1)
        assert site.hub.verify().status_code == 200
    application.dispose()
    assert (site.subscription().status, site.job()) == ("ended", None)
