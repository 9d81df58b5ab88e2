"""Every setting in one place: its name in the environment, its meaning, unit and default.

Read once at an entry point by ``Settings.from_env(os.environ)`` and handed down; nothing below reads the
environment.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from cronless_dagster.scheduling.errors import CronlessError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PREFIX = "CRONLESS_"
SENSOR_TIMEOUT_VARIABLE = "DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS"
"""Dagster's own: the seconds after which it gives up on a sensor, 60 when unset."""


class SettingsError(CronlessError):
    """A setting can't be used; the message names the variable, its value and what to write instead."""


def _whole(low: int, high: int) -> Callable[[str, str], int]:
    def read(variable: str, text: str) -> int:
        # int() also takes '1_000', ' 7 ' and other scripts' digits, none of which is meant here.
        if not (text.isascii() and text.isdigit() and low <= int(text[:12]) <= high):
            raise SettingsError(f"{variable} is {text!r}: give a whole number from {low} to {high}.")
        return int(text)

    return read


def _modules(variable: str, text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise SettingsError(
                f"{variable} holds {name!r}: give names of Python modules, separated by commas."
            )
    return names


def _directory(variable: str, text: str) -> Path:
    if "\0" in text:
        raise SettingsError(f"{variable} is {text!r}: give the path of a directory.")
    return Path(text).expanduser()


def _database_url(variable: str, text: str) -> str:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise SettingsError(
            f"{variable} is no address ({error}): give one such as postgresql://user@host/database."
        ) from error
    if parts.scheme not in ("postgresql", "postgresql+psycopg") or not parts.path.strip("/"):
        # The value stays out of the message: it may hold a password.
        raise SettingsError(
            f"{variable} starts with {parts.scheme!r} or names no database: give an address such as"
            " postgresql://user@host/database."
        )
    return text


def _web_address(variable: str, text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise SettingsError(f"{variable} is {text!r}: give a web address such as http://127.0.0.1:3000.")
    return text.rstrip("/")


def _setting(default: Any, read: Callable[[str, str], Any], meaning: str, unit: str = "") -> Any:
    return field(default=default, metadata={"read": read, "meaning": meaning, "unit": unit})


@dataclass(frozen=True, kw_only=True, repr=False)
class Settings:
    """All settings, checked. The variable of ``history_days`` is ``CRONLESS_HISTORY_DAYS``, and so on.

    Raises:
        SettingsError: two settings contradict each other.
    """

    database_url: str | None = _setting(
        None, _database_url, "address of the PostgreSQL that holds the jobs; unset: the embedded one in home"
    )
    job_types: tuple[str, ...] = _setting(
        (), _modules, "modules that declare job types, separated by commas; unset: the demo's"
    )
    home: Path = _setting(  # noqa: RUF009  # returns a dataclass field
        Path(".cronless"), _directory, "directory of the embedded PostgreSQL's data and of Dagster's home"
    )
    dagster_url: str = _setting(
        "http://127.0.0.1:3000", _web_address, "address of Dagster's UI, for links to runs"
    )
    history_days: int = _setting(30, _whole(1, 3_650), "how long finished executions are kept", "days")
    tick_seconds: int = _setting(
        20, _whole(1, 3_600), "how long one tick may go on before it leaves the rest to the next", "seconds"
    )
    statement_timeout_ms: int = _setting(
        15_000, _whole(100, 600_000), "how long one statement may take in the database", "milliseconds"
    )
    max_payload_bytes: int = _setting(
        65_536, _whole(2, 16_777_216), "the largest payload of a job, written as compact JSON", "bytes"
    )
    sensor_timeout_seconds: int = field(
        default=60,
        metadata={
            "read": _whole(1, 86_400),
            "variable": SENSOR_TIMEOUT_VARIABLE,
            "meaning": "when Dagster gives up on a sensor (Dagster's own setting)",
            "unit": "seconds",
        },
    )

    def __post_init__(self) -> None:
        if self.statement_timeout_ms > self.tick_seconds * 1_000:
            raise SettingsError(
                f"CRONLESS_STATEMENT_TIMEOUT_MS is {self.statement_timeout_ms}, more than a whole tick of"
                f" CRONLESS_TICK_SECONDS={self.tick_seconds}: lower the first or raise the second."
            )
        # A sensor that Dagster gave up on goes on and still commits, and its hand-over is lost.
        longest = self.tick_seconds + self.statement_timeout_ms / 1_000
        if longest > self.sensor_timeout_seconds:
            raise SettingsError(
                f"A tick can last {longest:g} s (CRONLESS_TICK_SECONDS={self.tick_seconds} and one more"
                f" statement of CRONLESS_STATEMENT_TIMEOUT_MS={self.statement_timeout_ms}), but Dagster gives"
                f" up after {self.sensor_timeout_seconds} s: lower them, or raise {SENSOR_TIMEOUT_VARIABLE}."
            )

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings from an environment. A variable that is set to nothing counts as unset.

        ``CRONLESS_DATABASE_URL_FILE`` names a file that holds the database's address, as secrets are mounted.

        Raises:
            SettingsError: a value can't be used, two contradict each other, or a name is misspelt.
        """
        _refuse_misspelt(environ)
        values: dict[str, Any] = {}
        for item in fields(cls):
            variable = variable_of(item.name)
            text = environ.get(variable, "").strip()
            if text:
                values[item.name] = item.metadata["read"](variable, text)
        file = environ.get(f"{PREFIX}DATABASE_URL_FILE", "").strip()
        if file and "database_url" in values:
            raise SettingsError(
                "CRONLESS_DATABASE_URL and CRONLESS_DATABASE_URL_FILE are both set: remove one of them."
            )
        if file:
            values["database_url"] = _read_secret(file)
        return cls(**values)

    def __repr__(self) -> str:
        shown = {item.name: getattr(self, item.name) for item in fields(self)}
        if self.database_url is not None:
            shown["database_url"] = without_password(self.database_url)
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def variable_of(name: str) -> str:
    """Return the environment variable of a setting: ``home`` is ``CRONLESS_HOME``."""
    metadata = next(item.metadata for item in fields(Settings) if item.name == name)
    return str(metadata.get("variable", PREFIX + name.upper()))


def without_password(url: str) -> str:
    """Return a database's address as it may be shown: a password in it, or in its query, becomes ``***``."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    user, colon, password = login.partition(":")
    login = f"{user}{colon}{'***' if password else ''}{at}"
    query = [(key, "***" if "password" in key else value) for key, value in parse_qsl(parts.query)]
    return urlunsplit(parts._replace(netloc=login + host, query=urlencode(query, safe="/*")))


def _read_secret(file: str) -> str:
    variable = f"{PREFIX}DATABASE_URL_FILE"
    try:
        text = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"{variable} names {file!r}, which can't be read ({error}): correct the path or its permissions."
        ) from error
    if not text:
        raise SettingsError(
            f"{variable} names {file!r}, which is empty: write the database's address into it."
        )
    return _database_url(variable, text)


def _refuse_misspelt(environ: Mapping[str, str]) -> None:
    known = {variable_of(item.name) for item in fields(Settings)} | {f"{PREFIX}DATABASE_URL_FILE"}
    for name in environ:
        if name.startswith(PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.9)
            if near:
                raise SettingsError(f"{name} is no setting: did you mean {near[0]}?")
