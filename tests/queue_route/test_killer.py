"""A job that kills its worker: those beside it are done, and it is found out once it has died alone three times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cronless_dagster.engine.rescue import MAX_CRASHES
from tests.engine.support import row, sql
from tests.worker.support import until

if TYPE_CHECKING:
    from tests.queue_route.support import Route

pytestmark = pytest.mark.crash

NEIGHBOURS = 7


def test_job_that_kills_its_worker(route: Route) -> None:
    """Its neighbours run once more and succeed; it takes nobody along any more, and ends INVALID."""
    go, armed = route.directory / "go", route.directory / "armed"
    innocent = route.add(NEIGHBOURS, wait_for=str(go))
    [culprit] = route.add(1, wait_for=str(armed), kills=True)
    route.clean_tick()
    worker = route.worker(concurrency=NEIGHBOURS + 1)
    until(lambda: len(route.calls()) == NEIGHBOURS + 1, "all run side by side")
    armed.touch()
    assert worker.process.wait(timeout=60) == 9
    go.touch()

    deaths = 0
    worker = route.worker(concurrency=NEIGHBOURS + 1)
    while row(route.engine, culprit).status != "INVALID":
        route.forward()
        route.clean_tick()
        called = route.calls()[culprit]
        if row(route.engine, culprit).status == "INVALID":
            break
        until(lambda called=called: route.calls()[culprit] > called, "it is called once more")
        assert worker.process.wait(timeout=60) == 9
        deaths += 1
        worker = route.worker(concurrency=NEIGHBOURS + 1)
    assert deaths == MAX_CRASHES
    route.clean_tick()
    route.wait_until_done(NEIGHBOURS)
    worker.stop()

    assert route.outcomes() == {"success": NEIGHBOURS, "crashed": MAX_CRASHES}
    found = row(route.engine, culprit)
    assert found.invalid_reason.startswith("kills its worker")
    assert (found.crashes, found.consecutive_failures, found.claim_id) == (MAX_CRASHES, 0, None)
    # Each neighbour was beside it once, and never again.
    calls = route.calls()
    assert {calls[one] for one in innocent} == {2}
    assert calls[culprit] == 1 + MAX_CRASHES
    assert sql(
        route.engine, "SELECT DISTINCT crashes FROM cronless.scheduled_job WHERE id <> :id", id=culprit
    ) == [(0,)]
    route.assert_all_done_once(innocent, others=1)
