"""The publisher on a real broker: each message has one outcome, and the queue agrees with it."""

from __future__ import annotations

import dataclasses
import socket
import threading
import uuid
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pika
import pytest

from cronless_dagster.rabbitmq import DEAD
from cronless_dagster.rabbitmq.confirms import Delivery
from cronless_dagster.rabbitmq.errors import BrokerRefused, BrokerUnavailable, TopologyMismatch
from cronless_dagster.rabbitmq.publisher import WINDOW, Publisher
from cronless_dagster.rabbitmq.topology import QueueDepth, exchange_name, queue_name
from tests.rabbitmq.proxy import Proxy
from tests.rabbitmq.support import counted, drain, nothing_left_open, some

if TYPE_CHECKING:
    from collections.abc import Callable

    from cronless_dagster.rabbitmq.address import Broker


def with_url(
    broker: Broker, *, login: str | None = None, port: int | None = None, path: str | None = None
) -> Broker:
    """A broker at another login, port or virtual host of the same address, given little time."""
    parts = urlsplit(broker.url)
    url = (
        f"amqp://{login or f'{parts.username}:{parts.password}'}@{parts.hostname}:{port or parts.port}"
        f"{path or parts.path}"
    )
    return dataclasses.replace(broker, url=url)


class TestPublishing:
    def test_all_of_several_pages_are_stored(self, broker: Broker) -> None:
        """Pages longer and shorter than the window, one after the other, each message in its place and queue."""
        pages = [some(2 * WINDOW + 7), some(1), some(0), some(WINDOW)]
        with nothing_left_open(), Publisher(broker) as publisher:
            publisher.declare(["research"])
            for page in pages:
                published = publisher.publish("research", page)
                assert [one.message for one in published] == page
                assert all(one.delivery is Delivery.STORED and one.error is None for one in published)
            depth = publisher.depths(["research"])["research"]
            assert publisher.broken is None
        assert depth == QueueDepth(messages=sum(map(len, pages)), consumers=0)
        assert drain(broker) == {message.job_id: 1 for page in pages for message in page}

    def test_without_a_queue_nothing_is_stored_until_it_is_declared(self, broker: Broker) -> None:
        """What no queue takes comes back, with the reason, and goes through once it is declared."""
        page = some(WINDOW + 3)
        with Publisher(broker) as publisher:
            publisher.declare([])
            returned = publisher.publish("research", page)
            assert counted(returned) == {Delivery.UNROUTABLE: len(page)}
            assert "'research'" in str(returned[0].error)
            assert "NO_ROUTE" in str(returned[0].error)
            publisher.declare(["research"])
            assert counted(publisher.publish("research", page)) == {Delivery.STORED: len(page)}
        assert drain(broker) == {message.job_id: 1 for message in page}

    def test_what_cannot_be_written_spares_its_neighbours(self, broker: Broker) -> None:
        """A row with impossible values is told apart, with the reason; the ones around it are stored."""
        page = some(7)
        naive = page[1].scheduled_for.replace(tzinfo=None)
        spoiled = {
            1: dataclasses.replace(page[1], scheduled_for=naive),
            2: dataclasses.replace(page[2], tenant_id="\ud800"),
            4: dataclasses.replace(page[4], tenant_id="x" * 20_000),
            5: dataclasses.replace(page[5], job_type="digests"),
        }
        for index, message in spoiled.items():
            page[index] = message
        with Publisher(broker) as publisher:
            publisher.declare(["research"])
            published = publisher.publish("research", page)
            again = publisher.publish("research", page[:1])
        invalid = {index for index, one in enumerate(published) if one.delivery is Delivery.INVALID}
        assert invalid == set(spoiled)
        assert all(published[index].error for index in spoiled)
        assert counted(published)[Delivery.STORED] == len(page) - len(spoiled)
        assert counted(again) == {Delivery.STORED: 1}
        stored = [page[0], page[0], page[3], page[6]]
        assert sorted(drain(broker).elements()) == sorted(message.job_id for message in stored)

    def test_a_key_too_long_for_the_protocol_is_invalid(self, broker: Broker) -> None:
        """What pika can't write breaks nothing either."""
        name = "x" * 300
        with Publisher(broker) as publisher:
            publisher.declare(["research"])
            assert counted(publisher.publish(name, some(2, name))) == {Delivery.INVALID: 2}
            assert counted(publisher.publish("research", some(2))) == {Delivery.STORED: 2}

    def test_a_full_queue_refuses(self, broker: Broker) -> None:
        """Of more messages than a queue may hold, those that it refuses are told, and no other is missing."""
        with Publisher(broker) as publisher:
            publisher.declare([])
            limits = {"x-max-length": 10, "x-overflow": "reject-publish"}
            declare(broker, "research", limits)
            page = some(WINDOW)
            published = publisher.publish("research", page)
            assert counted(published).keys() == {Delivery.STORED, Delivery.NACKED}
            assert "full" in next(str(one.error) for one in published if one.delivery is Delivery.NACKED)
            assert publisher.broken is None
        stored = {one.message.job_id: 1 for one in published if one.delivery is Delivery.STORED}
        assert drain(broker) == stored

    def test_the_same_message_twice_in_a_page(self, broker: Broker) -> None:
        """Each of two messages with one id has its outcome, whether they come back or are stored."""
        page = some(2) * 2
        with Publisher(broker) as publisher:
            publisher.declare([])
            assert counted(publisher.publish("research", page)) == {Delivery.UNROUTABLE: 4}
            publisher.declare(["research"])
            assert counted(publisher.publish("research", page)) == {Delivery.STORED: 4}
        assert drain(broker) == {page[0].job_id: 2, page[1].job_id: 2}

    def test_no_time_left(self, broker: Broker) -> None:
        """Without a second left nothing is sent, and the next page goes through."""
        with Publisher(broker) as publisher:
            publisher.declare(["research"])
            assert counted(publisher.publish("research", some(3), seconds=0)) == {Delivery.NOT_SENT: 3}
            assert counted(publisher.publish("research", some(3))) == {Delivery.STORED: 3}
        assert drain(broker).total() == 3


