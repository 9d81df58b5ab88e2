"""Time limits for pika's blocking calls, on a real connection."""

from __future__ import annotations

import threading

import pika
import pytest

from cronless_dagster.rabbitmq.deadlines import close_within, end_from_elsewhere, limited
from cronless_dagster.rabbitmq.errors import BrokerUnavailable
from tests.rabbitmq.receiving import channel_to


def test_a_call_that_takes_too_long_ends_the_connection(broker):
    """The call raises what it was waiting for, and the connection is closed."""
    with channel_to(broker) as channel:
        connection = channel.connection
        with (
            pytest.raises(BrokerUnavailable, match=r"0\.1 s \(nothing\)"),
            limited(connection, 0.1, "nothing"),
        ):
            connection.process_data_events(60)
        assert connection.is_closed


def test_a_call_in_time_is_not_disturbed(broker):
    """The limit is lifted at the end of the block: nothing happens when its time comes."""
    with channel_to(broker) as channel:
        with limited(channel.connection, 0.2, "opening a channel"):
            channel.connection.channel()
        channel.connection.process_data_events(0.4)
        assert channel.connection.is_open


def test_another_thread_can_end_a_connection(broker):
    """Whoever waits on it gets the reason, at once."""
    with channel_to(broker) as channel:
        connection = channel.connection
        timer = threading.Timer(0.1, end_from_elsewhere, (connection, "ended by the test"))
        timer.start()
        with pytest.raises(BrokerUnavailable, match="ended by the test"):
            connection.process_data_events(60)
        timer.join()
        end_from_elsewhere(connection, "again")


def test_closing(broker):
    """A connection is closed politely, without time for that too, and a closed one is left alone."""
    for seconds in (10.0, 0.0):
        connection = pika.BlockingConnection(broker.parameters())
        close_within(connection, seconds)
        assert connection.is_closed
        close_within(connection, seconds)
