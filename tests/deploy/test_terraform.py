"""The Terraform example: it can be read, fits together, and its function makes the calls."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import hcl2
import pytest

from tests.deploy.files import DEPLOY, ROOT, needs_terraform

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AWS = DEPLOY / "terraform" / "aws"
FILES = sorted(AWS.rglob("*.tf"))


def _module(directory: Path) -> dict[str, list[Any]]:
    """The blocks of a module, by their kind, with what they are named by in quotes taken off."""
    blocks: dict[str, list[Any]] = {}
    for file in sorted(directory.glob("*.tf")):
        with file.open() as reading:
            for kind, found in hcl2.load(reading).items():
                if isinstance(found, list):
                    blocks.setdefault(kind, []).extend(found)
    return blocks


def _named(blocks: dict[str, list[Any]], kind: str) -> dict[str, Any]:
    return {
        name.strip('"'): body
        for block in blocks.get(kind, [])
        for name, body in block.items()
        if name[:2] != "__"
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(AWS)))
def test_each_file_can_be_read(file: Path) -> None:
    """As HCL, by a reader that isn't Terraform."""
    with file.open() as reading:
        assert hcl2.load(reading)


@pytest.mark.parametrize("directory", [AWS, AWS / "client"], ids=["root", "client"])
def test_variables_are_described_and_used(directory: Path) -> None:
    """Each has a type and a description, and something uses it; each output is described."""
    blocks = _module(directory)
    text = "".join(file.read_text() for file in directory.glob("*.tf"))
    variables = _named(blocks, "variable")
    assert variables
    for name, variable in variables.items():
        assert {"type", "description"} <= set(variable), name
        assert text.count(f"var.{name}") > (1 if "validation" in variable else 0), name
    assert set(re.findall(r"\bvar\.(\w+)", text)) == set(variables)
    assert all("description" in output for output in _named(blocks, "output").values())


def test_both_regions_give_the_module_what_it_needs() -> None:
    """Two instances, by two providers, with the same arguments: those that have no default."""
    needed = {
        name for name, one in _named(_module(AWS / "client"), "variable").items() if "default" not in one
    }
    modules = _named(_module(AWS), "module")
    assert set(modules) == {"first", "second"}
    for name, module in modules.items():
        given = {key for key in module if not key.startswith("__")} - {"source", "providers"}
        assert given == needed
        assert f"aws.{name}" in str(module["providers"])
        assert f"var.regions.{name}" in str(module["region"])


def test_every_reference_is_to_something() -> None:
    """Each resource and each data source that is referred to is one of the module."""
    text = "".join(
        re.sub(r"^\s*#.*$", "", file.read_text(), flags=re.MULTILINE) for file in AWS.glob("client/*.tf")
    )
    declared = {
        f"{kind}.{name}" for kind, name in re.findall(r'^resource "(\w+)" "(\w+)"', text, re.MULTILINE)
    }
    declared |= {
        f"data.{kind}.{name}" for kind, name in re.findall(r'^data "(\w+)" "(\w+)"', text, re.MULTILINE)
    }
    used = set(re.findall(r"(?:data\.)?\b(?:aws|archive)_\w+\.\w+", text))
    assert used <= declared
    # A function alone does nothing, and one that fails unseen is no help.
    for kind in (
        "aws_scheduler_schedule",
        "aws_lambda_function",
        "aws_cloudwatch_metric_alarm",
        "aws_sqs_queue",
    ):
        assert any(one.startswith(f"{kind}.") for one in declared)


def test_the_schedule_names_its_minute() -> None:
    """Terraform's jsonencode would hide the scheduler's keyword from it: the text stands there as it is."""
    text = (AWS / "client" / "schedule.tf").read_text()
    (written,) = re.findall(r"^\s*input\s*=\s*(.*)$", text, re.MULTILINE)
    assert json.loads(json.loads(written)) == {"time": "<aws.scheduler.scheduled-time>"}
    assert '"cron(* * * * ? *)"' in text


