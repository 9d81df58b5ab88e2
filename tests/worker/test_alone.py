"""Messages that must run alone: nothing beside them, and everything before them written first."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from cronless_dagster.worker import completing, intake
from tests.worker.support import GUARD_SECONDS, Site, queue_types, until, working

if TYPE_CHECKING:
    import pytest

    from cronless_dagster.store.rows import ClaimedJob


def test_a_suspect_runs_while_nothing_else_does(site: Site) -> None:
    """What runs ends and is written before it begins, and nothing begins before its own result is written."""
    alone = site.claimed(2, alone=True)
    others = site.claimed(60)
    suspects = {one.job_id for one in alone}
    running: list[ClaimedJob] = []
    beside: list[int] = []
    written_before: list[int] = []
    entered = threading.Lock()

    def handler(job: ClaimedJob) -> None:
        with entered:
            running.append(job)
        if job.id in suspects:
            beside.append(len(running))
            written_before.append(site.statuses().get("RUNNING", 0))
        threading.Event().wait(0.02)
        with entered:
            running.remove(job)

    site.publish([*others[:20], alone[0], *others[20:40], alone[1], *others[40:]])
    with working(site, queue_types(handler), concurrency=8) as worker:
        until(lambda: worker.counts.done == 62, "all done")
    assert beside == [1, 1]
    assert written_before == [1, 1]
    assert site.all_once(62)


def test_a_suspect_that_waits_too_long_goes_to_an_idle_worker(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where what runs takes long, the messages go back, and whoever is idle runs them; nothing is started here."""
    monkeypatch.setattr(intake, "ALONE_SECONDS", intake.HELD_SECONDS + 1)
    going, begun = threading.Event(), threading.Event()

    def slow(_job: ClaimedJob) -> None:
        begun.set()
        assert going.wait(GUARD_SECONDS)

    site.due(1)
    with working(site, queue_types(slow), concurrency=4) as busy:
        assert begun.wait(GUARD_SECONDS)
        suspect = site.claimed(1, alone=True)
        site.publish(suspect)
        until(lambda: busy.counts.held == 1, "it came")
        others = site.due(3)
        until(lambda: busy.counts.returned >= 3, "the others went back, although three threads are free")
        assert busy.counts.in_flight == 1
        with working(site) as idle:
            until(lambda: idle.counts.done == 4, "an idle worker ran all")
            assert {site.row(one).last_outcome for one in [*suspect, *others]} == {"success"}
        going.set()
        until(lambda: busy.counts.done == 1, "done")
    assert site.all_once(5)


def test_a_suspect_is_written_at_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else begins before its result is written, so that it doesn't wait to be written with others."""
    monkeypatch.setattr(completing, "FLUSH_SECONDS", 10 * GUARD_SECONDS)
    site.due(3, alone=True)
    with working(site) as worker:
        until(lambda: worker.counts.done == 3, "all done")
    assert site.all_once(3)