class TestFaults:
    def test_a_missing_exchange(self, broker: Broker) -> None:
        """The broker closes the channel: what was written is unknown, the rest unsent, and so is all that follows."""
        page = some(2 * WINDOW)
        with nothing_left_open():
            with Publisher(broker) as publisher:
                published = publisher.publish("research", page)
                assert "NOT_FOUND" in str(publisher.broken)
                assert counted(publisher.publish("research", page)) == {Delivery.NOT_SENT: len(page)}
                with pytest.raises(BrokerUnavailable, match="NOT_FOUND"):
                    publisher.declare(["research"])
            with Publisher(broker) as publisher:
                publisher.declare(["research"])
                assert counted(publisher.publish("research", page)) == {Delivery.STORED: len(page)}
        assert counted(published) == {Delivery.UNKNOWN: WINDOW, Delivery.NOT_SENT: WINDOW}
        assert all("NOT_FOUND" in str(one.error) for one in published)
        assert drain(broker).total() == len(page)

    def test_a_broker_that_falls_silent(self, broker: Broker) -> None:
        """Nothing comes back any more: an end in time, for the page, for declaring and for closing."""
        page = some(3 * WINDOW)
        hasty = dataclasses.replace(broker, publish_seconds=0.5)
        with Publisher(broker) as publisher:
            publisher.declare(["research"])
        with Proxy(urlsplit(broker.url).port) as proxy, nothing_left_open():
            with Publisher(with_url(hasty, port=proxy.port)) as publisher:
                proxy.swallow()
                published = publisher.publish("research", page)
                assert counted(published) == {Delivery.UNKNOWN: WINDOW, Delivery.NOT_SENT: 2 * WINDOW}
                assert "within 0.5 s" in str(publisher.broken)
                assert counted(publisher.publish("research", page)) == {Delivery.NOT_SENT: len(page)}
            proxy.hang_up()
        assert not drain(broker)

    @pytest.mark.parametrize("ask", [lambda p: p.declare(["research"]), lambda p: p.depths(["research"])])
    def test_a_silent_broker_is_not_asked_twice(
        self, broker: Broker, ask: Callable[[Publisher], object]
    ) -> None:
        """A question that isn't answered in time is the end of this connection."""
        hasty = dataclasses.replace(broker, publish_seconds=0.5)
        with Proxy(urlsplit(broker.url).port) as proxy, nothing_left_open():
            with Publisher(with_url(hasty, port=proxy.port)) as publisher:
                proxy.swallow()
                with pytest.raises(BrokerUnavailable, match=r"within 0\.5 s"):
                    ask(publisher)
                assert counted(publisher.publish("research", some(2))) == {Delivery.NOT_SENT: 2}
            proxy.hang_up()

    def test_a_connection_lost_between_two_pages(self, broker: Broker) -> None:
        """It is noticed before anything is written, so nothing is unknown."""
        with (
            Proxy(urlsplit(broker.url).port) as proxy,
            nothing_left_open(),
            Publisher(with_url(broker, port=proxy.port)) as publisher,
        ):
            publisher.declare(["research"])
            assert counted(publisher.publish("research", some(5))) == {Delivery.STORED: 5}
            proxy.hang_up()
            assert counted(publisher.publish("research", some(5))) == {Delivery.NOT_SENT: 5}
            assert "can't be used" in str(publisher.broken)
        assert drain(broker).total() == 5

    def test_an_interruption(self, broker: Broker) -> None:
        """Ctrl-C in the middle of a page is passed on, and leaves nothing open."""

        class Interrupting(list):
            def __getitem__(self, index):
                if index == 5:
                    raise KeyboardInterrupt
                return super().__getitem__(index)

        with nothing_left_open(), Publisher(broker) as publisher:
            publisher.declare(["research"])
            with pytest.raises(KeyboardInterrupt):
                publisher.publish("research", Interrupting(some(10)))
            assert "interrupted" in str(publisher.broken)
            assert counted(publisher.publish("research", some(5))) == {Delivery.NOT_SENT: 5}