def test_no_secret_comes_into_the_state() -> None:
    """Only the secret's name and ARN are read, never a version of its value."""
    for file in FILES:
        assert "aws_secretsmanager_secret_version" not in file.read_text()


@needs_terraform
def test_terraform_would_format_it_so() -> None:
    """`terraform fmt` has nothing to change."""
    done = subprocess.run(
        ["terraform", "fmt", "-check", "-recursive", AWS],
        env=_quiet(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_terraform
@pytest.mark.skipif(
    "TF_PLUGIN_CACHE_DIR" not in os.environ,
    reason="Terraform's provider for AWS is 700 MB: name a directory that has it in TF_PLUGIN_CACHE_DIR",
)
def test_terraform_finds_it_valid(tmp_path: Path) -> None:
    """`terraform validate`, by the provider's schemas."""
    copy = tmp_path / "deploy" / "terraform" / "aws"
    shutil.copytree(AWS, copy, ignore=shutil.ignore_patterns(".terraform"))
    for command in (["init", "-backend=false", "-input=false"], ["validate"]):
        done = subprocess.run(
            ["terraform", f"-chdir={copy}", *command],
            env=_quiet(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


class _Api(BaseHTTPRequestHandler):
    """Answers each call, and remembers it."""

    seen: list[tuple[str, str | None, str | None]]

    def do_POST(self) -> None:
        """Say that nothing was to be done."""
        self.seen.append((self.path, self.headers["Authorization"], self.headers["X-Cronless-Key"]))
        body = b'{"check": "dispatch", "acted": 0}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def api() -> Iterator[ThreadingHTTPServer]:
    """An API that answers every call, on loopback."""
    handler = type("Api", (_Api,), {"seen": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_its_function_makes_the_calls(tmp_path: Path, api: ThreadingHTTPServer) -> None:
    """The code as it is put together for Lambda, in a bare Python with a stand-in of boto3, calls with the secrets."""
    text = (AWS / "client" / "function.tf").read_text()
    folder = re.search(r'abspath\("\$\{path\.module\}/([^"]+)"\)', text)
    pattern = re.search(r'fileset\(local\.folder, "([^"]+)"\)', text)
    handler = re.search(r'^\s*handler\s*=\s*"(\w+)\.(\w+)"', text, re.MULTILINE)
    assert folder
    assert pattern
    assert handler
    source = (AWS / "client" / folder[1]).resolve()
    assert source == ROOT / "cronless_dagster" / "client"
    code = tmp_path / "code"
    (code / "client").mkdir(parents=True)
    for file in source.glob(pattern[1]):
        shutil.copy(file, code / "client")
    shutil.copy(AWS / "client" / "function.py", code)
    host, port = api.server_address[:2]
    (code / "checks.toml").write_text(
        f'plain_http = true\n[targets]\nhere = "http://{host!s}:{port}"\n[[check]]\nname = "dispatch"\n'
    )
    (code / "boto3.py").write_text(_BOTO3)
    program = f"""
import sys
sys.path.insert(0, {str(code)!r})
from {handler[1]} import {handler[2]}
class Context:
    def get_remaining_time_in_millis(self):
        return 20_000
print({handler[2]}({{}}, Context()))
"""
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", program],
        env={"SECRET_NAME": "made/up"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ((path, token, key),) = api.RequestHandlerClass.seen  # type: ignore[attr-defined]
    assert path.startswith("/made-up-secret-path/checks/dispatch")
    assert (token, key) == ("Bearer made-up-bearer-token", "made-up-second-key")


_BOTO3 = """
import json

MADE_UP = {"path": "made-up-secret-path", "token": "made-up-bearer-token", "key": "made-up-second-key"}

class _Secrets:
    def get_secret_value(self, SecretId):
        assert SecretId == "made/up"
        return {"SecretString": json.dumps(MADE_UP)}

def client(service):
    assert service == "secretsmanager"
    return _Secrets()
"""


def _quiet() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name != "TF_CLI_CONFIG_FILE"} | {
        "CHECKPOINT_DISABLE": "1"
    }
