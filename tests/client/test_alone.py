"""The folder is deployed by itself: it needs Python and nothing else, under any name of its parent."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cronless_dagster.client as subject
from tests.client.support import ENVIRONMENT, serving, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.client.support import Served

MAIN = "import runpy; runpy.run_module('client', run_name='__main__', alter_sys=True)"
LAMBDA = (
    "import json; from client.handlers import lambda_handler; print(json.dumps(lambda_handler({}, None)))"
)
FOREIGN = (
    "import sys; from pathlib import Path; import client.handlers, client.__main__;"
    "print([n for n in sys.modules if n.partition('.')[0] not in {*sys.stdlib_module_names, 'client', '__main__'}])"
)


@pytest.fixture
def bare(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Python on a copy of the folder named `client`, without site-packages, working directory, or environment."""
    shutil.copytree(
        Path(str(subject.__file__)).parent, tmp_path / "client", ignore=shutil.ignore_patterns("__pycache__")
    )

    def run(code: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        there = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"
        return subprocess.run(
            (sys.executable, "-S", "-I", "-c", there, *arguments),
            env={**ENVIRONMENT, **environ}, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip

    return run


def write(bare_folder: Path, eu: Served) -> Path:
    """Put a configuration beside the folder."""
    file = bare_folder / "checks.toml"
    file.write_text(text_of({"eu": eu.url}, retries="most = 0"))
    return file


def test_it_imports_the_standard_library_only(bare: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """Whatever it loads comes with Python."""
    assert bare(FOREIGN).stdout == "[]\n"


def test_it_calls(bare: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    """`python -m client` makes a minute's calls and says so, for people and for machines."""
    with serving() as eu:
        config = str(write(tmp_path, eu))
        people = bare(MAIN, "--config", config)
        machines = bare(MAIN, "--config", config, "--once", "--json")
    assert (people.returncode, people.stderr) == (0, "")
    assert "1 call, 1 acted" in people.stdout
    assert json.loads(machines.stdout)["answered"] == 1
    assert len(eu.paths) == 2


def test_a_function_finds_its_configuration_beside_it(
    bare: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """A zip of the folder and of `checks.toml` is all that a cloud needs."""
    with serving() as eu:
        write(tmp_path, eu)
        ran = bare(LAMBDA)
    assert json.loads(ran.stdout)["answered"] == 1, ran.stderr


def test_mistakes_are_sentences(
    bare: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """A missing file and a missing secret are told in one, with exit status 2; lost groups are status 3."""
    absent = bare(MAIN, "--config", str(tmp_path / "absent.toml"))
    assert (absent.returncode, absent.stdout, absent.stderr.count("\n")) == (2, "", 1)
    with serving(lambda request: request.reply(404, b"Not Found")) as eu:
        config = str(write(tmp_path, eu))
        nameless = bare(MAIN, "--config", config, "--json", CRONLESS_CLIENT_KEY="")
        lost = bare(MAIN, "--config", config)
    assert nameless.returncode == 2
    assert "CRONLESS_CLIENT_KEY" in json.loads(nameless.stdout)["error"]
    assert (lost.returncode, lost.stderr) == (3, "")
    assert "404" in lost.stdout
