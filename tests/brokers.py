"""Fixtures that give tests a RabbitMQ: one for the whole run, or one of a test's own that it may kill.

- ``broker``: a ``Broker`` on the run's server with a prefix of the test's own; its queues and exchanges are
  deleted when the test ends
- ``broker_server``: the run's server's address; ``CRONLESS_TEST_BROKER_URL`` gives another than a private one
- ``own_broker``: a running ``PrivateBroker`` of the test's own
- ``broker_directory``: where a test that starts brokers itself may do so

Without RabbitMQ such tests are skipped; in continuous integration (``CI`` is set) they fail.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cronless_dagster.rabbitmq.address import Broker
    from cronless_dagster.rabbitmq.private import PrivateBroker

ADDRESS_VARIABLE = "CRONLESS_TEST_BROKER_URL"
DIRECTORY_VARIABLE = "CRONLESS_TEST_DIRECTORY"
FIXTURES = frozenset({"broker_server", "broker_directory"})
"""Whoever uses one of them, directly or not, is marked ``rabbitmq``."""


def need_rabbitmq() -> None:
    """Without RabbitMQ skip the test, or fail it in continuous integration; one line says what to install."""
    from cronless_dagster.rabbitmq.errors import BrokerMissing
    from cronless_dagster.rabbitmq.private import programs

    try:
        programs()
    except BrokerMissing as missing:
        message = f"{missing} Or set {ADDRESS_VARIABLE} to the address of a broker for tests."
        (pytest.fail if os.environ.get("CI") else pytest.skip)(message)


@contextmanager
def running(directory: Path, *, config: str = "") -> Iterator[PrivateBroker]:
    """Run or join the broker of a directory; ``config`` adds lines to its ``rabbitmq.conf``."""
    from cronless_dagster.rabbitmq.private import PrivateBroker

    need_rabbitmq()
    with PrivateBroker(directory, config=config) as server:
        yield server


@contextmanager
def fresh_broker(url: str) -> Iterator[Broker]:
    """Give a broker with a fresh prefix, and delete the queues and exchanges that have it.

    Known are those that this process declared, passively too; what only another process declared goes with the
    run's private server.
    """
    from cronless_dagster.rabbitmq.address import Broker

    made = Broker(url, prefix=f"test-{uuid.uuid4().hex[:12]}")
    with pytest.MonkeyPatch.context() as patch:
        queues = _recorded(patch, "queue", made.prefix)
        exchanges = _recorded(patch, "exchange", made.prefix)
        try:
            yield made
        finally:
            _delete(made, queues, exchanges)


@pytest.fixture(scope="session")
def broker_server() -> Iterator[str]:
    """Address of the run's broker: the first worker that needs it starts it, the last to leave ends it."""
    given = os.environ.get(ADDRESS_VARIABLE)
    if given:
        yield given
        return
    with running(Path(os.environ[DIRECTORY_VARIABLE]) / "broker") as server:
        yield server.url


@pytest.fixture
def broker(broker_server: str) -> Iterator[Broker]:
    """The run's broker under a prefix of the test's own."""
    with fresh_broker(broker_server) as made:
        yield made


@pytest.fixture
def broker_directory() -> Iterator[Path]:
    """A directory for a ``PrivateBroker`` that the test runs itself; in any case ended and removed."""
    need_rabbitmq()
    directory = Path(tempfile.mkdtemp(prefix="own-broker-", dir=os.environ[DIRECTORY_VARIABLE]))
    yield directory
    stop_brokers(directory)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def own_broker(broker_directory: Path) -> Iterator[PrivateBroker]:
    """A running broker of the test's own, to be stopped, killed, frozen or put under an alarm."""
    with running(broker_directory) as server:
        yield server
        server.kill()


def stop_brokers(directory: Path) -> None:
    """End every broker below a directory whose holders were killed, if its keeper hasn't done so yet."""
    from cronless_dagster.rabbitmq.private import PrivateBroker

    for path in directory.rglob("keeper.pid"):
        PrivateBroker(path.parent).stop()


def _recorded(patch: pytest.MonkeyPatch, kind: str, prefix: str) -> set[str]:
    """Collect the names beginning with a prefix that this process declares or asks for, on any connection."""
    import pika.channel

    names: set[str] = set()
    method = f"{kind}_declare"
    original = getattr(pika.channel.Channel, method)

    def declare(channel: Any, *args: Any, **kwargs: Any) -> Any:
        name = args[0] if args else kwargs[kind]
        if name.startswith(f"{prefix}."):
            names.add(name)
        return original(channel, *args, **kwargs)

    patch.setattr(pika.channel.Channel, method, declare)
    return names


def _delete(broker: Broker, queues: set[str], exchanges: set[str]) -> None:
    import pika

    if not queues | exchanges:
        return
    connection = pika.BlockingConnection(broker.parameters())
    channel = connection.channel()
    for name in queues:
        channel.queue_delete(name)
    for name in exchanges:
        channel.exchange_delete(name)
    with suppress(pika.exceptions.AMQPError):
        connection.close()
