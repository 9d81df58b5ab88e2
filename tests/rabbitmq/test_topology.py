"""Queues and exchanges on a real broker: declared as often as one likes, never changed, never deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pika
import pytest

from cronless_dagster.rabbitmq import DEAD, topology
from cronless_dagster.rabbitmq.errors import BrokerError, BrokerRefused, BrokerUnavailable, TopologyMismatch
from cronless_dagster.rabbitmq.topology import QueueDepth, declare, depths, queue_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

    from cronless_dagster.rabbitmq.address import Broker
    from cronless_dagster.rabbitmq.private import PrivateBroker

QUORUM = {"x-queue-type": "quorum"}
EMPTY = QueueDepth(messages=0, consumers=0)


@pytest.fixture
def connection(broker: Broker) -> Iterator[BlockingConnection]:
    """A connection to the test's broker."""
    opened = pika.BlockingConnection(broker.parameters())
    yield opened
    if opened.is_open:
        opened.close()


@pytest.fixture
def channel(connection: BlockingConnection) -> BlockingChannel:
    """A channel that refuses to publish what nobody gets."""
    opened = connection.channel()
    opened.confirm_delivery()
    return opened


def _publish(channel: BlockingChannel, exchange: str, key: str, body: bytes = b"{}") -> None:
    channel.basic_publish(exchange, key, body, pika.BasicProperties(delivery_mode=2), mandatory=True)


class TestNames:
    """What everything is called."""

    def test_names_begin_with_the_prefix(self) -> None:
        """So that several installations can share a broker."""
        assert queue_name("staging", "email_digest") == "staging.email_digest"
        assert topology.exchange_name("staging") == "staging.jobs"
        assert topology.dead_letter_exchange("staging") == "staging.dlx"
        assert topology.dead_letter_queue("staging") == "staging.dead"

    def test_no_job_type_takes_the_dead_letters_queue(self, channel: BlockingChannel, broker: Broker) -> None:
        """Its workers would find letters there, and nothing is declared on the way to the refusal."""
        for refused in (
            lambda: queue_name("cronless", "dead"),
            lambda: declare(channel, broker.prefix, ["sync", "dead"]),
            lambda: depths(channel.connection, broker.prefix, ["dead"]),
        ):
            with pytest.raises(BrokerError, match="rename the job type"):
                refused()
        assert depths(channel.connection, broker.prefix, ["sync"]) == {}

    def test_job_types_may_be_called_like_an_exchange(self, channel: BlockingChannel, broker: Broker) -> None:
        """Queues and exchanges have names of their own."""
        declare(channel, broker.prefix, ["jobs", "dlx"])
        for job_type in ("jobs", "dlx"):
            _publish(channel, topology.exchange_name(broker.prefix), job_type)
        found = depths(channel.connection, broker.prefix, ["jobs", "dlx"])
        assert found == {"jobs": QueueDepth(1, 0), "dlx": QueueDepth(1, 0), DEAD: EMPTY}


