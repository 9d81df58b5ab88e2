"""`cronless client`: a minute's calls, each minute's, or a look at them, without a database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.client.support import ENVIRONMENT, serving, text_of, unused_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Ran

SIXTEEN = '[[check]]\nname = "dispatch"\nprefix_length = 1\n[[check]]\nname = "hourly"\nspread_minutes = 60\n'
ONCE = "most = 0"


@pytest.fixture
def client(
    run_anywhere: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ran]:
    """Run the command with a configuration of these targets, and the made-up secrets."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)

    def run(targets: dict[str, str], *arguments: str, top: str = "") -> Ran:
        file = tmp_path / "checks.toml"
        file.write_text(text_of(targets, SIXTEEN, top=top, retries=ONCE))
        return run_anywhere("client", "--config", str(file), *arguments)

    return run


def test_a_minutes_calls(client: Callable[..., Ran]) -> None:
    """Each group is called once; people get a line, machines an object."""
    with serving() as eu:
        ran = client({"eu": eu.url})
        machines = client({"eu": eu.url}, "--once", "--json")
    assert ran.status == 0, ran
    assert "17 calls, 17 acted" in ran.stdout
    assert len(set(eu.paths)) in (17, 18)  # a minute may begin between the two
    assert {key: machines.json[key] for key in ("calls", "answered", "failed", "lost", "acted")} == {
        "calls": 17, "answered": 17, "failed": 0, "lost": 0, "acted": 17,
    }  # fmt: skip


def test_the_exit_status_is_for_alarms(client: Callable[..., Ran]) -> None:
    """A region away is 0 while another answers, unless any failure is to count; a group lost is 3."""
    away = f"http://127.0.0.1:{unused_port()}"
    with serving() as eu:
        both = {"eu": eu.url, "us": away}
        assert client(both).status == 0
        assert client(both, "--fail-on", "any").status == 3
        assert "us (dispatch 16, hourly 1): nobody listens there" in client(both).stdout
    lost = client({"eu": away}, "--json")
    assert (lost.status, lost.json["lost"]) == (3, 17)


def test_a_dry_run_calls_nobody_and_needs_no_secret(
    client: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calls of any minute, in any region, at a width of 80 columns."""
    for name in ENVIRONMENT:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CRONLESS_CLIENT_SELF", "us")
    with serving() as eu:
        targets = {"eu": eu.url, "us": "https://us.example.org"}
        arguments = ("--dry-run", "--minute", "2026-12-01T10:07+01:00")
        ran = client(targets, *arguments, top="skip_self = true")
        machines = client(targets, *arguments, "--json", top="skip_self = true")
    assert ran.status == 0, ran
    assert "2026-12-01 09:07Z  17 calls, each group to 1 target:" in ran.stdout
    assert "dispatch  prefix=b\n" in ran.stdout
    assert max(map(len, ran.stdout.splitlines())) <= 80
    assert {one["target"] for one in machines.json["calls"]} == {"eu"}
    assert machines.json["calls"][11]["url"] == f"{eu.url}/***/checks/dispatch?prefix=b"
    assert eu.paths == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--once", "--loop"), "--once and --loop exclude each other"),
        (("--loop", "--dry-run"), "--loop and --dry-run exclude each other"),
        (("--minute", "2026-12-01T09:00Z"), "--minute needs --dry-run"),
        (("--dry-run", "--minute", "soon"), "'soon' is no instant"),
        (("--dry-run", "--minute", "2026-12-01T09:00"), "no offset"),
        (("--config", "absent.toml"), "'absent.toml' can't be read"),
        (("--fail-on", "none"), "'none' is not one of"),
    ],
)
def test_what_cannot_be_used_is_a_sentence(
    client: Callable[..., Ran], arguments: tuple[str, ...], words: str
) -> None:
    """Options that contradict each other, instants that are none, files that aren't there."""
    targets = {"eu": f"http://127.0.0.1:{unused_port()}"}
    assert words in client(targets, *arguments).refused()
    machines = client(targets, *arguments, "--json")
    assert machines.status == 2
    assert words in machines.json["error"]


def test_a_missing_secret_is_named(client: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is called."""
    monkeypatch.delenv("CRONLESS_CLIENT_TOKEN")
    with serving() as eu:
        assert "set CRONLESS_CLIENT_TOKEN, or" in client({"eu": eu.url}).refused()
    assert eu.paths == []


def test_a_loop_ends_by_sigterm(tmp_path: Path) -> None:
    """The running minute is called at once; told to end, it does, with status 0."""
    with serving() as eu:
        file = tmp_path / "checks.toml"
        file.write_text(text_of({"eu": eu.url}))
        command = (
            sys.executable,
            "-m",
            "cronless_dagster.cli",
            "client",
            "--config",
            str(file),
            "--loop",
            "--json",
        )
        with subprocess.Popen(
            command,
            env={**os.environ, **ENVIRONMENT},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as loop:
            assert loop.stdout is not None
            first = json.loads(loop.stdout.readline())
            loop.send_signal(signal.SIGTERM)
            _, said = loop.communicate(timeout=60)
    assert (first["calls"], first["answered"], first["missed_minutes"]) == (1, 1, 0)
    assert (loop.returncode, said) == (0, "stopped\n")