class TestConnecting:
    def test_a_wrong_password(self, broker: Broker) -> None:
        """Refused, in one line that says so, without the password."""
        assert_refused(with_url(broker, login="guest:a-secret-of-ours"), "ACCESS_REFUSED")

    def test_a_missing_virtual_host(self, broker: Broker) -> None:
        """Refused, with the name of what is missing."""
        assert_refused(with_url(broker, path=f"/missing-{uuid.uuid4().hex}"), "missing-")

    def test_a_closed_port(self, broker: Broker) -> None:
        """Nobody listens: unavailable."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        with nothing_left_open(), pytest.raises(BrokerUnavailable, match="refused"):
            enter(with_url(broker, port=port))

    def test_nobody_answers(self, broker: Broker) -> None:
        """A port that takes connections and says nothing: unavailable, in time."""
        hasty = dataclasses.replace(broker, connect_seconds=0.5)
        with Proxy() as proxy, nothing_left_open():
            with pytest.raises(BrokerUnavailable, match="answer"):
                enter(with_url(hasty, port=proxy.port))
            proxy.hang_up()

    def test_hung_up_in_the_middle_of_the_login(self, broker: Broker) -> None:
        """A port that hangs up at once, as that of a proxy whose broker is down, is no refusal of the login."""
        with socket.create_server(("127.0.0.1", 0)) as server:

            def hang_up() -> None:
                client, _ = server.accept()
                client.recv(8)
                client.close()

            other = threading.Thread(target=hang_up)
            other.start()
            with pytest.raises(BrokerUnavailable):
                enter(with_url(broker, port=server.getsockname()[1]))
            other.join()

    def test_another_exchange_of_the_name(self, broker: Broker) -> None:
        """A topology that isn't ours is told, and the publisher goes on."""
        connection = pika.BlockingConnection(broker.parameters())
        connection.channel().exchange_declare(exchange_name(broker.prefix), "topic", durable=True)
        connection.close()
        with Publisher(broker) as publisher:
            with pytest.raises(TopologyMismatch, match="'topic'"):
                publisher.declare(["research"])
            assert publisher.depths(["research"]) == {}
            assert publisher.broken is None

    def test_depths_of_what_exists(self, broker: Broker) -> None:
        """Queues that exist are counted, those that don't are left out, and asking declares nothing."""
        with Publisher(broker) as publisher:
            assert publisher.depths(["research", "digests"]) == {}
            publisher.declare(["research"])
            publisher.declare(["research", "digests"])
            publisher.publish("digests", some(3, "digests"))
            depths = publisher.depths(["digests", "webhooks", "research"])
        assert depths == {"digests": QueueDepth(3, 0), "research": QueueDepth(0, 0), DEAD: QueueDepth(0, 0)}


def assert_refused(broker: Broker, expected: str) -> None:
    """A connection is refused in one line that holds no login."""
    with nothing_left_open(), pytest.raises(BrokerRefused, match=expected) as refused:
        enter(broker)
    said = str(refused.value)
    assert "\n" not in said
    assert "secret" not in said
    assert "@" not in said


def enter(broker: Broker) -> None:
    """Connect and close."""
    with Publisher(broker):
        pass


def declare(broker: Broker, job_type: str, arguments: dict[str, object]) -> None:
    """Declare a queue as somebody else did."""
    connection = pika.BlockingConnection(broker.parameters())
    channel = connection.channel()
    name = queue_name(broker.prefix, job_type)
    channel.queue_declare(name, durable=True, arguments=arguments)
    channel.queue_bind(name, exchange_name(broker.prefix), job_type)
    connection.close()
