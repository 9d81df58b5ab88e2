"""Turns at a host: at most so many exchanges with it at once, whatever number of threads ask."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock, Semaphore
from typing import TYPE_CHECKING

from cronless_dagster.assets.fetching.budgets import free_of_charge

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class _Host:
    free: Semaphore
    asking: int = 0


class Turns:
    """Hands out turns; a host is forgotten as soon as nobody asks for it."""

    def __init__(self, per_host: int) -> None:
        self._per_host = per_host
        self._hosts: dict[str, _Host] = {}
        self._lock = Lock()

    @contextmanager
    def at(self, name: str) -> Iterator[None]:
        """Wait for a turn at a host, and keep it to the end of the block. Not to be nested."""
        with self._lock:
            host = self._hosts.setdefault(name, _Host(Semaphore(self._per_host)))
            host.asking += 1
        try:
            with free_of_charge():
                host.free.acquire()
            try:
                yield
            finally:
                host.free.release()
        finally:
            with self._lock:
                host.asking -= 1
                if not host.asking:
                    del self._hosts[name]
