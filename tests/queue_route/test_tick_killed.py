"""A tick that is killed around its publishing: the claim is the outbox, and the next tick goes on with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cronless_dagster.engine.queueing import HAND_OVER_PATIENCE
from tests.engine.support import claim
from tests.queue_route.stopping import PAGE_SIZE
from tests.queue_route.support import dropped
from tests.worker.support import until

if TYPE_CHECKING:
    from tests.queue_route.support import Route

pytestmark = pytest.mark.crash

JOBS = 4 * PAGE_SIZE


@pytest.mark.parametrize(
    ("point", "published", "copies"),
    [
        ("claimed", 0, 0),
        ("sending", PAGE_SIZE, range(PAGE_SIZE // 2)),
        ("confirmed", 2 * PAGE_SIZE, PAGE_SIZE),
        ("noted", JOBS, 0),
    ],
)
def test_killed_tick(route: Route, point: str, published: int, copies: int | range) -> None:
    """Before, in the middle of, and after its messages: all are published, and copies are refused at the start."""
    ids = route.add(JOBS)
    route.kill_at(point, "tick")
    assert claim(route.engine).state == "CLAIMED"
    assert route.statuses() == {"QUEUED": JOBS}
    waiting = route.depth()
    assert published <= waiting < published + PAGE_SIZE

    if point != "claimed":
        # A dispatcher that is slow and not dead is left to its work.
        assert route.clean_tick().published == {}
        route.forward(HAND_OVER_PATIENCE.total_seconds() + 1)
    assert route.clean_tick().claimed == {}
    twice = route.depth() - JOBS
    assert twice in copies if isinstance(copies, range) else twice == copies
    worker = route.worker()
    route.wait_until_done(JOBS)
    until(lambda: route.depth() == 0, "the copies are taken too")
    assert dropped(worker.stop()) == twice
    assert route.dispatches() == {0}
    assert set(route.calls().values()) == {1}
    assert set(route.tries().values()) == {1}
    route.assert_all_done_once(ids)
