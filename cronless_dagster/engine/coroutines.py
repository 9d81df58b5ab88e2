"""Handlers that are coroutine functions: one event loop for the process, in a thread of its own.

A handler's thread waits for its coroutine, so what a job type or a worker allows at once holds for both kinds alike.
One loop, since clients of asyncio (a session of HTTP, a pool of connections) belong to the loop they were made in.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

_making = threading.Lock()
_current: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on the process's event loop and wait for it in the calling thread.

    Raises:
        BaseException: What the coroutine raised. `SystemExit` reaches the caller and leaves the loop alone.
    """
    answer, error = asyncio.run_coroutine_threadsafe(_guarded(coroutine), _loop()).result()
    if error is not None:
        raise error
    return answer


async def _guarded(coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    # A task that lets SystemExit or KeyboardInterrupt out ends the loop, and with it all others' coroutines.
    try:
        return await coroutine, None
    except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
        return None, error


def _loop() -> asyncio.AbstractEventLoop:
    global _current  # noqa: PLW0603 - the process's one loop
    with _making:
        # After a fork the child has the loop without its thread.
        if _current is None or not _current[1].is_alive():
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="coroutines", daemon=True)
            thread.start()
            _current = loop, thread
        return _current[0]
