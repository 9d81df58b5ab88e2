"""A check that finds nothing to do, asked of one node over loopback: `python -m benchmarks.check_api`.

`cronless serve` is one process, whoever asks is another, and both share the machine with PostgreSQL. Beside it the same
node is asked a check that does nothing at all, in turn: what is left is what looking at the state costs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.check_api_nodes import NOTHING
from benchmarks.support import Ratio, database, fill, print_table, server
from cronless_dagster.api.secrets import hash_of, new_secret

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cronless_dagster.store.embedded import EmbeddedPostgres

MOST_MILLISECONDS = 5.0
WANTED_PER_SECOND = 300.0
CONNECTIONS = 8
_START_SECONDS = 60.0


@dataclass(frozen=True)
class Node:
    """A node that serves, and the secrets that open it."""

    port: int
    path: str
    token: str
    key: str

    def load(self, check: str, seconds: float, connections: int) -> list[float]:
        """Ask for so long from another process; returns the milliseconds of each answer."""
        request = (
            f"POST /{self.path}/checks/{check}?prefix=GROUP HTTP/1.1\r\nHost: bench\r\n"
            f"Authorization: Bearer {self.token}\r\nX-Cronless-Key: {self.key}\r\n\r\n"
        )
        orders = {
            "host": "127.0.0.1", "port": self.port, "request": request, "status": 200,
            "seconds": seconds, "connections": connections,
        }  # fmt: skip
        ran = subprocess.run(
            [sys.executable, "-m", "benchmarks.check_api_load"],
            input=json.dumps(orders), capture_output=True, text=True, check=True,
        )  # fmt: skip
        times: list[float] = json.loads(ran.stdout)
        return times


@contextmanager
def node(database_url: str, directory: Path) -> Iterator[Node]:
    """Run `cronless serve`; the block begins once it listens."""
    path, token, key = new_secret(), new_secret(), new_secret()
    access = directory / "access.toml"
    access.write_text(
        f'paths = ["{hash_of(path)}"]\n[callers.bench]\ntokens = ["{hash_of(token)}"]\nkeys = ["{hash_of(key)}"]\n'
        'checks = ["*"]\n'
    )
    environment = {
        **os.environ,
        "CRONLESS_DATABASE_URL": database_url,
        "CRONLESS_JOB_TYPES": "benchmarks.check_api_nodes",
        "CRONLESS_CHECKS": "benchmarks.check_api_nodes",
        "CRONLESS_API_ACCESS_FILE": str(access),
        "CRONLESS_API_CALLS_PER_SECOND": "100000",
    }
    command = [
        sys.executable, "-m", "cronless_dagster.cli", "serve", "--bind", "127.0.0.1:0",
        "--private-bind", "127.0.0.1:0", "--linger", "0",
    ]  # fmt: skip
    log = directory / "log"
    with (
        log.open("wb") as output,
        subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process,
    ):
        try:
            yield Node(_port(log, process), path, token, key)
        finally:
            process.terminate()
            process.wait(timeout=60)


def _port(log: Path, process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r"public=http://127\.0\.0\.1:(\d+)", log.read_text()):
            return int(found[1])
        time.sleep(0.05)
    raise RuntimeError(f"the node doesn't serve: {log.read_text()}")


def measure(running: EmbeddedPostgres, *, quick: bool = False) -> list[Ratio]:
    """Return the check's median alone and under load, beside the check that does nothing, and its rate."""
    rows, seconds, turns = (10_000, 0.3, 1) if quick else (1_000_000, 3.0, 4)
    alone: dict[str, list[float]] = {"dispatch": [], NOTHING: []}
    loaded: dict[str, list[float]] = {"dispatch": [], NOTHING: []}
    with (
        tempfile.TemporaryDirectory(prefix="bench-api-") as directory,
        database(running, "check_api") as engine,
    ):
        fill(engine, rows, due=False)
        with node(engine.url.render_as_string(hide_password=False), Path(directory)) as served:
            for check in (NOTHING, "dispatch"):
                # Each group's first call makes a whole tick, since nobody has noted one.
                served.load(check, 2 * seconds, CONNECTIONS)
            for turn in range(turns):
                for check in list(alone)[:: 1 if turn % 2 else -1]:
                    alone[check] += served.load(check, seconds, 1)
                    loaded[check] += served.load(check, seconds, CONNECTIONS)
    rate = len(loaded["dispatch"]) / turns / seconds
    return [
        Ratio(
            f"a no-op check over HTTP, {rows:,} rows, beside a check of nothing",
            median(alone["dispatch"]), median(alone[NOTHING]), "ms", 3.0, "at most",
        ),
        Ratio(
            f"a no-op check over HTTP, {rows:,} rows, beside {MOST_MILLISECONDS:g} ms",
            median(alone["dispatch"]), MOST_MILLISECONDS, "ms", 1.0, "at most",
        ),
        Ratio(
            f"no-op checks of one node, beside {WANTED_PER_SECOND:g}/s", rate, WANTED_PER_SECOND, "/s", 1.0, "at least"
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    with server() as made:
        print_table(measure(made), "the check API")
