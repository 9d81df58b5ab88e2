"""A worker that is killed at each point of a job's way through it: another one does the rest."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.engine.support import sql
from tests.queue_route.support import dropped
from tests.worker.support import until

if TYPE_CHECKING:
    from tests.queue_route.support import Route

pytestmark = pytest.mark.crash

JOBS = 12
CONCURRENCY = 4
WORKER = ("worker", "work", "--json", "--concurrency", str(CONCURRENCY))


def test_before_the_start(route: Route) -> None:
    """Messages that were received and not acknowledged go to another worker: nobody waits, no try is counted."""
    ids = route.add(JOBS)
    route.clean_tick()
    route.kill_at("received", *WORKER)
    assert route.statuses() == {"QUEUED": JOBS}
    worker = route.worker()
    route.wait_until_done(JOBS)
    assert dropped(worker.stop()) == 0
    assert set(route.calls().values()) == {1}
    assert set(route.tries().values()) == {1}
    route.assert_all_done_once(ids)


@pytest.mark.parametrize("point", ["started", "running", "handled", "finishing"])
def test_after_the_start(route: Route, point: str) -> None:
    """Its jobs, and no others, are left to it for their lease, and then run once more, each alone."""
    ids = route.add(JOBS, **({"wait_for": str(route.directory / "go")} if point == "running" else {}))
    route.clean_tick()
    if point == "running":
        first = route.worker(concurrency=CONCURRENCY)
        until(lambda: len(route.calls()) == CONCURRENCY, "handlers run")
        first.kill()
        (route.directory / "go").touch()
    else:
        route.kill_at(point, *WORKER)
    held = {
        row.id for row in sql(route.engine, "SELECT id FROM cronless.scheduled_job WHERE status = 'RUNNING'")
    }
    assert held
    called = route.calls()
    assert set(called) <= held
    assert (point == "started") == (not called)

    worker = route.worker()
    route.wait_until_done(JOBS - len(held))
    route.clean_tick()
    assert route.statuses() == Counter(PENDING=JOBS - len(held)) + Counter(RUNNING=len(held))
    route.forward()
    assert route.clean_tick().reconciled == {"split": 1}
    route.wait_until_done(JOBS)
    # What it had started and not acknowledged came to the other worker too, and was refused there.
    refused = dropped(worker.stop())
    assert refused == len(held) if point == "started" else refused <= len(held)
    assert route.calls() == called + Counter(ids)
    assert {job_id for job_id, tries in route.tries().items() if tries == 2} == held
    route.assert_all_done_once(ids)


def test_after_the_completion(route: Route) -> None:
    """What was recorded stays so: nothing of it is left to be rescued."""
    ids = route.add(CONCURRENCY)
    route.clean_tick()
    route.kill_at("recorded", *WORKER)
    recorded = route.outcomes()["success"]
    worker = route.worker()
    route.forward()
    route.clean_tick()
    route.wait_until_done(CONCURRENCY)
    worker.stop()
    assert sum(route.tries().values()) == CONCURRENCY + (CONCURRENCY - recorded)
    route.assert_all_done_once(ids)
