"""The demo's side of the queue route: three workers, and how the queues stand."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cronless_dagster.demo.processes import Processes
from cronless_dagster.rabbitmq import DEAD
from cronless_dagster.rabbitmq.errors import BrokerError
from cronless_dagster.rabbitmq.publisher import Publisher

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from cronless_dagster.rabbitmq.address import Broker
    from cronless_dagster.rabbitmq.topology import QueueDepth

WORKERS = 3
_LOOK_SECONDS = 10.0
_SAY_SECONDS = 60.0


def start_workers(logs: Path, environment: Mapping[str, str]) -> Processes:
    """Return the running workers, which serve every job type of the queue route; leave them to end them."""
    workers = Processes(logs, environment)
    for number in range(1, WORKERS + 1):
        workers.start(
            f"worker-{number}", "cronless", "worker", "--concurrency", "4", "--drain", "10", restart=True
        )
    return workers


class QueueWatcher:
    """Looks at the queues now and then; `news` says how they stand."""

    def __init__(self, broker: Broker, job_types: Sequence[str]) -> None:
        """Prepare to watch the queues of these job types."""
        self._broker, self._job_types = broker, job_types
        self._said: object = None
        self._said_at = self._looked_at = -math.inf

    def news(self) -> Iterator[str]:
        """Yield a line where more or less waits than when that was said last, and once a minute."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        stands: object
        try:
            with Publisher(self._broker) as publisher:
                depths = publisher.depths(self._job_types)
        except BrokerError as error:
            stands = words = str(error)
        else:
            # Not by the consumers: a worker that is busy leaves its queues for a moment.
            stands, words = {name: depth.messages for name, depth in depths.items()}, _in_words(depths)
        if stands != self._said or now - self._said_at >= _SAY_SECONDS:
            self._said, self._said_at = stands, now
            yield f"{datetime.now(UTC):%H:%M:%S}  queues  {words}"


def _in_words(depths: Mapping[str, QueueDepth]) -> str:
    queues = {name: depth for name, depth in sorted(depths.items()) if name != DEAD}
    if not queues:
        return "none yet"
    waiting = ", ".join(f"{name} {depth.messages:,}" for name, depth in queues.items())
    words = f"waiting: {waiting}; workers: {max(depth.consumers for depth in queues.values())}"
    if DEAD in depths and depths[DEAD].messages:
        words += f"; dead letters: {depths[DEAD].messages:,}"
    return words
