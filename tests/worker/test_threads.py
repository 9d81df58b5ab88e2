"""The threads that call handlers, by themselves."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from cronless_dagster.worker.threads import HandlerThreads
from tests.worker.support import GUARD_SECONDS, until

if TYPE_CHECKING:
    import pytest


def test_as_many_at_once_as_there_are_threads() -> None:
    """Work is done side by side, in as many threads as asked and no more."""
    together, most, at_once = threading.Barrier(4), [], []

    def call(work: int) -> None:
        at_once.append(work)
        most.append(len(at_once))
        together.wait(GUARD_SECONDS)
        at_once.remove(work)

    threads = HandlerThreads(4, call)
    threads.start()
    threads.add(range(16))
    assert threads.wait_for_load(0, GUARD_SECONDS)
    assert max(most) == 4
    threads.stop()


def test_what_has_not_begun_can_be_withdrawn() -> None:
    """Withdrawn work is never done; what is being done is told."""
    going, done = threading.Event(), []

    def call(work: str) -> None:
        assert going.wait(GUARD_SECONDS)
        done.append(work)

    threads = HandlerThreads(1, call)
    threads.start()
    threads.add("abc")
    until(lambda: threads.running() == ["a"], "running")
    assert threads.load == 3
    assert threads.withdraw() == ["b", "c"]
    going.set()
    assert threads.wait_for_load(0, GUARD_SECONDS)
    assert done == ["a"]
    threads.stop()


def test_waiting_for_room_ends_as_soon_as_there_is_some() -> None:
    """It answers at the asked load, and says so when that doesn't come in time."""
    steps = [threading.Event() for _ in range(3)]
    threads = HandlerThreads(1, lambda number: steps[number].wait(GUARD_SECONDS))
    threads.start()
    threads.add([0, 1, 2])
    assert not threads.wait_for_load(2, 0.01)
    steps[0].set()
    assert threads.wait_for_load(2, GUARD_SECONDS)
    assert threads.load == 2
    for step in steps:
        step.set()
    assert threads.wait_for_load(0, GUARD_SECONDS)
    threads.stop()


def test_recent_work_fades(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a steady rate it is what half a second brings, and after a while without work nothing."""
    from cronless_dagster.worker import threads as module

    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    threads: HandlerThreads[str] = HandlerThreads(1, print)
    threads.add(["work"] * 2_001)
    for _ in range(2_001):
        # As the only thread of its pool.
        threads._next()
        clock[0] += 0.01
    assert 45 < threads.recent() < 55
    clock[0] += 5
    assert threads.recent() < 0.01


def test_an_error_of_our_own_is_not_lost() -> None:
    """What a call raises in spite of all is kept, and the thread goes on."""
    done: list[int] = []

    def call(work: int) -> None:
        if work == 1:
            raise MemoryError
        done.append(work)

    threads = HandlerThreads(1, call)
    threads.start()
    threads.add([0, 1, 2])
    assert threads.wait_for_load(0, GUARD_SECONDS)
    assert done == [0, 2]
    assert isinstance(threads.broken, MemoryError)
    threads.stop()
