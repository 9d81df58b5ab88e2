"""A running `cronless serve` for tests: made-up secrets, and a check that takes as long as it is told."""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from cronless_dagster.api.secrets import hash_of
from cronless_dagster.checks.declaring import Answer, Asked, Check, Checks

if TYPE_CHECKING:
    from tests.processes import Spawner

PATH, TOKEN, KEY = "p" * 43, "t" * 43, "k" * 43
HEADERS = {"Authorization": f"Bearer {TOKEN}", "X-Cronless-Key": KEY}
ACCESS = (
    f'paths = ["{hash_of(PATH)}"]\n[callers.eu]\ntokens = ["{hash_of(TOKEN)}"]\nkeys = ["{hash_of(KEY)}"]\n'
    'checks = ["*"]\nnow = true\n'
)
SLOW = "slow"


def slow(asked: Asked) -> Answer:
    """Take until a file named by the range's first digits is there: a hang guard ends it."""
    began = Path.cwd() / f"began-{asked.ids.low.hex[:1]}"
    began.touch()
    hang_guard = time.monotonic() + 60
    while time.monotonic() < hang_guard and not (Path.cwd() / "end").exists():
        time.sleep(0.02)
    return Answer(1, {}, ())


checks = Checks((Check(name=SLOW, ids="nothing", every=timedelta(minutes=1), ask=slow),))


@dataclass
class Serving:
    """A running node."""

    process: Any
    directory: Path
    public: str
    private: str

    @property
    def log(self) -> str:
        """Return what it has logged."""
        return (self.directory / "log").read_text()

    @property
    def events(self) -> list[dict[str, Any]]:
        """Return its log's lines, where they are JSON."""
        return [json.loads(line) for line in self.log.splitlines()]

    def call(self, check: str = "dispatch", query: str = "prefix=b", **options: Any) -> httpx.Response:
        """Call a check, authorised unless told."""
        headers = {**HEADERS, **options.pop("headers", {})}
        return httpx.post(
            f"{self.public}/{PATH}/checks/{check}?{query}", headers=headers, timeout=60, **options
        )


def started(spawn: Spawner, directory: Path, url: str, *options: str, access: str = ACCESS) -> Serving:
    """Start the command on free ports, in this directory."""
    (directory / "access.toml").write_text(access)
    command = (
        sys.executable, "-m", "cronless_dagster.cli", "serve", "--bind", "127.0.0.1:0", "--private-bind",
        "127.0.0.1:0", *options,
    )  # fmt: skip
    environment = {
        "CRONLESS_DATABASE_URL": url,
        "CRONLESS_API_ACCESS_FILE": str(directory / "access.toml"),
        "CRONLESS_JOB_TYPES": "tests.cli.declared",
        "CRONLESS_CHECKS": "tests.cli.serving",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    process = spawn(*command, env=environment, output=directory / "log", cwd=directory)
    hang_guard = time.monotonic() + 60
    while time.monotonic() < hang_guard and process.poll() is None:
        found = re.findall(r"http://127\.0\.0\.1:\d+", (directory / "log").read_text())
        if len(found) == 2:
            return Serving(process, directory, *found)
        time.sleep(0.05)
    pytest.fail((directory / "log").read_text())
