"""The whole round: subscribe, tick, run, the hub's GET, and the renewal before the lease ends."""

from __future__ import annotations

import logging
from datetime import UTC, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from sqlalchemy import text

from cronless_dagster.assets.fetching import Fetcher
from cronless_dagster.assets.webhooks import unsubscribe
from cronless_dagster.engine.errors import PermanentFailure
from cronless_dagster.engine.handlers import HandlerContext
from cronless_dagster.store import jobs
from cronless_dagster.store.executions import Start, start_jobs
from tests.assets.web import Reply
from tests.assets.webhooks.hub import TOPIC

if TYPE_CHECKING:
    from tests.assets.webhooks.conftest import Site

DAYS_10 = timedelta(days=10)


class TestGranted:
    """A hub that keeps its word."""

    def test_a_renewal_follows_before_the_lease_ends(self, site: Site) -> None:
        """A request, the hub's GET later, and at eight of ten days the next request."""
        subscription_id = site.subscribe()
        [report] = site.tick()
        assert (report.succeeded, report.failed) == (1, 0)
        [asked] = site.hub.requests
        secret = asked.pop("hub.secret")
        assert 40 <= len(secret) < 200
        assert asked == {
            "hub.mode": "subscribe",
            "hub.topic": TOPIC,
            "hub.callback": f"{site.public_url}/websub/{subscription_id}",
            "hub.lease_seconds": "864000",
        }
        assert site.subscription().status == "requested"
        assert site.due_in() == timedelta(minutes=10)

        answer = site.hub.verify()
        assert (answer.status_code, answer.content) == (200, b"made-up-challenge")
        assert answer.headers["content-type"].startswith("text/plain")
        assert answer.headers["x-content-type-options"] == "nosniff"
        row = site.subscription()
        assert (row.status, row.lease_seconds, row.renewals) == ("active", 864_000, 1)
        assert row.expires_at == site.now + DAYS_10
        assert site.due_in() == timedelta(days=8)

        assert site.tick(days=7.9) == []
        [report] = site.tick(days=0.1)
        assert report.succeeded == 1
        assert len(site.hub.requests) == 2
        assert site.hub.requests[1]["hub.secret"] == secret
        assert site.subscription().expires_at == site.now + timedelta(days=2)
        site.hub.verify()
        assert site.subscription().expires_at == site.now + DAYS_10
        assert site.due_in() == timedelta(days=8)

    def test_a_hub_that_verifies_within_the_request_wins(self, site: Site) -> None:
        """Its GET comes before its 202, while the job runs: the granted instant stays."""
        site.hub.at_once = True
        site.hub.lease = "3600"
        site.subscribe()
        [report] = site.tick()
        assert report.succeeded == 1
        assert [one.status_code for one in site.hub.verdicts] == [200]
        assert site.subscription().status == "active"
        assert site.due_in() == timedelta(hours=1) * 0.8

    def test_a_request_whose_answer_got_lost_is_no_failure(self, site: Site) -> None:
        """The hub verified, then its own answer was an error."""
        site.hub.at_once = True
        site.hub.answer = Reply(500)
        site.subscribe()
        [report] = site.tick()
        assert (report.succeeded, report.failed) == (1, 0)
        assert site.due_in() == timedelta(days=8)

    def test_a_manual_run_renews_too(self, site: Site) -> None:
        """`cronless trigger` asks beside the plan, and the hub's grant moves the plan."""
        site.subscribe()
        site.tick()
        site.hub.verify()
        with site.engine.begin() as connection:
            jobs.trigger(connection, site.subscription().job_id)
        site.tick(days=1)
        assert len(site.hub.requests) == 2
        assert site.due_in() == timedelta(days=7)
        site.hub.verify()
        assert site.due_in() == timedelta(days=8)

    def test_a_hub_may_have_moved(self, site: Site) -> None:
        """308 is followed with the same form (WebSub 5.1)."""
        site.subscribe(hub=site.hub.server.url("/moved"))
        site.tick()
        assert [one["hub.mode"] for one in site.hub.requests] == ["subscribe"]
        assert site.subscription().status == "requested"

    def test_the_queue_route_does_the_same(self, site: Site) -> None:
        """As a worker calls the handler: started by itself, without Dagster."""
        site.options = {"route": "queue"}
        site.hub.at_once = True
        site.subscribe()
        job_type = site.job_types()["webhook_renewal"]
        from cronless_dagster.engine.handlers import trier
        from cronless_dagster.engine.tick import tick

        [claim] = tick(site.engine, site.job_types(), now=site.now, route="local").hand_over
        with site.engine.begin() as connection:
            job_id = site.subscription().job_id
            start = Start(job_id, claim.claim_id, uuid4())
            [job] = start_jobs(connection, [start], 60, site.now, job_type.retry).jobs
        context = HandlerContext(site.engine, logging.getLogger("test"), site.now)
        tried = trier(job_type, context)(job)
        assert tried.outcome.kind == "success"
        row = site.job()
        assert row is not None
        assert (row.status, row.next_run_at) == ("RUNNING", site.now + timedelta(days=8))


