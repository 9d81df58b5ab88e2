"""The time that one fetch may still spend, wherever in its layers the time is spent.

A time-out for each read would let a server send a byte a second for ever: only a total cuts that. It is kept in a
context variable, because the HTTP library between the fetcher and its sockets knows time-outs, not totals.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

import httpcore

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Budget:
    def __init__(self, seconds: float) -> None:
        self.end = monotonic() + seconds


_current: ContextVar[_Budget | None] = ContextVar("budget", default=None)


@contextmanager
def budget(seconds: float) -> Iterator[None]:
    """Let everything in the block take `seconds` in all."""
    token = _current.set(_Budget(seconds))
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def free_of_charge() -> Iterator[None]:
    """Don't count the time of the block: waiting for a neighbour is not the server's fault."""
    running, began = _current.get(), monotonic()
    try:
        yield
    finally:
        if running is not None:
            running.end += monotonic() - began


def left() -> float:
    """Return how many seconds are left, without end outside of a fetch."""
    running = _current.get()
    return inf if running is None else running.end - monotonic()


def within(timeout: float | None) -> float | None:
    """Return how long the next step may take: its own time-out, or what is left if that is less.

    Raises:
        httpcore.TimeoutException: Nothing is left.
    """
    shortest = min(left(), inf if timeout is None else timeout)
    if shortest <= 0:
        raise httpcore.TimeoutException("no time is left")
    return None if shortest == inf else shortest
