"""A wrapper that ends its command when the process that started it is gone, however that happened.

`python guarded.py FD COMMAND…`: FD is the reading end of a pipe whose writing end only the starter holds. The
kernel closes it with the starter, be it killed. Standard library only.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

TERM_SECONDS = 10.0


def main(argv: list[str]) -> int:
    """Run the command in this process group until it ends or the starter is gone; returns its exit status."""
    watched = int(argv[0])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # The group is signalled as a whole: the command decides, and this waits for it.
        signal.signal(number, lambda *_: None)
    child = subprocess.Popen(argv[1:], stdin=subprocess.DEVNULL)  # noqa: S603 - our own command
    while child.poll() is None:
        readable, _, _ = select.select([watched], [], [], 0.3)
        if readable and not os.read(watched, 1):
            _end_group(child)
            return 1
    return child.returncode


def _end_group(child: subprocess.Popen[bytes]) -> None:
    os.killpg(os.getpgrp(), signal.SIGTERM)
    deadline = time.monotonic() + TERM_SECONDS
    while child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