class TestUnanswered:
    """A hub that takes requests and says no more."""

    def test_it_is_asked_again_and_then_counts_as_failing(self, site: Site) -> None:
        """Every ten minutes; after three in vain each further one is a failure, by the retry policy."""
        site.options = {"patience": 2}
        site.subscribe()
        assert [site.tick()[0].succeeded, site.tick(minutes=10)[0].succeeded] == [1, 1]
        [report] = site.tick(minutes=10)
        assert report.recorded == {"failure": 1}
        assert "the hub took 3 requests and verified none" in site.error()
        assert str(site.subscription().id) not in site.error()
        assert len(site.hub.requests) == 3
        assert timedelta(minutes=1) <= site.due_in() <= timedelta(minutes=1.1)
        site.hub.verify()
        assert site.due_in() == timedelta(days=8)
        assert site.subscription().unanswered == 0

    def test_the_lease_it_gave_lasts_while_it_is_asked(self, site: Site) -> None:
        """A renewal that isn't verified changes nothing (WebSub 5.1)."""
        site.subscribe()
        site.tick()
        site.hub.verify()
        site.tick(days=8)
        assert site.subscription().expires_at == site.now + timedelta(days=2)
        assert site.hub.deliver(b"still wanted").status_code == 202
        assert [one.body for one in site.hear(1)] == [b"still wanted"]


class TestRefused:
    """Requests that a hub doesn't take."""

    @pytest.mark.parametrize("status", [400, 403, 404, 410, 422])
    def test_a_refusal_of_this_very_request_is_not_repeated(self, site: Site, status: int) -> None:
        """Its reason is shown, cut and plain; the fallback asks again a day later."""
        site.hub.answer = Reply(status, b"topic\x00 is\nnot mine " + b"x" * 100_000)
        site.subscribe()
        [report] = site.tick()
        assert report.recorded == {"exhausted": 1}
        assert f"the hub answered {status} to subscribe (topic? is not mine xxx" in site.error()
        assert len(site.error()) < 500
        assert site.subscription().error == site.error()
        assert site.due_in() == timedelta(hours=24)

    @pytest.mark.parametrize("status", [429, 503])
    def test_a_hub_that_asks_for_patience_is_given_it(self, site: Site, status: int) -> None:
        """Retry-After in seconds."""
        site.hub.answer = Reply(status, headers={"Retry-After": "1800"})
        site.subscribe()
        [report] = site.tick()
        assert report.recorded == {"failure": 1}
        assert site.due_in() == timedelta(minutes=30)

    @pytest.mark.parametrize("status", [429, 500, 503, 302])
    def test_a_hub_in_trouble_is_tried_again_soon(self, site: Site, status: int) -> None:
        """By the retry policy: twelve times, in minutes first."""
        site.hub.answer = Reply(status)
        site.subscribe()
        [report] = site.tick()
        assert report.recorded == {"failure": 1}
        assert f"the hub answered {status} to subscribe (no reason given)" in site.error()
        assert timedelta(minutes=1) <= site.due_in() <= timedelta(minutes=1.1)

    def test_a_hub_that_takes_too_long_is_tried_again(self, site: Site) -> None:
        """The fetcher's time limit."""
        site.fetcher = Fetcher(type(site.fetcher.limits)(networks=("127.0.0.0/8",), seconds=0.3))
        site.hub.seconds = 30
        site.subscribe()
        with site.fetcher:
            [report] = site.tick()
        assert report.recorded == {"failure": 1}
        assert site.error().startswith("FetchFailed: ")

    def test_a_hub_at_a_private_address_is_refused(self, site: Site) -> None:
        """Tenants name hubs, so nothing is sent into one's own network unless it is allowed."""
        site.subscribe()
        with Fetcher() as site.fetcher:
            [report] = site.tick()
        assert report.recorded == {"exhausted": 1}
        assert site.hub.requests == []

    def test_a_denial_pauses_the_job_until_a_person_resumes_it(self, site: Site) -> None:
        """Only a person can tell whether to ask again; then it is asked again."""
        site.subscribe()
        site.tick()
        site.hub.verify()
        assert site.hub.deny("your plan ended").status_code == 200
        assert site.hub.deny("your plan ended").status_code == 200
        row, job = site.subscription(), site.job()
        assert (row.status, row.error, row.expires_at) == ("denied", "your plan ended", None)
        assert job is not None
        assert job.pause_reason == "the hub denied the subscription: your plan ended"
        assert site.hub.verify().status_code == 404
        assert site.hub.deliver(b"late").status_code == 410
        assert site.tick(days=9) == []
        with site.engine.begin() as connection:
            jobs.resume(connection, job.id)
        [report] = site.tick(minutes=1)
        assert report.succeeded == 1
        assert site.hub.verify().status_code == 200
        assert site.subscription().status == "active"

    def test_a_denial_within_the_request_fails_the_job_at_once(self, site: Site) -> None:
        """And the pause survives the finish."""
        site.subscribe()

        def deny_first(request: object) -> Reply:
            site.hub.requests.append(request.form)  # type: ignore[attr-defined]
            site.hub.deny()
            return Reply(202)

        site.hub.server.routes["/hub"] = deny_first
        [report] = site.tick()
        assert report.recorded == {"exhausted": 1}
        assert site.error() == "the hub denied the subscription: not for you"
        job = site.job()
        assert job is not None
        assert job.paused_at is not None

    @pytest.mark.parametrize(
        "payload", [{}, {"subscription": "x"}, {"subscription": 5}, {"subscription": None}]
    )
    def test_a_payload_without_a_subscription_is_told(self, site: Site, payload: dict[str, object]) -> None:
        """That job alone fails, with what to do."""
        from cronless_dagster.assets.webhooks.renewal import subscription_of

        with pytest.raises(PermanentFailure, match="the payload names no subscription"):
            subscription_of(payload)

    def test_a_subscription_that_is_gone_is_told(self, site: Site) -> None:
        """Its neighbour is renewed."""
        site.subscribe()
        with site.engine.begin() as connection:
            jobs.add(
                connection,
                tenant_id="acme",
                job_type="webhook_renewal",
                schedule="@handler fallback=24h",
                payload={"subscription": str(uuid4())},
            )
        [report] = site.tick()
        assert report.recorded == {"success": 1, "exhausted": 1}
        assert "there is no subscription" in report.failures[0].error