class TestDeclaring:
    """Each connect declares everything."""

    def test_a_message_reaches_its_types_queue_and_no_other(
        self, channel: BlockingChannel, broker: Broker
    ) -> None:
        """The routing key is the job type."""
        declare(channel, broker.prefix, ["sync", "digest"])
        _publish(channel, topology.exchange_name(broker.prefix), "sync", b"first")
        body = channel.basic_get(queue_name(broker.prefix, "sync"), auto_ack=True)[2]
        assert body == b"first"
        assert channel.basic_get(queue_name(broker.prefix, "digest"))[0] is None
        with pytest.raises(pika.exceptions.UnroutableError):
            _publish(channel, topology.exchange_name(broker.prefix), "other")

    def test_dead_letters_are_kept(self, channel: BlockingChannel, broker: Broker) -> None:
        """Whatever their routing key was."""
        declare(channel, broker.prefix, [])
        for key in ("", "sync"):
            _publish(channel, topology.dead_letter_exchange(broker.prefix), key)
        assert depths(channel.connection, broker.prefix, []) == {DEAD: QueueDepth(messages=2, consumers=0)}

    def test_declaring_again_changes_nothing(self, channel: BlockingChannel, broker: Broker) -> None:
        """Nor does declaring other job types: what waits, waits on."""
        declare(channel, broker.prefix, ["sync"])
        _publish(channel, topology.exchange_name(broker.prefix), "sync")
        for job_types in (["sync"], ["sync", "digest"], ["digest"], []):
            declare(channel, broker.prefix, job_types)
        found = depths(channel.connection, broker.prefix, ["sync", "digest"])
        assert found == {"sync": QueueDepth(1, 0), "digest": EMPTY, DEAD: EMPTY}

    def test_queues_are_quorum_queues_without_other_arguments(
        self, channel: BlockingChannel, broker: Broker
    ) -> None:
        """An equal declaration is accepted, so nothing else was given."""
        declare(channel, broker.prefix, ["sync"])
        for name in ("sync", DEAD):
            channel.queue_declare(f"{broker.prefix}.{name}", durable=True, arguments=QUORUM)

    @pytest.mark.parametrize("arguments", [None, {"x-queue-type": "classic"}])
    def test_a_classic_queue_is_used_as_it_is(
        self, channel: BlockingChannel, broker: Broker, arguments: dict[str, Any] | None
    ) -> None:
        """Somebody may have reasons for it, and its messages are kept."""
        name = queue_name(broker.prefix, "sync")
        channel.queue_declare(name, durable=True, arguments=arguments)
        _publish(channel, "", name)
        declare(channel, broker.prefix, ["sync"])
        _publish(channel, topology.exchange_name(broker.prefix), "sync")
        assert depths(channel.connection, broker.prefix, ["sync"])["sync"] == QueueDepth(2, 0)


class TestMismatches:
    """What differs is named, and left alone."""

    @pytest.mark.parametrize(
        ("properties", "difference"),
        [
            ({"durable": False}, "'durable'"),
            ({"durable": True, "auto_delete": True}, "'auto_delete'"),
            ({"durable": True, "arguments": QUORUM | {"x-delivery-limit": 3}}, "'x-delivery-limit'"),
            ({"durable": True, "arguments": QUORUM | {"x-max-length": 3}}, "'x-max-length'.*'3'"),
            ({"durable": True, "arguments": {"x-max-length": 3}}, "'x-max-length'.*'3'"),
            ({"durable": True, "arguments": {"x-message-ttl": 60_000}}, "'x-message-ttl'"),
            ({"durable": True, "arguments": {"x-queue-type": "stream"}}, "'x-queue-type'.*'stream'"),
        ],
        ids=["transient", "auto_delete", "delivery-limit", "quorum-max", "classic-max", "ttl", "stream"],
    )
    @pytest.mark.parametrize("key", ["sync", DEAD])
    def test_another_queue_is_refused(
        self, channel: BlockingChannel, broker: Broker, properties: dict[str, Any], difference: str, key: str
    ) -> None:
        """A job type's as well as that of the dead letters; its messages are still there."""
        name = f"{broker.prefix}.{key}"
        channel.queue_declare(name, **properties)
        _publish(channel, "", name)
        with pytest.raises(
            TopologyMismatch, match=rf"queue '{name}' exists .*{difference}.*nothing was"
        ) as caught:
            declare(channel, broker.prefix, ["sync"])
        assert "\n" not in str(caught.value)
        assert channel.is_open
        found = channel.queue_declare(name, **properties).method
        assert found.message_count == 1 or "stream" in difference  # a stream counts late

    def test_a_queue_that_another_connection_has_for_itself(
        self, channel: BlockingChannel, broker: Broker
    ) -> None:
        """Nobody else can use it."""
        other = pika.BlockingConnection(broker.parameters())
        other.channel().queue_declare(queue_name(broker.prefix, "sync"), exclusive=True)
        with pytest.raises(TopologyMismatch, match="exclusive"):
            declare(channel, broker.prefix, ["sync"])
        with pytest.raises(BrokerRefused, match="exclusive"):
            depths(channel.connection, broker.prefix, ["sync"])
        other.close()

    @pytest.mark.parametrize(
        ("exchange", "properties", "difference"),
        [
            ("jobs", {"exchange_type": "fanout", "durable": True}, "'type'.*'fanout'"),
            ("jobs", {"exchange_type": "direct", "durable": False}, "'durable'"),
            ("dlx", {"exchange_type": "topic", "durable": True}, "'type'.*'topic'"),
            ("dlx", {"exchange_type": "fanout", "durable": True, "internal": True}, "'internal'"),
        ],
        ids=["fanout", "transient", "topic", "internal"],
    )
    def test_another_exchange_is_refused(
        self,
        channel: BlockingChannel,
        broker: Broker,
        exchange: str,
        properties: dict[str, Any],
        difference: str,
    ) -> None:
        """It would route elsewhere, or be gone after a restart."""
        name = f"{broker.prefix}.{exchange}"
        channel.exchange_declare(name, **properties)
        with pytest.raises(TopologyMismatch, match=rf"exchange '{name}' exists .*{difference}.*nothing was"):
            declare(channel, broker.prefix, ["sync"])
        channel.exchange_declare(name, **properties)


