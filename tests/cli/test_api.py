"""`cronless api`: secrets that are shown once, and access files that are looked at."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.api.access_file import parse_access
from cronless_dagster.api.secrets import hash_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Ran


def test_what_is_printed_makes_an_access_file(run_anywhere: Callable[..., Ran]) -> None:
    """Whose hashes are those of the secrets that were shown."""
    path = run_anywhere("api", "secrets", "--json").json
    made = run_anywhere(
        "api", "caller", "eu-client", "--check", "dispatch", "--check", "rescue", "--json"
    ).json
    access = parse_access(f"{path['toml']}\n{made['toml']}")
    assert path["hash"] == hash_of(path["path"])
    caller = access.admit(path["path"].encode(), made["token"].encode(), made["key"].encode(), None)
    assert caller is not None
    assert (caller.name, caller.checks, caller.now) == ("eu-client", {"dispatch", "rescue"}, False)


def test_people_get_the_same(run_anywhere: Callable[..., Ran]) -> None:
    """The lines that go into the file are indented alike, and can be copied."""
    words = run_anywhere("api", "secrets").stdout + run_anywhere("api", "caller", "eu.client").stdout
    lines = [line.strip() for line in words.splitlines()]
    toml = [line for line in lines if line.startswith(("paths", "[", "tokens", "keys", "checks"))]
    access = parse_access("\n".join(toml))
    token = next(
        line.removeprefix("Authorization: Bearer ") for line in lines if line.startswith("Authorization")
    )
    key = next(line.removeprefix("X-Cronless-Key: ") for line in lines if line.startswith("X-Cronless"))
    caller = access.admit(lines[1].encode(), token.encode(), key.encode(), None)
    assert caller is not None
    assert (caller.name, caller.checks) == ("eu.client", {"*"})


def test_each_secret_is_another(run_anywhere: Callable[..., Ran]) -> None:
    """However often one is made."""
    made = [run_anywhere("api", "caller", "a", "--json").json for _ in range(5)]
    assert len({secret for one in made for secret in (one["token"], one["key"])}) == 10


@pytest.mark.parametrize("name", ["", "a b", "ä", "a" * 64, '"', "a\nb"])
def test_a_name_that_cant_be_in_the_file_is_refused(run_anywhere: Callable[..., Ran], name: str) -> None:
    """Before anybody relies on its tokens."""
    run_anywhere("api", "caller", name).refused()


def test_a_file_is_looked_at(
    run_anywhere: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that is named, else that of the settings; no hash is shown."""
    made = run_anywhere("api", "caller", "eu", "--check", "dispatch", "--json").json
    file = tmp_path / "access.toml"
    file.write_text(f"{run_anywhere('api', 'secrets', '--json').json['toml']}\n{made['toml']}")
    found = run_anywhere("api", "check", str(file), "--json")
    caller = {"name": "eu", "checks": ["dispatch"], "tokens": 1, "keys": 1, "now": False, "networks": []}
    assert found.json == {"paths": 1, "callers": [caller]}
    monkeypatch.setenv("CRONLESS_API_ACCESS_FILE", str(file))
    words = run_anywhere("api", "check").stdout
    assert "dispatch" in words
    assert "sha256" not in words + found.stdout
    file.write_text(file.read_text().replace("dispatch", "dispach"))
    assert "did you mean 'dispatch'" in run_anywhere("api", "check").refused()


def test_without_a_file_it_says_how_to_make_one(run_anywhere: Callable[..., Ran]) -> None:
    """Whether none is named or it isn't there."""
    assert "cronless api secrets" in run_anywhere("api", "check").refused()
    assert "cronless api secrets" in run_anywhere("api", "check", "/nowhere/access.toml").refused()


def test_the_description_names_every_check(run_anywhere: Callable[..., Ran]) -> None:
    """Those built in, here, for people and for machines."""
    found = run_anywhere("api", "openapi", "--json").json
    assert set(found["paths"]) == {
        f"/checks/{name}" for name in ("dispatch", "rescue", "analytics", "garbage-collect")
    }
    assert json.loads(run_anywhere("api", "openapi").stdout) == found
