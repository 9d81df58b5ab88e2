"""The consumer against a real broker: receiving, settling, pausing, poison, and what makes it give up."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pika
import psutil
import pytest

from cronless_dagster.rabbitmq.consumer import LONGEST_PAUSE, Consumer, pause_before
from cronless_dagster.rabbitmq.errors import BrokerError, BrokerRefused, TopologyMismatch
from cronless_dagster.rabbitmq.topology import (
    DEAD,
    dead_letter_exchange,
    dead_letter_queue,
    exchange_name,
    queue_name,
)
from tests.rabbitmq.receiving import (
    channel_to,
    dead_letters,
    depth,
    job,
    receiving,
    send,
    send_raw,
    take,
    until,
)


class TestReceiving:
    def test_messages_arrive_in_their_order_and_an_acknowledged_one_is_gone(self, broker):
        """What was sent is taken in that order, and once acknowledged nothing is left in the queue."""
        sent = send(broker, [job() for _ in range(20)])
        with receiving(broker, prefetch=50) as consumer:
            items = take(consumer, 20)
            assert [item.message for item in items] == sent
            consumer.acknowledge(items)
            until(lambda: consumer.held == 0, "settled")
        assert depth(broker).messages == 0
        assert consumer.counts.received == 20

    def test_job_types_have_their_own_queues(self, broker):
        """One consumer receives several types, each from its queue; another type's messages stay where they are."""
        send(broker, [job("digest"), job("webhook"), job("research")])
        with receiving(broker, "digest", "webhook") as consumer:
            items = take(consumer, 2)
            assert {item.message.job_type for item in items} == {"digest", "webhook"}
            assert depth(broker, "research").messages == 1

    def test_prefetch_bounds_what_is_held(self, broker):
        """No more unsettled messages than the prefetch leave the queue; settling one makes room for one."""
        send(broker, [job() for _ in range(10)])
        with receiving(broker, prefetch=3) as consumer:
            items = take(consumer, 3)
            assert consumer.take(1, 0.3) == []
            assert (consumer.held, depth(broker).messages) == (3, 7)
            consumer.acknowledge(items[:1])
            assert len(take(consumer, 1)) == 1
            assert depth(broker).messages == 6

    def test_taking_waits_no_longer_than_asked(self, broker):
        """Without messages an empty list comes back."""
        with receiving(broker) as consumer:
            assert consumer.take(5, 0.05) == []

    def test_at_most_so_many_are_taken(self, broker):
        """What is beyond the number asked for stays for the next call."""
        sent = send(broker, [job() for _ in range(5)])
        with receiving(broker) as consumer:
            until(lambda: consumer.held == 5, "five held")
            assert [item.message for item in consumer.take(2, 1)] == sent[:2]
            assert [item.message for item in consumer.take(9, 1)] == sent[2:]

    def test_two_consumers_share_five_thousand_messages(self, broker):
        """Each message is received by exactly one of two consumers, and all are acknowledged."""
        sent = send(broker, [job() for _ in range(5_000)])
        found: list[list] = [[], []]

        def work(consumer, mine):
            while items := consumer.take(200, 2.0):
                mine.extend(item.message for item in items)
                consumer.acknowledge(items)

        with receiving(broker, prefetch=200) as first, receiving(broker, prefetch=200) as second:
            threads = [
                threading.Thread(target=work, args=pair) for pair in zip((first, second), found, strict=True)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(120)
            until(lambda: first.held + second.held == 0, "all settled")
        everything = [message.job_id for some in found for message in some]
        assert len(everything) == len(set(everything)) == 5_000
        assert set(everything) == {message.job_id for message in sent}
        assert all(found)
        assert depth(broker).messages == 0

    @pytest.mark.slow
    def test_a_slow_taker_does_not_lose_the_connection(self, broker):
        """Messages that lie untaken for several heartbeats cost nothing: the connection has its own thread."""
        send(broker, [job()])
        with receiving(replace(broker, heartbeat_seconds=1)) as consumer:
            (item,) = take(consumer, 1)
            time.sleep(4)
            consumer.acknowledge([item])
            until(lambda: consumer.held == 0, "settled")
            assert consumer.counts.reconnects == 0
        assert depth(broker).messages == 0


class TestSettling:
    def test_what_is_given_back_goes_to_another(self, broker):
        """After a pause, what is given back arrives at the other consumer and nowhere else."""
        sent = send(broker, [job() for _ in range(6)])
        with receiving(broker) as first:
            items = take(first, 6)
            first.pause()
            first.give_back(items)
            with receiving(broker) as second:
                again = take(second, 6)
                assert {item.message for item in again} == set(sent)
                second.acknowledge(again)
                until(lambda: second.held == 0, "settled")
                assert first.take(1, 0.2) == []
                assert first.counts.received == 6
        assert depth(broker).messages == 0

    def test_a_pause_lets_nothing_new_in_and_keeps_what_is_there(self, broker):
        """While paused the queue fills up and what had arrived can be taken; after resuming the rest comes."""
        early = send(broker, [job() for _ in range(3)])
        with receiving(broker) as consumer:
            until(lambda: consumer.held == 3, "three held")
            consumer.pause()
            consumer.pause()
            until(lambda: not consumer._session._consumers, "canceled")
            late = send(broker, [job() for _ in range(2)])
            assert [item.message for item in take(consumer, 3)] == early
            assert consumer.take(1, 0.3) == []
            assert depth(broker).messages == 2
            consumer.resume()
            consumer.resume()
            assert [item.message for item in take(consumer, 2)] == late
            assert list(consumer._session._consumers) == ["digest"]

    def test_pausing_again_and_again_does_not_widen_the_prefetch(self, broker):
        """What is held from before a pause counts after it too: consuming goes on once there is room again."""
        send(broker, [job() for _ in range(20)])
        with receiving(broker, prefetch=3) as consumer:
            items = take(consumer, 3)
            for _ in range(4):
                consumer.pause()
                until(lambda: not consumer._session._consumers, "canceled")
                consumer.resume()
            assert consumer.take(1, 0.3) == []
            assert (consumer.held, depth(broker).messages) == (3, 17)
            consumer.acknowledge(items[:1])
            consumer.acknowledge(take(consumer, 3) + items[1:])
            assert len(take(consumer, 3)) == 3

    def test_resuming_may_ask_for_another_prefetch(self, broker):
        """The new number holds from then on, in a pause and without one."""
        send(broker, [job() for _ in range(20)])
        with receiving(broker, prefetch=1) as consumer:
            items = take(consumer, 1)
            consumer.resume(5)
            items += take(consumer, 5)
            consumer.acknowledge(items)
            items = take(consumer, 5)
            assert consumer.take(1, 0.3) == []
            consumer.pause()
            consumer.acknowledge(items)
            consumer.resume(2)
            assert len(take(consumer, 2)) == 2
            assert consumer.take(1, 0.3) == []

    def test_settling_twice_is_counted_and_harmless(self, broker):
        """The second acknowledgement of a delivery is dropped here: the broker would close the channel."""
        send(broker, [job(), job()])
        with receiving(broker) as consumer:
            first, second = take(consumer, 2)
            consumer.acknowledge([first])
            consumer.acknowledge([first])
            consumer.give_back([first])
            consumer.acknowledge([second])
            until(lambda: consumer.held == 0, "settled")
            assert (consumer.counts.late, consumer.counts.reconnects) == (2, 0)
        assert depth(broker).messages == 0

    def test_a_settlement_of_a_lost_connection_is_dropped(self, broker):
        """After the connection was lost its message comes again, and the old acknowledgement settles nothing."""
        send(broker, [job() for _ in range(3)])
        with receiving(broker) as consumer:
            old = take(consumer, 3)
            consumer._session.abandon("cut by the test")
            new = take(consumer, 3)
            assert {item.generation for item in old} == {1}
            assert {item.generation for item in new} == {2}
            consumer.acknowledge(old)
            assert (consumer.held, consumer.counts.late, consumer.counts.reconnects) == (3, 3, 1)
            consumer.acknowledge(new)
            until(lambda: consumer.held == 0, "settled")
        assert depth(broker).messages == 0

    def test_what_was_not_taken_is_forgotten_with_its_connection(self, broker):
        """No message of a lost connection is returned, so none is returned twice."""
        send(broker, [job() for _ in range(3)])
        with receiving(broker) as consumer:
            until(lambda: consumer.held == 3, "three held")
            consumer._session.abandon("cut by the test")
            until(lambda: consumer.counts.reconnects == 1, "connected again")
            assert {item.generation for item in take(consumer, 3)} == {2}
            assert consumer.take(1, 0.2) == []


POISON = {
    "empty": b"",
    "no JSON": b"hello",
    "no UTF-8": b"\xff\xfe\x00",
    "another version": b'{"version":2}',
    "a list": b"[1]",
    "deeply nested": b"[" * 16_000,
    "another queue's": None,
}


class TestPoison:
    @pytest.mark.parametrize("kind", POISON)
    def test_a_message_that_cannot_be_read_becomes_a_dead_letter(self, broker, kind):
        """It is copied with the reason, its own properties and body; its neighbours arrive as ever."""
        (before,) = send(broker, [job()])
        queue = queue_name(broker.prefix, "digest")
        body = POISON[kind]
        if body is None:
            from cronless_dagster.rabbitmq.messages import encode

            body = encode(job("webhook")).body
        properties = pika.BasicProperties(
            message_id="m-1", type=None, headers={"origin": "elsewhere", "n": 7}
        )
        send_raw(broker, queue, body, properties)
        (after,) = send(broker, [job()])
        with receiving(broker) as consumer:
            items = take(consumer, 2)
            assert [item.message for item in items] == [before, after]
            ((letter, copied),) = dead_letters(broker, 1)
            consumer.acknowledge(items)
            until(lambda: consumer.held == 0, "settled")
            assert (consumer.counts.poisoned, consumer.counts.received) == (1, 2)
        assert copied == body
        assert letter.headers["x-cronless-error"].startswith(("The message", "the message"))
        assert letter.headers["x-cronless-queue"] == queue
        assert (letter.headers["origin"], letter.headers["n"]) == ("elsewhere", 7)
        assert (letter.message_id, letter.delivery_mode) == ("m-1", 2)
        assert depth(broker).messages == 0

    def test_a_huge_one_is_shortened_and_odd_properties_do_no_harm(self, broker):
        """Only the beginning of a huge body is kept; headers that could not be written again are kept as text."""
        send(broker, [])
        queue = queue_name(broker.prefix, "digest")
        headers = {
            "CC": ["a", "b"],
            "table": {"deep": [1, None]},
            "x-cronless-error": "mine",
            "long": "y" * 50_000,
        }
        properties = pika.BasicProperties(headers=headers, expiration="60000", user_id="guest", priority=3)
        with receiving(broker) as consumer:
            send_raw(broker, queue, b"x" * 1_000_000, properties)
            ((letter, copied),) = dead_letters(broker, 1)
            until(lambda: consumer.held == 0, "settled")
        assert copied == b"x" * 65_536
        assert letter.headers["x-cronless-body-bytes"] == "1000000"
        assert letter.headers["x-cronless-original-CC"] == "['a', 'b']"
        assert letter.headers["x-cronless-original-x-cronless-error"] == "mine"
        assert "1,000,000" in letter.headers["x-cronless-error"]
        assert letter.headers["long"] == "y" * 2_000
        assert (letter.expiration, letter.user_id) == (None, None)

    def test_hundred_at_once_are_all_kept(self, broker):
        """More of them than the prefetch allows don't stop the consumer."""
        send(broker, [job()])
        queue = queue_name(broker.prefix, "digest")
        with channel_to(broker) as channel:
            # What isn't confirmed may be lost in a queue that is this young.
            channel.confirm_delivery()
            for number in range(100):
                channel.basic_publish("", queue, f"poison {number}".encode(), mandatory=True)
        (last,) = send(broker, [job()])
        with receiving(broker, prefetch=5) as consumer:
            consumer.acknowledge(take(consumer, 1))
            (item,) = take(consumer, 1)
            assert item.message == last
            bodies = [body for _, body in dead_letters(broker, 100)]
            assert sorted(bodies) == sorted(f"poison {number}".encode() for number in range(100))
            assert consumer.counts.poisoned == 100

    @pytest.mark.parametrize("exchange_too", [False, True])
    def test_without_a_place_for_dead_letters_none_is_lost(self, broker, exchange_too):
        """While the copy can't be stored the message stays where it is; what is missing is declared again."""
        queue = queue_name(broker.prefix, "digest")
        with receiving(broker) as consumer:
            consumer._dead_letters.again_seconds = 0.1
            with channel_to(broker) as channel:
                channel.queue_delete(dead_letter_queue(broker.prefix))
                if exchange_too:
                    channel.exchange_delete(dead_letter_exchange(broker.prefix))
            send_raw(broker, queue, b"poison")
            until(lambda: consumer.counts.poisoned == 1 and consumer.held == 0, "stored and settled")
            ((_, body),) = dead_letters(broker, 1)
            assert (body, consumer.counts.reconnects) == (b"poison", 0)


class TestQueueDeleted:
    def test_a_deleted_queue_is_declared_and_consumed_again(self, broker):
        """The broker's cancel is noticed: messages sent after the deletion arrive on the same connection."""
        send(broker, [job() for _ in range(3)])
        with receiving(broker) as consumer:
            old = take(consumer, 3)
            with channel_to(broker) as channel:
                channel.queue_delete(queue_name(broker.prefix, "digest"))
            until(lambda: depth_or_none(broker), "declared again")
            sent = send(broker, [job() for _ in range(2)])
            new = take(consumer, 2)
            assert [item.message for item in new] == sent
            consumer.acknowledge(old)
            consumer.acknowledge(new)
            until(lambda: consumer.held == 0, "settled")
            assert consumer.take(1, 0.2) == []
            assert consumer.counts.reconnects == 0
        assert depth(broker).messages == 0

    def test_a_queue_deleted_in_a_pause_is_there_after_it(self, broker):
        """Resuming declares it anew."""
        with receiving(broker) as consumer:
            consumer.pause()
            until(lambda: not consumer._session._consumers, "canceled")
            with channel_to(broker) as channel:
                channel.queue_delete(queue_name(broker.prefix, "digest"))
            consumer.resume()
            until(lambda: depth_or_none(broker), "declared again")
            sent = send(broker, [job()])
            assert [item.message for item in take(consumer, 1)] == sent


def depth_or_none(broker):
    """Whether the queue exists and is consumed."""
    try:
        return depth(broker).consumers == 1
    except KeyError:
        return False


class TestStopping:
    def test_unsettled_messages_go_back(self, broker):
        """What was acknowledged before the stop is gone, the rest is in the queue again, taken or not."""
        sent = send(broker, [job() for _ in range(6)])
        with receiving(broker) as consumer:
            items = take(consumer, 4)
            consumer.acknowledge(items[:2])
        with receiving(broker) as other:
            assert {item.message for item in take(other, 4)} == set(sent[2:])
            assert other.take(1, 0.2) == []

    def test_nothing_is_left_behind(self, broker):
        """Neither a thread nor a socket outlives the stop, and the broker sees no consumer any more."""
        threads, files = threading.active_count(), psutil.Process().num_fds()
        with receiving(broker) as consumer:
            assert depth(broker).consumers == 1
        assert threading.active_count() == threads
        assert psutil.Process().num_fds() == files
        assert depth(broker).consumers == 0
        assert not consumer.connected

    def test_whoever_waits_is_let_go(self, broker):
        """A thread that waits in `take` gets an empty list, then and later; late settlements are dropped."""
        send(broker, [job()])
        answers: list = []
        with receiving(broker) as consumer:
            (item,) = take(consumer, 1)
            waiting = threading.Thread(target=lambda: answers.append(consumer.take(1, 60)))
            waiting.start()
        waiting.join(30)
        assert answers == [[]]
        assert consumer.take(1, 60) == []
        consumer.acknowledge([item])
        assert consumer.counts.late == 1
        assert depth(broker).messages == 1

    def test_stopping_before_or_without_a_start(self, broker):
        """A consumer that never ran can be stopped, and one that is stopped can be stopped again."""
        Consumer(broker, ["digest"], prefetch=1).stop(1)
        with receiving(broker) as consumer:
            consumer.stop(5)


class TestGivingUp:
    def test_a_wrong_password(self, broker):
        """It is said in a sentence without the password, by `take` and by `fatal`; nothing is tried again."""
        states: list[str] = []
        wrong = replace(broker, url=broker.url.replace("guest:guest", "guest:mistaken"))
        consumer = Consumer(wrong, ["digest"], prefetch=1, on_state=states.append)
        consumer.start()
        with pytest.raises(BrokerRefused, match="password") as caught:
            consumer.take(1, 60)
        assert consumer.fatal is caught.value
        assert "mistaken" not in str(caught.value)
        until(lambda: states[-1].startswith("given up"), "told")
        assert len([state for state in states if state == "connecting"]) == 1
        consumer.stop(10)
        assert not consumer._thread.is_alive()
        assert consumer.fatal is caught.value

    def test_a_missing_virtual_host(self, broker):
        """As a wrong password."""
        consumer = Consumer(replace(broker, url=broker.url.replace("%2F", "nowhere")), ["digest"], prefetch=1)
        consumer.start()
        with pytest.raises(BrokerRefused, match="nowhere"):
            consumer.take(1, 60)
        consumer.stop(1)

    def test_another_exchange_of_our_name(self, broker):
        """An exchange of another type is left alone, and the difference is named."""
        with channel_to(broker) as channel:
            channel.exchange_declare(exchange_name(broker.prefix), "topic", durable=True)
        consumer = Consumer(broker, ["digest"], prefetch=1)
        consumer.start()
        with pytest.raises(TopologyMismatch, match="topic"):
            consumer.take(1, 60)
        consumer.stop(1)

    def test_values_that_could_never_work(self, broker):
        """No job type, no prefetch, and the name of the dead letters' queue are refused at once."""
        with pytest.raises(BrokerError, match="at least one"):
            Consumer(broker, [], prefetch=1)
        with pytest.raises(BrokerError, match="at least one"):
            Consumer(broker, ["digest"], prefetch=0)
        with pytest.raises(BrokerError, match="dead letters"):
            Consumer(broker, [DEAD], prefetch=1)


class TestStates:
    def test_the_states_are_told_in_their_order(self, broker):
        """Connecting, connected, disconnected with its reason, connected again, stopped."""
        states: list[str] = []
        consumer = Consumer(broker, ["digest"], prefetch=1, on_state=states.append)
        consumer.start()
        until(lambda: states[-1:] == ["connected"], "connected")
        consumer._session.abandon("cut by the test")
        until(lambda: states.count("connected") == 2, "connected again")
        consumer.stop(5)
        assert [state.partition(":")[0] for state in states] == [
            "connecting", "connected", "disconnected", "connecting", "connected", "stopped",
        ]  # fmt: skip
        assert "cut by the test" in states[2]

    def test_a_listener_that_fails_is_no_harm(self, broker):
        """What it raises is logged and the consumer goes on."""

        def failing(state):
            raise ValueError(state)

        sent = send(broker, [job()])
        consumer = Consumer(broker, ["digest"], prefetch=1, on_state=failing)
        consumer.start()
        assert [item.message for item in take(consumer, 1)] == sent
        consumer.stop(5)


def test_pauses_grow_to_their_limit_and_are_spread():
    """The first try comes at once, later ones within a limit that doubles up to half a minute."""
    assert pause_before(1) == 0
    assert all(0 <= pause_before(2) <= 0.5 for _ in range(100))
    many = [pause_before(40) for _ in range(1_000)]
    assert 20 < max(many) <= LONGEST_PAUSE
    assert min(many) < 5
