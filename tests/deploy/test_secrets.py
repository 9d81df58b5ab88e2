"""``make-secrets``, and that no other file holds a secret."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY, compose, settings_env, texts


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The secrets of a new deployment."""
    directory = tmp_path_factory.mktemp("deploy") / "secrets"
    subprocess.run([DEPLOY / "make-secrets", directory], check=True, capture_output=True)
    return directory


def _read(directory: Path, name: str) -> str:
    return (directory / name).read_text().strip()


def test_the_api_takes_what_the_client_sends(made: Path) -> None:
    """The access file holds the hashes of the client's path, token and key, and lets it call every check."""
    from cronless_dagster.api.access_file import load_access
    from cronless_dagster.api.secrets import digest_of
    from cronless_dagster.client.credentials import SECRETS, Source, read_credentials

    sources = {name: Source("UNUSED", str(made / f"client_{name}")) for name in SECRETS}
    sent = read_credentials(sources, {})
    access = load_access(made / "access.toml")
    (caller,) = access.callers
    assert access.paths == (digest_of(sent.path.encode()),)
    assert caller.tokens == (digest_of(sent.token.encode()),)
    assert caller.keys == (digest_of(sent.key.encode()),)
    assert caller.checks == {"*"}


def test_the_settings_take_the_addresses(made: Path) -> None:
    """The shared settings, with the files that they name, are settings that can be used."""
    from cronless_dagster.settings import Settings

    environ = {name: text.replace("/run/secrets", str(made)) for name, text in settings_env().items()}
    settings = Settings.from_env(environ)
    assert settings.database_url == _read(made, "database_url")
    assert settings.broker_url == _read(made, "broker_url")
    assert _read(made, "postgres_password") in settings.database_url
    assert _read(made, "rabbitmq.conf").rpartition(" = ")[2] in settings.broker_url


def test_each_is_random_and_its_own(made: Path) -> None:
    """No two are the same, and none is that of another deployment."""
    names = ("postgres_password", "client_path", "client_token", "client_key", "grafana_password")
    assert len({_read(made, name) for name in names}) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{43}", _read(made, name)) for name in names)


def test_compose_finds_each_file(made: Path) -> None:
    """The files are those that the compose file mounts, and no container's user is kept from reading them."""
    mounted = {Path(one["file"]).name for one in compose()["secrets"].values()}
    assert {one.name for one in made.iterdir()} == mounted
    assert all(one.stat().st_mode & 0o777 == 0o444 for one in made.iterdir())
    assert made.stat().st_mode & 0o777 == 0o700


def test_nothing_is_overwritten(made: Path) -> None:
    """A second run says that there is something, and leaves it as it was."""
    before = {one.name: one.read_text() for one in made.iterdir()}
    again = subprocess.run([DEPLOY / "make-secrets", made], capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert str(made) in again.stderr
    assert {one.name: one.read_text() for one in made.iterdir()} == before
    assert not made.with_name("secrets.new").exists()


def test_no_file_holds_a_secret() -> None:
    """No address with a password, no hash, nothing as long and as random as a token."""
    found = []
    for name, text in texts().items():
        found += [(name, one) for one in re.findall(r"://[\w.-]+:(?![$%])[^\s@/]+@", text)]
        found += [(name, one) for one in re.findall(r"sha256:[0-9a-f]{64}", text)]
        # A mixture of small and capital letters and digits: words and paths have no such thing.
        found += [
            (name, one)
            for one in re.findall(r"[A-Za-z0-9_+=-]{32,}", text)
            if re.search(r"[a-z]", one) and re.search(r"[A-Z]", one) and re.search(r"[0-9]", one)
        ]
    assert found == []


def test_git_never_sees_them() -> None:
    """The directory that they are made in is one that git ignores."""
    done = subprocess.run(
        ["git", "check-ignore", "--quiet", "deploy/secrets/client_key"], cwd=DEPLOY.parent, check=False
    )
    if done.returncode == 128:
        pytest.skip("this is no clone of the repository")
    assert done.returncode == 0
