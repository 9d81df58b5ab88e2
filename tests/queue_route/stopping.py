"""A `cronless` command that stops for ever at a named point, to be killed there.

Run as `python -m tests.queue_route.stopping POINT FILE ARGUMENT…`; FILE appears once the point is reached.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cronless_dagster.cli import main
from cronless_dagster.engine import queueing
from cronless_dagster.rabbitmq.publisher import Publisher
from cronless_dagster.worker import completing, loop
from cronless_dagster.worker.completing import Completer

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE_SIZE = 50
"""Messages of a page of a tick that stops."""


def stop_before(owner: Any, name: str, reached: Callable[[], None], *, calls: int = 0) -> None:
    """Stop where a function would be called once more than so many times."""
    original, made = getattr(owner, name), []

    def stopping(*rest: Any, **options: Any) -> Any:
        if len(made) == calls:
            reached()
        made.append(1)
        return original(*rest, **options)

    setattr(owner, name, stopping)


def stop_after(owner: Any, name: str, reached: Callable[[], None], *, calls: int = 1) -> None:
    """Stop where a function has returned for so many times."""
    original, made = getattr(owner, name), []

    def stopping(*rest: Any, **options: Any) -> Any:
        answer = original(*rest, **options)
        made.append(1)
        if len(made) == calls:
            reached()
        return answer

    setattr(owner, name, stopping)


POINTS: dict[str, Callable[[Callable[[], None]], None]] = {
    # The tick: before anything is published; in the middle of the second page; when the broker has all of the
    # second page and the row knows of the first only; when everything is known but that it is complete.
    "claimed": lambda reached: stop_before(queueing.QueueRoute, "publish", reached),
    "sending": lambda reached: stop_before(Publisher, "_write", reached, calls=PAGE_SIZE + PAGE_SIZE // 2),
    "confirmed": lambda reached: stop_after(Publisher, "publish", reached, calls=2),
    "noted": lambda reached: stop_before(queueing.outbox, "mark_dispatched", reached),
    # The worker: with messages in hand; after the start's commit, unacknowledged; after the handler; in the
    # transaction that records the result; after its commit.
    "received": lambda reached: stop_before(loop, "start_batch", reached),
    "started": lambda reached: stop_after(loop, "start_batch", reached),
    "handled": lambda reached: stop_before(Completer, "add", reached),
    "finishing": lambda reached: stop_after(completing, "finish_started", reached),
    "recorded": lambda reached: stop_after(completing, "with_partition", reached),
}


def run(point: str, file: str, *arguments: str) -> None:
    """Run the command; it never ends."""

    def reached() -> None:
        Path(file).touch()
        threading.Event().wait()

    queueing.PAGE_SIZE = PAGE_SIZE
    POINTS[point](reached)
    sys.argv = ["cronless", *arguments]
    main()


if __name__ == "__main__":
    run(*sys.argv[1:])
