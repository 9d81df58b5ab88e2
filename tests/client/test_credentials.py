"""The secrets: where they come from, and that nothing shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cronless_dagster.client.config import parse_config
from cronless_dagster.client.credentials import Credentials, read_credentials
from cronless_dagster.client.errors import ClientError
from tests.client.support import ENVIRONMENT, WHO, text_of

if TYPE_CHECKING:
    from pathlib import Path

TARGETS = {"eu": "https://eu.example.org"}


def read(environ: dict[str, str], secrets: str = "") -> Credentials:
    """The secrets that a configuration and an environment give."""
    config = parse_config(text_of(TARGETS) + f"\n[secrets]\n{secrets}\n")
    return read_credentials(config.secrets, environ)


def test_from_the_environment() -> None:
    """Without a word in the configuration they are three variables."""
    assert read(ENVIRONMENT) == WHO


def test_from_files_that_variables_name(tmp_path: Path) -> None:
    """As secrets are mounted into containers; a line break at the end is no part of them."""
    file = tmp_path / "token"
    file.write_text("made-up-token-of-tests\n")
    environ = {**ENVIRONMENT, "CRONLESS_CLIENT_TOKEN": "", "CRONLESS_CLIENT_TOKEN_FILE": str(file)}
    assert read(environ) == WHO


def test_from_variables_and_files_that_the_configuration_names(tmp_path: Path) -> None:
    """A client with several callers' secrets in its environment says which it means."""
    file = tmp_path / "key"
    file.write_text("made-up-key-of-the-tests")
    environ = {"MY_PATH": WHO.path, "CRONLESS_CLIENT_TOKEN": WHO.token}
    assert read(environ, f'path_env = "MY_PATH"\nkey_file = "{file}"') == WHO


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"CRONLESS_CLIENT_KEY": ""}, "the secret key is missing: set CRONLESS_CLIENT_KEY"),
        (
            {"CRONLESS_CLIENT_KEY_FILE": "/absent"},
            "CRONLESS_CLIENT_KEY and CRONLESS_CLIENT_KEY_FILE are both set",
        ),
        ({"CRONLESS_CLIENT_KEY": "", "CRONLESS_CLIENT_KEY_FILE": "/absent"}, "'/absent' of the secret key"),
        ({"CRONLESS_CLIENT_PATH": "/with/slashes/in/it"}, "CRONLESS_CLIENT_PATH holds no usable path"),
        ({"CRONLESS_CLIENT_TOKEN": "hunter2"}, "at least 16 signs"),
        (
            {"CRONLESS_CLIENT_TOKEN": "two\r\nlines: of a header"},
            "CRONLESS_CLIENT_TOKEN holds no usable token",
        ),
        ({"CRONLESS_CLIENT_TOKEN": "schl\u00fcssel-von-hand"}, "CRONLESS_CLIENT_TOKEN holds no usable token"),
    ],
)
def test_what_cannot_be_used_is_refused(change: dict[str, str], words: str) -> None:
    """The message says where the secret comes from, and never what it is."""
    with pytest.raises(ClientError) as caught:
        read({**ENVIRONMENT, **change})
    assert words in str(caught.value)
    assert not any(
        value in str(caught.value) for value in ("slashes", "hunter", "lines", "schl", *ENVIRONMENT.values())
    )


def test_nothing_shows_them() -> None:
    """Neither a representation nor a text that repeats them."""
    assert "made-up" not in repr(WHO)
    assert (
        WHO.hidden("at /made-up-path-of-tests/ with made-up-token-of-tests and made-up-key-of-the-tests")
        == "at /***/ with *** and ***"
    )
