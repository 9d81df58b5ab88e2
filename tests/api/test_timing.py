"""That wrong secrets of different kinds can't be told apart by time; that the work is the same is in test_access.

Measured in turn, in this process: medians of some hundred calls each, with a second series of the first kind to show
what chance does. An API with many callers makes work that is left out stand out far beyond that. It measures the
application alone: no server, no socket, no other process.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.api import access as subject
from cronless_dagster.api.access import Access
from cronless_dagster.api.secrets import digest_of
from tests.api.support import ALL, KEY, PATH, TOKEN, access_of, api_of, ask

if TYPE_CHECKING:
    from cronless_dagster.api.app import CheckApi

ROUNDS, ATTEMPTS, MANY = 200, 5, 100
TOLERANCE = 0.15
"""Of the first kind's median: wider than chance, narrower than comparisons that are left out, as the tests show."""

KINDS = {
    "first byte of the token": (PATH, "x" + TOKEN[1:], KEY),
    "the same again": (PATH, "x" + TOKEN[1:], KEY),
    "last byte of the token": (PATH, TOKEN[:-1] + "x", KEY),
    "no secrets": (PATH, "", ""),
    "right token, wrong key": (PATH, TOKEN, "x" + KEY[1:]),
    "wrong path": ("x" + PATH[1:], TOKEN, KEY),
    "unknown caller": (PATH, "x" * 43, "y" * 43),
}


def crowded() -> Access:
    """Return an access with many callers, the one whose secrets are tried first among them."""
    others = [
        replace(
            ALL,
            name=str(n),
            tokens=(digest_of(f"token {n}".encode()),),
            keys=(digest_of(f"key {n}".encode()),),
        )
        for n in range(MANY)
    ]
    return access_of(ALL, *others)


def nanoseconds(api: CheckApi, path: str, token: str, key: str) -> int:
    """Time one refused call; it never waits, so it needs no event loop."""
    headers = ((b"authorization", f"Bearer {token}".encode()), (b"x-cronless-key", key.encode()))
    asking = ask(api, f"/{path}/checks/dispatch", headers=headers)
    began = perf_counter_ns()
    with pytest.raises(StopIteration) as ended:
        asking.send(None)
    spent = perf_counter_ns() - began
    assert ended.value.value.status == 404
    return spent


def spread() -> float:
    """Return how far the kinds' medians lie from the first one's, at most, as a share of it."""
    api = api_of(access=crowded())
    times: dict[str, list[int]] = {kind: [] for kind in KINDS}
    for number in range(ROUNDS):
        # Each kind follows each other one as often.
        kinds = list(KINDS.items())
        turn = number % len(kinds)
        for kind, secrets in kinds[turn:] + kinds[:turn]:
            times[kind].append(nanoseconds(api, *secrets))
    base, *rest = (median(series) for series in times.values())
    return max(abs(one - base) for one in rest) / base


def test_kinds_of_wrong_secrets_take_the_same_time() -> None:
    """Whatever was right about them; a busy machine has several chances, and a leak is there every time."""
    assert any(spread() < TOLERANCE for _ in range(ATTEMPTS))


def test_the_measure_sees_comparisons_that_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An access that looks at tokens only where the path is right is found out each time."""
    whole = Access.admit

    def hasty(self: Access, path: bytes, token: bytes, key: bytes, peer: str | None) -> object:
        return whole(self, path, token, key, peer) if subject._one_of(self.paths, digest_of(path)) else None

    monkeypatch.setattr(Access, "admit", hasty)
    assert all(spread() >= TOLERANCE for _ in range(ATTEMPTS))
