"""Nodes in processes of their own: `cronless serve` with an access file, called over real connections."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cronless_dagster.api.secrets import hash_of
from tests.api.support import KEY, PATH, TOKEN
from tests.rabbitmq.receiving import until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from threading import Event

    from cronless_dagster.rabbitmq.address import Broker
    from tests.processes import Spawner

ROOT = Path(__file__).parents[2]
ACCESS = f"""\
paths = ["{hash_of(PATH)}"]

[callers.client]
tokens = ["{hash_of(TOKEN)}"]
keys = ["{hash_of(KEY)}"]
checks = ["*"]
"""


@dataclass(frozen=True)
class Node:
    """One `cronless serve`."""

    process: subprocess.Popen[bytes]
    output: Path

    @property
    def started(self) -> dict[str, Any]:
        """What its log says of its start, waited for."""
        found: list[dict[str, Any]] = []

        def says() -> bool:
            assert self.process.poll() is None, self.output.read_text()
            lines = [
                json.loads(line) for line in self.output.read_text().splitlines() if line.startswith("{")
            ]
            found[:] = [line for line in lines if line.get("event") == "serve.started"]
            return bool(found)

        until(says, "the node serves")
        return found[0]

    def call(self, check: str = "dispatch", query: str = "range=0-f") -> tuple[dict[str, Any], str]:
        """Call a check; returns the answer and its date header.

        Raises:
            OSError, HTTPException: The node is gone.
        """
        connection = HTTPConnection(urlsplit(self.started["public"]).netloc, timeout=60)
        try:
            headers = {"Authorization": f"Bearer {TOKEN}", "X-Cronless-Key": KEY}
            connection.request("POST", f"/{PATH}/checks/{check}?{query}", headers=headers)
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == 200, body
            return json.loads(body), answer.headers["date"]
        finally:
            connection.close()

    def call_until(self, enough: Event, queries: Sequence[str]) -> None:
        """Call again and again until it is enough, or the node was killed."""
        for query in cycle(queries):
            if enough.is_set():
                return
            try:
                self.call(query=query)
            except (OSError, HTTPException):
                assert self.process.wait(timeout=30) < 0, self.output.read_text()
                return

    def kill(self) -> None:
        """Kill it as the kernel would."""
        self.process.kill()
        self.process.wait(timeout=30)


def start_node(
    spawn: Spawner, directory: Path, url: str, broker: Broker, *, wrong_by_seconds: float = 0
) -> Node:
    """Start a node on a database and a broker; `wrong_by_seconds` makes its clock fast or slow."""
    access = directory / "access.toml"
    access.write_text(ACCESS)
    output = directory / f"node-{len(list(directory.glob('node-*')))}"
    settings = {
        "CRONLESS_DATABASE_URL": url,
        "CRONLESS_BROKER_URL": broker.url,
        "CRONLESS_BROKER_PREFIX": broker.prefix,
        "CRONLESS_JOB_TYPES": "tests.outside.declared",
        "CRONLESS_API_ACCESS_FILE": str(access),
        "CRONLESS_HOME": str(directory),
    }
    inherited = {name: "" for name in os.environ if name.startswith("CRONLESS_") and "_TEST_" not in name}
    module = ["tests.outside.skewed", str(wrong_by_seconds)] if wrong_by_seconds else ["cronless_dagster.cli"]
    process = spawn(
        sys.executable,
        "-m",
        *module,
        "serve",
        "--bind=127.0.0.1:0",
        "--private-bind=127.0.0.1:0",
        "--json",
        env=inherited | settings,
        cwd=str(ROOT),
        output=output,
    )
    return Node(process, output)
