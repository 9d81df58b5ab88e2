"""What a consumer's threads share: nothing is returned twice, settled twice, or settled after its time."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronless_dagster.rabbitmq.deliveries import Deliveries, Settlement
from cronless_dagster.rabbitmq.errors import BrokerRefused
from tests.rabbitmq.receiving import job


def filled(count: int) -> Deliveries:
    """Return deliveries of one generation with the tags from 1."""
    deliveries = Deliveries()
    generation = deliveries.begin()
    for tag in range(1, count + 1):
        deliveries.deliver(generation, tag, job())
    return deliveries


def test_only_the_first_of_several_settlements_wakes_the_connection():
    """Those that come before the first is sent go along with it."""
    deliveries = filled(3)
    first, second, third = deliveries.take(3, 0)
    assert deliveries.settle([first], acknowledged=True)
    assert not deliveries.settle([second], acknowledged=False)
    assert deliveries.outgoing() == [Settlement(1, True), Settlement(2, False)]
    assert deliveries.settle([third], acknowledged=True)


def test_a_settlement_that_is_late_wakes_nobody():
    """After the end of its generation it is counted, and so are those that were not sent."""
    deliveries = filled(2)
    first, second = deliveries.take(2, 0)
    deliveries.settle([first], acknowledged=True)
    deliveries.end()
    assert not deliveries.settle([first, second], acknowledged=True)
    assert (deliveries.held, deliveries.late, deliveries.outgoing()) == (0, 3, [])


def test_what_nobody_may_take_counts_as_held():
    """It is held until it is settled, and counts for its queue."""
    deliveries = filled(1)
    deliveries.hold(7, "webhook")
    assert (deliveries.held, deliveries.held_of("webhook"), deliveries.held_of("digest")) == (2, 1, 1)
    assert len(deliveries.take(9, 0)) == 1
    deliveries.settled(7)
    assert (deliveries.held, deliveries.held_of("webhook")) == (1, 0)


def test_closing_with_an_error_reaches_everybody_who_waits():
    """Each of several waiting threads raises it, and whoever asks later."""
    deliveries, errors = Deliveries(), []

    def wait() -> None:
        try:
            deliveries.take(1, 60)
        except BrokerRefused as error:
            errors.append(error)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    deliveries.close(BrokerRefused("no"))
    for thread in threads:
        thread.join(30)
    assert len(errors) == 3
    with pytest.raises(BrokerRefused):
        deliveries.take(1, 60)


@given(
    st.lists(
        st.sampled_from(["deliver", "take", "acknowledge", "give back", "send", "new life"]), max_size=60
    )
)
def test_each_tag_of_a_life_is_settled_at_most_once(steps):
    """Whatever happens in whatever order: what is sent was delivered in this life, taken, and not sent before."""
    deliveries = Deliveries()
    generation, tag = deliveries.begin(), 0
    taken, sent = [], set()
    delivered: set[int] = set()
    for step in steps:
        if step == "deliver":
            tag += 1
            delivered.add(tag)
            deliveries.deliver(generation, tag, job())
        elif step == "take":
            items = deliveries.take(2, 0)
            assert all(item.generation == generation and item not in taken for item in items)
            taken += items
        elif step in {"acknowledge", "give back"}:
            deliveries.settle(taken[-3:], acknowledged=step == "acknowledge")
        elif step == "send":
            for one in deliveries.outgoing():
                assert one.tag in delivered
                assert (generation, one.tag) not in sent
                assert any(item.tag == one.tag and item.generation == generation for item in taken)
                sent.add((generation, one.tag))
        else:
            deliveries.end()
            generation, tag, delivered = deliveries.begin(), 0, set()
        assert 0 <= deliveries.held <= len(delivered)