class TestDepths:
    """How full the queues are."""

    def test_only_what_exists_is_answered(self, connection: BlockingConnection, broker: Broker) -> None:
        """And asking makes nothing."""
        assert depths(connection, broker.prefix, ["sync", "digest"]) == {}
        declare(connection.channel(), broker.prefix, ["sync"])
        assert depths(connection, broker.prefix, ["a", "sync", "b"]) == {"sync": EMPTY, DEAD: EMPTY}

    def test_consumers_are_counted_and_what_they_hold_is_not(
        self, connection: BlockingConnection, channel: BlockingChannel, broker: Broker
    ) -> None:
        """So an empty queue with a consumer may still have work in hand."""
        declare(channel, broker.prefix, ["sync"])
        for _ in range(3):
            _publish(channel, topology.exchange_name(broker.prefix), "sync")
        channel.basic_qos(prefetch_count=2)
        held: list[bytes] = []
        channel.basic_consume(
            queue_name(broker.prefix, "sync"), lambda *delivered: held.append(delivered[3]), auto_ack=False
        )
        while len(held) < 2:
            connection.process_data_events(time_limit=1)
        assert depths(connection, broker.prefix, ["sync"])["sync"] == QueueDepth(messages=1, consumers=1)


@pytest.mark.parametrize(
    "ask",
    [
        lambda channel, prefix: declare(channel, prefix, ["sync"]),
        lambda channel, prefix: depths(channel.connection, prefix, ["sync"]),
    ],
    ids=["declare", "depths"],
)
def test_a_lost_connection_may_pass(
    channel: BlockingChannel, broker: Broker, ask: Callable[[BlockingChannel, str], object]
) -> None:
    """Which is another thing than a refusal."""
    channel.connection.close()
    with pytest.raises(BrokerUnavailable, match="lost"):
        ask(channel, broker.prefix)


def test_a_user_without_permission_is_told_so(own_broker: PrivateBroker, broker: Broker) -> None:
    """By name of what it may not declare."""
    own_broker.control("add_user", "reader", "s3cr3t")
    own_broker.control("set_permissions", "reader", "^$", "^$", ".*")
    restricted = replace(broker, url=own_broker.url.replace("guest:guest@", "reader:s3cr3t@"))
    connection = pika.BlockingConnection(restricted.parameters())
    with pytest.raises(
        BrokerRefused, match=rf"'{broker.prefix}\.jobs' can't be declared by this user"
    ) as caught:
        declare(connection.channel(), broker.prefix, ["sync"])
    assert "s3cr3t" not in str(caught.value)
    assert depths(connection, broker.prefix, ["sync"]) == {}
    connection.close()
