"""The shared fixtures keep their promises: fresh databases and brokers, a virtual clock, no process left."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pika
import psutil
import pytest
from sqlalchemy import create_engine, text

from cronless_dagster.rabbitmq import private_files
from cronless_dagster.store.clock import current_time
from tests.brokers import fresh_broker, need_rabbitmq
from tests.conftest import VIRTUAL_NOW
from tests.processes import Spawner

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from cronless_dagster.rabbitmq.address import Broker

DETACH = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, flush=True)
"""


def _has_our_schema(url: str) -> bool:
    made = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with made.connect() as connection:
        found = connection.scalar(text("SELECT to_regclass('cronless.scheduled_job')"))
    made.dispose()
    return found is not None


def test_databases_are_fresh_and_apart(
    new_database: Callable[..., str], pg_url: str, empty_pg_url: str
) -> None:
    """Each is another one; only the empty one lacks our schema."""
    more = new_database()
    assert len({more, pg_url, empty_pg_url}) == 3
    assert _has_our_schema(more)
    assert _has_our_schema(pg_url)
    assert not _has_our_schema(empty_pg_url)


def test_a_virtual_clock_stands_still(virtual_engine: Engine) -> None:
    """It says what it was set to, in every transaction."""
    for _ in range(2):
        with virtual_engine.begin() as connection:
            assert current_time(connection) == VIRTUAL_NOW


def test_a_spawned_process_ends_with_all_it_started() -> None:
    """A grandchild in a session of its own, whose parent is gone, is found and killed too."""
    spawner = Spawner()
    process = spawner(sys.executable, "-c", DETACH, stdout=subprocess.PIPE)
    assert process.stdout is not None
    grandchild = psutil.Process(int(process.stdout.readline()))
    process.wait(timeout=60)
    assert grandchild in spawner.alive()
    spawner.kill_all()
    assert not spawner.alive()
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE


def test_what_a_test_made_on_the_broker_goes_with_it(broker: Broker) -> None:
    """Queues and exchanges of its prefix are deleted, and nobody else's."""
    with closing(pika.BlockingConnection(broker.parameters())) as connection:
        with fresh_broker(broker.url) as made:
            for name in (made.prefix, broker.prefix):
                channel = connection.channel()
                channel.queue_declare(f"{name}.queue", durable=True)
                channel.exchange_declare(f"{name}.exchange")
        assert _exists(connection, "queue", f"{broker.prefix}.queue")
        assert _exists(connection, "exchange", f"{broker.prefix}.exchange")
        assert not _exists(connection, "queue", f"{made.prefix}.queue")
        assert not _exists(connection, "exchange", f"{made.prefix}.exchange")


def _exists(connection: pika.BlockingConnection, kind: str, name: str) -> bool:
    try:
        getattr(connection.channel(), f"{kind}_declare")(name, passive=True)
    except pika.exceptions.ChannelClosedByBroker:
        return False
    return True


def test_a_test_with_a_broker_is_marked(request: pytest.FixtureRequest, broker: Broker) -> None:
    """However it asked for it, so that ``-m 'not rabbitmq'`` leaves out all that need one."""
    assert broker.url
    assert request.node.get_closest_marker("rabbitmq")


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_without_rabbitmq_tests_are_skipped_but_not_in_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    """Both say what to install, or which variable gives an address."""
    monkeypatch.setattr(private_files, "_PLACES", ())
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match=r"apt-get install rabbitmq-server.*CRONLESS_TEST_BROKER_URL"):
        need_rabbitmq()
