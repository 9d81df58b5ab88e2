"""The connection that its thread drives: what it waits for, and how it ends in every state."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from pika.exceptions import ChannelClosedByBroker

from cronless_dagster.rabbitmq.address import Broker
from cronless_dagster.rabbitmq.connection import DrivenConnection
from cronless_dagster.rabbitmq.errors import BrokerUnavailable
from tests.rabbitmq.proxy import Proxy
from tests.rabbitmq.support import nothing_left_open

if TYPE_CHECKING:
    import pika


class Unlimited(Broker):
    """A broker for which pika has no time limits, as while it looks up a name or has a second address to try."""

    def parameters(self) -> pika.URLParameters:
        """As a broker's, without limits."""
        parameters = super().parameters()
        parameters.socket_timeout = parameters.stack_timeout = None
        return parameters


def test_the_opening_ends_in_time_without_pikas_help() -> None:
    """Our own limit ends what pika would wait for, and leaves no socket."""
    with Proxy() as proxy, nothing_left_open():
        broker = Unlimited(f"amqp://guest:guest@127.0.0.1:{proxy.port}", connect_seconds=0.2)
        with pytest.raises(BrokerUnavailable, match=r"no answer within 0\.4 s"):
            DrivenConnection(broker)
        proxy.hang_up()


def test_a_failure_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """What pika says of it, some ten lines with tracebacks, stays out of everybody's logs."""
    with Proxy() as proxy:
        broker = Broker(f"amqp://guest:guest@127.0.0.1:{proxy.port}", connect_seconds=0.2)
        with caplog.at_level(logging.DEBUG), pytest.raises(BrokerUnavailable):
            DrivenConnection(broker)
    assert not caplog.records


def test_a_refused_question_closes_its_channel_only(broker: Broker) -> None:
    """As with pika's blocking channel, the broker's refusal is raised, and another channel goes on."""
    with nothing_left_open():
        connection = DrivenConnection(broker)
        asking, other = connection.channel(), connection.channel()
        with pytest.raises(ChannelClosedByBroker) as refused:
            asking.queue_declare(f"{broker.prefix}.missing", passive=True)
        assert refused.value.reply_code == 404
        assert not asking.is_open
        assert "404" in str(asking.closed)
        asking.close()
        other.queue_declare(f"{broker.prefix}.research", durable=True)
        assert other.queue_declare(f"{broker.prefix}.research", passive=True).method.message_count == 0
        other.close()
        assert not other.is_open
        assert connection.lost is None
        connection.close()
        connection.close()


def test_a_lost_connection_is_told_by_all_that_follows(broker: Broker) -> None:
    """Whoever comes next gets the same answer at once, and closing is quiet."""
    with Proxy(urlsplit(broker.url).port) as proxy, nothing_left_open():
        connection = DrivenConnection(
            dataclasses.replace(broker, url=f"amqp://guest:guest@127.0.0.1:{proxy.port}")
        )
        channel = connection.channel()
        proxy.hang_up()
        with pytest.raises(BrokerUnavailable):
            channel.queue_declare(f"{broker.prefix}.research", passive=True)
        assert connection.lost
        assert not channel.is_open
        for again in (connection.check, connection.channel):
            with pytest.raises(BrokerUnavailable):
                again()
        connection.close()


def test_a_silent_broker_is_not_waited_for(broker: Broker) -> None:
    """A goodbye that isn't answered ends in time, and so does everything before it."""
    with Proxy(urlsplit(broker.url).port) as proxy, nothing_left_open():
        connection = DrivenConnection(
            dataclasses.replace(broker, url=f"amqp://guest:guest@127.0.0.1:{proxy.port}")
        )
        channel = connection.channel()
        proxy.swallow()
        connection.limit(0.2)
        with pytest.raises(BrokerUnavailable, match=r"within 0\.2 s"):
            channel.queue_declare(f"{broker.prefix}.research", passive=True)
        channel.close()
        connection.close(seconds=0.2)
        proxy.hang_up()
