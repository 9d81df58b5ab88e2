"""The image: what goes into it, and what it does before a command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from typing import TYPE_CHECKING

import pytest

from tests.deploy.files import DEPLOY, ROOT, is_pinned

if TYPE_CHECKING:
    from pathlib import Path

DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
COPIED = [
    source
    for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
    for source in [word for word in line.split() if not word.startswith("--")][:-1]
]


def _project() -> dict[str, object]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert isinstance(project, dict)
    return project


def test_all_that_it_copies_is_there_and_gets_into_the_build() -> None:
    """A file that is missing, or kept out by the ignore file, would fail the build."""
    allowed = [
        line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"
    ]
    for source in COPIED:
        assert (ROOT / source).exists(), source
        assert any(fnmatch(source, one) for one in allowed), source
    assert sorted(allowed) == sorted(COPIED)


def test_it_copies_what_the_package_is_built_from() -> None:
    """Without its readme, its licence or its package the project can't be installed."""
    project = _project()
    licences = project["license-files"]
    assert isinstance(licences, list)
    assert {project["readme"], *licences, "cronless_dagster", "pyproject.toml"} <= set(COPIED)


def test_its_line_of_python_lists_the_dependencies() -> None:
    """The line that makes requirements.txt lists those of the project and of the two extras that servers need."""
    found = re.search(r'python -c "(.*)" > requirements.txt', DOCKERFILE)
    assert found
    done = subprocess.run(
        [sys.executable, "-c", found[1]], cwd=ROOT, capture_output=True, text=True, check=True
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert done.stdout.split("\n")[:-1] == [*project["dependencies"], *extras["api"], *extras["assets"]]


def test_its_base_is_pinned_and_supported() -> None:
    """Both stages begin with the same Python, named by its version, one that the project supports."""
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert is_pinned(bases[0])
    version = re.search(r"python:(\d+\.\d+)", bases[0])
    assert version
    assert f"Programming Language :: Python :: {version[1]}" in str(_project()["classifiers"])


def test_nobody_in_it_is_root() -> None:
    """Its last user is a number, as Kubernetes needs it to see that it isn't root."""
    users = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)
    assert users == [("10001", "10001")]
    assert DOCKERFILE.index("\nUSER ") > DOCKERFILE.rindex("\nRUN ")


def test_its_health_is_that_of_the_private_address() -> None:
    """The port and the path of the health check are those of the settings and of the private application."""
    from cronless_dagster.settings import Settings

    port = Settings.from_env({}).api_private_bind.rpartition(":")[2]
    assert f"http://127.0.0.1:{port}/healthz" in DOCKERFILE
    assert re.search(r'^CMD \["cronless", "serve"\]$', DOCKERFILE, re.MULTILINE)


def test_the_linter_has_nothing_to_say() -> None:
    """hadolint, where it is installed."""
    if shutil.which("hadolint") is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run(["hadolint", DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.returncode == 0


class TestEntrypoint:
    @staticmethod
    def _run(*command: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [DEPLOY / "entrypoint", *command],
            env={"PATH": os.environ["PATH"], **environ},
            capture_output=True,
            text=True,
            check=False,
        )

    def test_it_reads_dagsters_address_from_a_file(self, tmp_path: Path) -> None:
        """Dagster finds in its variable what the file holds; the command is the process itself."""
        file = tmp_path / "url"
        file.write_text("postgresql://made-up@nowhere/db\n")
        done = self._run("sh", "-c", 'echo "$DAGSTER_POSTGRES_URL"', DAGSTER_POSTGRES_URL_FILE=str(file))
        assert done.stdout == "postgresql://made-up@nowhere/db\n"

    def test_without_a_file_it_only_runs_the_command(self) -> None:
        """The client knows no database, and its status is the command's."""
        assert self._run("sh", "-c", 'exit "${DAGSTER_POSTGRES_URL:-7}"').returncode == 7

    def test_a_missing_file_ends_it(self) -> None:
        """Dagster is not started with no database, or with the wrong one."""
        done = self._run("echo", "started", DAGSTER_POSTGRES_URL_FILE="/nowhere/url")
        assert done.returncode != 0
        assert done.stdout == ""
        assert "/nowhere/url" in done.stderr


def test_its_job_types_take_both_routes() -> None:
    """The module that the settings name declares a type for runs and one for workers."""
    import importlib.util

    from tests.deploy.files import settings_env

    path = DEPLOY / "app" / f"{settings_env()['CRONLESS_JOB_TYPES']}.py"
    spec = importlib.util.spec_from_file_location("deployed_jobs", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert {one.route for one in module.job_types} == {"run", "queue"}