class TestLeaving:
    """Unsubscribing."""

    def leave(self, site: Site) -> None:
        """Unsubscribe from the one topic."""
        with site.engine.begin() as connection:
            unsubscribe(connection, site.subscription().id)

    def test_the_hub_is_told_and_the_job_goes_with_its_word(self, site: Site) -> None:
        """Content is refused from now on; the job is removed once the hub has verified."""
        site.subscribe()
        site.tick()
        site.hub.verify()
        self.leave(site)
        self.leave(site)
        assert site.hub.deliver(b"too late").status_code == 410
        site.tick(minutes=1)
        assert site.hub.requests[-1]["hub.mode"] == "unsubscribe"
        assert "hub.secret" not in site.hub.requests[-1]
        assert site.due_in() == timedelta(minutes=10)
        assert [site.hub.verify().status_code, site.hub.verify().status_code] == [200, 200]
        assert site.subscription().status == "ended"
        assert site.job() is None
        assert site.hub.verify(mode="subscribe").status_code == 404

    def test_a_hub_that_lets_go_within_the_request(self, site: Site) -> None:
        """The job is removed while it runs, and gone when it has finished."""
        site.subscribe()
        site.tick()
        site.hub.verify()
        self.leave(site)
        site.hub.at_once = True
        site.tick(minutes=1)
        assert site.subscription().status == "ended"
        assert site.job() is None

    def test_a_hub_that_never_lets_go_is_left_when_the_lease_ends(self, site: Site) -> None:
        """Asked three times, then not until the lease has run out."""
        site.subscribe()
        site.tick()
        site.hub.verify()
        self.leave(site)
        for _ in range(3):
            site.tick(minutes=10)
        assert [one["hub.mode"] for one in site.hub.requests] == ["subscribe", *["unsubscribe"] * 3]
        assert site.now + site.due_in() == site.subscription().expires_at
        site.tick(days=10)
        assert len(site.hub.requests) == 4
        assert site.subscription().status == "ended"
        assert site.job() is None

    def test_without_a_lease_there_is_nothing_to_tell(self, site: Site) -> None:
        """It ends at once; a late GET of the hub is answered by 404."""
        site.subscribe()
        site.tick()
        self.leave(site)
        assert site.job() is None
        assert site.subscription().status == "ended"
        assert site.hub.verify().status_code == 404

    def test_a_paused_job_leaves_too(self, site: Site) -> None:
        """Leaving is a person's later word."""
        site.subscribe()
        site.tick()
        site.hub.verify()
        with site.engine.begin() as connection:
            jobs.pause(connection, site.subscription().job_id)
        self.leave(site)
        site.tick(minutes=1)
        assert site.hub.requests[-1]["hub.mode"] == "unsubscribe"

    def test_coming_back_asks_anew(self, site: Site) -> None:
        """The same subscription, with a job again."""
        first = site.subscribe()
        site.tick()
        self.leave(site)
        assert site.subscribe() == first
        site.tick(minutes=1)
        site.hub.verify()
        assert site.subscription().status == "active"
        assert site.due_in() == timedelta(days=8)


def test_the_clock_is_the_databases(site: Site) -> None:
    """Nothing here reads another: instants of a virtual clock are all that is stored."""
    site.subscribe()
    site.tick()
    site.hub.verify()
    with site.engine.connect() as connection:
        row = connection.execute(
            text("SELECT created_at, requested_at, verified_at FROM cronless_assets.subscription")
        ).one()
    assert {one.astimezone(UTC) for one in row} == {site.now}
