"""What the demo says while it runs, of both routes and of the queues."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cronless_dagster.demo import queues
from cronless_dagster.demo.queues import QueueWatcher
from cronless_dagster.demo.watch import Totals, Watcher
from cronless_dagster.engine.job_types import JobType, JobTypes
from cronless_dagster.engine.local import tick_and_run
from cronless_dagster.rabbitmq.address import Broker
from cronless_dagster.rabbitmq.publisher import Publisher
from tests.conftest import VIRTUAL_NOW
from tests.dagster.support import add_due
from tests.rabbitmq.support import some
from tests.worker.support import Site, until, working

if TYPE_CHECKING:
    import pytest
    from sqlalchemy import Engine


def succeed(_job: object) -> None:
    """Succeed."""


TYPES = JobTypes(
    (JobType(name="digest", handler=succeed), JobType(name="refresh", handler=succeed, route="queue"))
)


def test_claims_of_both_routes_are_news_once(engine: Engine, broker: Broker) -> None:
    """A claim for the workers is said when it is made and when its last job is done, with who ran it."""
    watcher = Watcher(engine, VIRTUAL_NOW, "http://ui/")
    add_due(engine, "digest", 3)
    add_due(engine, "refresh", 2)
    tick_and_run(engine, TYPES, queue=partial(Publisher, broker))
    said = [line.split("  ", 1)[1] for line in watcher.news()]
    assert [line.split(", due")[0] for line in said[:2]] == ["claimed     3 digest", "queued      2 refresh"]
    assert said[2].startswith("ran         3 digest: 3 done, 0 failed  http://ui/")
    assert list(watcher.news()) == []
    with working(Site(engine, broker), JobTypes((TYPES["refresh"],))):
        news: list[str] = []
        until(lambda: news.extend(watcher.news()) or news, "the claim is closed")
    assert [line.split("  ", 1)[1] for line in news] == [
        "ran         2 refresh: 2 done, 0 failed  by the workers"
    ]
    assert watcher.totals() == [Totals("digest", "local", 3, 3), Totals("refresh", "queue", 2, 2)]


def test_queues_are_news_when_more_or_less_waits(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line at first, then only for a change, and once a minute."""
    monkeypatch.setattr(queues, "_LOOK_SECONDS", 0.0)
    watcher = QueueWatcher(broker, ["research"])
    assert [line.split("  ")[1:] for line in watcher.news()] == [["queues", "none yet"]]
    with Publisher(broker) as publisher:
        publisher.declare(["research"])
        publisher.publish("research", some(3))
    assert [line.split("  ")[2] for line in watcher.news()] == ["waiting: research 3; workers: 0"]
    assert list(watcher.news()) == []
    monkeypatch.setattr(queues, "_SAY_SECONDS", 0.0)
    assert len(list(watcher.news())) == 1


def test_a_broker_that_is_away_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo goes on, and the line has no password in it."""
    monkeypatch.setattr(queues, "_LOOK_SECONDS", 0.0)
    watcher = QueueWatcher(Broker("amqp://app:honey@127.0.0.1:1/%2F"), ["research"])
    [line] = watcher.news()
    assert "can't be used at the moment" in line
    assert "honey" not in line
    assert list(watcher.news()) == []
