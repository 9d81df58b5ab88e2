"""The worker process that the benchmarks of the queue route run beside their tick."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil

from benchmarks.queue_handlers import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cronless_dagster.rabbitmq.address import Broker

_START_SECONDS = 60.0


@contextmanager
def worker_process(database_url: str, broker: Broker) -> Iterator[psutil.Process]:
    """Run `cronless worker` on the benchmarks' job type; the block begins once it consumes."""
    command = [
        sys.executable, "-m", "cronless_dagster.cli", "worker", NAME,
        "--handlers", "benchmarks.queue_handlers", "--json",
    ]  # fmt: skip
    environment = {
        **os.environ,
        "CRONLESS_DATABASE_URL": database_url,
        "CRONLESS_BROKER_URL": broker.url,
        "CRONLESS_BROKER_PREFIX": broker.prefix,
    }
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            _wait_for_consumer(broker, process)
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(timeout=60)


def _wait_for_consumer(broker: Broker, process: subprocess.Popen[bytes]) -> None:
    from cronless_dagster.rabbitmq.publisher import Publisher

    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with Publisher(broker) as publisher:
            depth = publisher.depths([NAME]).get(NAME)
        if depth is not None and depth.consumers:
            return
        time.sleep(0.2)
    raise RuntimeError("the worker doesn't consume")
