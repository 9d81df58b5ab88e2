"""Switches that a test turns on and another process takes: files in a directory that both know."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from uuid import uuid4

VARIABLE = "TEST_SWITCHES"


def _directory() -> Path:
    return Path(os.environ[VARIABLE])


def take(name: str) -> str | None:
    """Take a switch if it is on, so that it works once; returns what was written into it."""
    taken = _directory() / f"{name}.{uuid4().hex}"
    try:
        (_directory() / name).rename(taken)
    except FileNotFoundError:
        return None
    return taken.read_text(encoding="utf-8")


def die_if(name: str) -> None:
    """Kill this process at once, as the kernel would, if the switch is on."""
    if take(name) is not None:
        os.kill(os.getpid(), signal.SIGKILL)


def wait_for(name: str, seconds: float = 120.0) -> None:
    """Wait until a switch is on."""
    deadline = time.monotonic() + seconds
    while not (_directory() / name).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the switch {name!r} was not turned on within {seconds:g} s")
        time.sleep(0.05)
