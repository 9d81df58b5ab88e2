"""The three secrets of a caller: from the environment or from files, never from the configuration."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .tables import Table

SECRETS = ("path", "token", "key")
"""The secret path of the API, the bearer token, the second token."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What goes into a path or a header unquoted, so no blank and no line break; and too long to be guessed.
_USABLE = {
    "path": re.compile(r"[A-Za-z0-9._~-]{16,}"),
    "token": re.compile(r"[!-~]{16,}"),
    "key": re.compile(r"[!-~]{16,}"),
}


@dataclass(frozen=True, slots=True)
class Source:
    """Where a secret comes from.

    Attributes:
        variable: The environment variable that holds it, unless there is a file.
        file: The file that holds it; None: the one that the variable with `_FILE` behind its name names, if set.
    """

    variable: str
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a caller shows; none of it appears in a message, a log line or a representation."""

    path: str = field(repr=False)
    token: str = field(repr=False)
    key: str = field(repr=False)

    def headers(self) -> dict[str, str]:
        """Return the headers that say who calls."""
        return {"Authorization": f"Bearer {self.token}", "X-Cronless-Key": self.key}

    def hidden(self, text: str) -> str:
        """Return a text without them, whoever repeated them in it."""
        for secret in (self.path, self.token, self.key):
            text = text.replace(secret, "***")
        return text


def read_source(table: Table, name: str) -> Source:
    """Read where a secret comes from: `token_env`, `token_file`, or by default `CRONLESS_CLIENT_TOKEN`.

    Raises:
        ClientError: Both are given, or one of them can't be used.
    """
    env, file = f"{name}_env", f"{name}_file"
    if env in table.values and file in table.values:
        raise ClientError(f"[secrets] has both {env} and {file}: remove one of them")
    variable = (
        table.text(env, "write the name of an environment variable") or f"CRONLESS_CLIENT_{name.upper()}"
    )
    if not _VARIABLE.fullmatch(variable):
        # Somebody may have written the secret itself here.
        raise ClientError(f"{env} in [secrets] is no variable's name: write one such as MY_{name.upper()}")
    return Source(variable, table.text(file, "write the path of a file"))


def read_credentials(secrets: Mapping[str, Source], environ: Mapping[str, str]) -> Credentials:
    """Read the three secrets.

    Raises:
        ClientError: One is missing or can't be used; the message names where it comes from, not its value.
    """
    return Credentials(**{name: _secret(name, secrets.get(name), environ) for name in SECRETS})


def _secret(name: str, source: Source | None, environ: Mapping[str, str]) -> str:
    source = source or Source(f"CRONLESS_CLIENT_{name.upper()}")
    variable = source.variable
    named = environ.get(f"{variable}_FILE", "").strip()
    text, where = environ.get(variable, "").strip(), variable
    if source.file is not None or named:
        if text and source.file is None:
            raise ClientError(f"{variable} and {variable}_FILE are both set: remove one of them")
        path = source.file or named
        text, where = (
            _content(path, f"the file {path!a} of the secret {name}"),
            f"the file {path!a}",
        )
    if not text:
        raise ClientError(
            f"the secret {name} is missing: set {variable}, or {variable}_FILE to a file that holds it"
        )
    if not _USABLE[name].fullmatch(text):
        raise ClientError(
            f"{where} holds no usable {name}: write it as it was given out, at least 16 signs without blanks"
        )
    return text


def _content(path: str, what: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8"
        raise ClientError(f"{what} can't be read ({reason}): correct its path or its permissions") from error
