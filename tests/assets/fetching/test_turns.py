"""Turns at a host, and what waiting for them costs."""

from __future__ import annotations

from threading import Event, Thread, Timer
from time import sleep

import httpcore
import pytest

from cronless_dagster.assets.fetching.budgets import budget, free_of_charge, within
from cronless_dagster.assets.fetching.turns import Turns


def test_waiting_is_free() -> None:
    """Time spent waiting for a turn isn't taken from a fetch."""
    turns, held, release = Turns(1), Event(), Event()

    def hold() -> None:
        with turns.at("a"):
            held.set()
            release.wait(30)

    holder = Thread(target=hold)
    holder.start()
    held.wait(30)
    Timer(1.5, release.set).start()
    with budget(1.0), turns.at("a"):
        left = within(None)
        assert left is not None
        assert left > 0
    holder.join()


def test_spent() -> None:
    """When the time is spent the next step isn't begun; outside of a fetch only its own time-out counts."""
    with budget(0.01):
        assert within(5.0) <= 0.01
        with free_of_charge():
            sleep(0.05)
        assert within(None) is not None
        sleep(0.05)
        with pytest.raises(httpcore.TimeoutException):
            within(5.0)
    assert within(5.0) == 5.0
    assert within(None) is None


def test_hosts_are_forgotten() -> None:
    """Nothing is kept of hosts that nobody asks, also after an error."""
    turns = Turns(2)
    for number in range(100):
        with turns.at(f"host-{number}"), turns.at("other"):
            pass
    with pytest.raises(ValueError, match="on purpose"), turns.at("a"):
        raise ValueError("on purpose")
    assert not turns._hosts
