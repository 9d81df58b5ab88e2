"""Coroutine handlers: one loop for all, as many at once as threads, and failures that stay their own."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from cronless_dagster.engine.coroutines import run_coroutine
from cronless_dagster.engine.errors import PermanentFailure
from cronless_dagster.scheduling.models import Outcome
from tests.engine.support import after
from tests.engine.test_handlers import CONTEXT, outcomes

if TYPE_CHECKING:
    from cronless_dagster.engine.handlers import HandlerContext
    from cronless_dagster.store.rows import ClaimedJob


async def wait_a_moment(_job: ClaimedJob) -> None:
    """Do nothing, later."""
    await asyncio.sleep(0)


def test_its_answer_is_the_coroutines() -> None:
    """What it returns is read as a plain function's answer is."""

    async def handler(job: ClaimedJob) -> Any:
        await asyncio.sleep(0)
        return after(hours=1) if job.name == "1" else None

    assert outcomes(handler, 2) == [Outcome("success"), Outcome("success", next_at=after(hours=1))]


def test_a_second_parameter_is_the_context() -> None:
    """A coroutine function is given the context as a plain one is."""
    seen: list[Any] = []

    async def handler(job: ClaimedJob, context: HandlerContext) -> None:
        seen.append((job.name, context))

    outcomes(handler)
    assert seen == [("0", CONTEXT)]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("no"), Outcome("failure", error="ValueError: no")),
        (PermanentFailure("gone"), Outcome("failure", error="gone", retry=False)),
        (SystemExit(3), Outcome("failure", error="SystemExit: 3")),
        (KeyboardInterrupt(), Outcome("failure", error="KeyboardInterrupt: no message")),
        (asyncio.CancelledError(), Outcome("failure", error="CancelledError: no message")),
    ],
)
def test_what_it_raises_is_its_jobs_failure(error: BaseException, expected: Outcome) -> None:
    """Whatever it raises fails its own job; the loop goes on, and so do the others on it."""

    async def handler(job: ClaimedJob) -> None:
        await asyncio.sleep(0)
        if job.name == "1":
            raise error

    assert outcomes(handler, 3, concurrency=2) == [Outcome("success"), expected, Outcome("success")]


def test_as_many_at_once_as_asked_on_one_loop() -> None:
    """Four coroutines meet although each waits for all, and all share the process's loop."""
    loops: set[int] = set()
    threads: set[str] = set()
    arrived: list[int] = []

    async def handler(_job: ClaimedJob) -> None:
        loops.add(id(asyncio.get_running_loop()))
        threads.add(threading.current_thread().name)
        arrived.append(1)
        while len(arrived) < 4:
            await asyncio.sleep(0.001)

    assert {one.kind for one in outcomes(handler, 8, concurrency=4)} == {"success"}
    assert len(loops) == 1
    assert threads == {"coroutines"}


def test_whatever_returns_a_coroutine_is_waited_for() -> None:
    """A partial or a plain function around a coroutine function is no less a handler."""
    assert outcomes(functools.partial(wait_a_moment)) == [Outcome("success")]
    assert outcomes(lambda job, _context: wait_a_moment(job)) == [Outcome("success")]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_has_a_loop_of_its_own() -> None:
    """The loop's thread doesn't come along into a child, which makes another one."""

    async def seven() -> int:
        return 7

    assert run_coroutine(seven()) == 7
    child = os.fork()
    if child == 0:
        os._exit(run_coroutine(seven()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
