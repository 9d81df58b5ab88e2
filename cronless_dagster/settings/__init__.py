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

from cronless_dagster.settings.readers import (
    BROKER_PREFIX,
    BROKER_PREFIX_LENGTH,
    SettingsError,
    bind_address,
    broker_prefix,
    broker_url,
    database_url,
    mail_address,
    modules,
    name_of,
    networks,
    path,
    secret,
    smtp_url,
    web_address,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "BROKER_PREFIX",
    "BROKER_PREFIX_LENGTH",
    "Settings",
    "SettingsError",
    "variable_of",
    "without_password",
]

PREFIX = "CRONLESS_"
SENSOR_TIMEOUT_VARIABLE = "DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS"
"""Dagster's own: the seconds after which it gives up on a sensor, 60 when unset."""
BROKER_CONNECT_SECONDS = 5.0
BROKER_PUBLISH_SECONDS = 10.0
"""How long a tick may take to reach the broker, and how long to publish what it claimed."""


def _setting(default: Any, read: Callable[[str, str], Any], meaning: str, unit: str = "") -> Any:
    return field(default=default, metadata={"read": read, "meaning": meaning, "unit": unit})


@dataclass(frozen=True, kw_only=True, repr=False)
class Settings:
    """All settings, checked. The variable of ``history_days`` is ``CRONLESS_HISTORY_DAYS``, and so on.

    Raises:
        SettingsError: two settings contradict each other.
    """

    database_url: str | None = _setting(
        None, database_url, "address of the PostgreSQL that holds the jobs; unset: the embedded one in home"
    )
    broker_url: str | None = _setting(
        None,
        broker_url,
        "address of the RabbitMQ of the queue route; unset: every job type takes the run route",
    )
    broker_ca_file: Path | None = _setting(  # noqa: RUF009  # returns a dataclass field
        None, path("file"), "certificates (PEM) that may sign the broker's; unset: the system's"
    )
    broker_cert_file: Path | None = _setting(  # noqa: RUF009  # returns a dataclass field
        None, path("file"), "this client's certificate (PEM), for a broker that asks for one"
    )
    broker_key_file: Path | None = _setting(  # noqa: RUF009  # returns a dataclass field
        None, path("file"), "the private key (PEM, without a password) of that certificate"
    )
    broker_prefix: str = _setting(
        "cronless", broker_prefix, "what the names of our queues and exchanges begin with"
    )
    smtp_url: str | None = _setting(
        None,
        smtp_url,
        "the mail server of e-mail digests, smtp:// (STARTTLS) or smtps://; unset: mails go into home/maildir",
    )
    mail_from: str = _setting(
        "digests@localhost", mail_address, "whom e-mail digests come from, such as News <news@example.org>"
    )
    public_url: str = _setting(
        "http://127.0.0.1:8089",
        web_address,
        "where hubs and mail readers reach `cronless callbacks`, as they see it from outside",
    )
    fetch_per_host: int = _setting(
        4, whole(1, 100), "how many sources are fetched from one host at once", "fetches"
    )
    fetch_seconds: int = _setting(20, whole(1, 600), "how long one fetch may take in all", "seconds")
    fetch_bytes: int = _setting(
        5_000_000, whole(1_000, 1_000_000_000), "the largest feed, page or file that is read", "bytes"
    )
    fetch_networks: tuple[str, ...] = _setting(
        (), networks, "private networks that sources and hubs may lie in, such as 10.0.0.0/8; unset: none"
    )
    files_home: Path | None = _setting(  # noqa: RUF009  # returns a dataclass field
        None, path("directory"), "directory of CSV and Parquet sources; unset: sources can't be files"
    )
    job_types: tuple[str, ...] = _setting(
        (), modules, "modules that declare job types, separated by commas; unset: the demo's"
    )
    home: Path = _setting(  # noqa: RUF009  # returns a dataclass field
        Path(".cronless"),
        path("directory"),
        "directory of the embedded PostgreSQL's data and of Dagster's home",
    )
    dagster_url: str = _setting(
        "http://127.0.0.1:3000", web_address, "address of Dagster's UI, for links to runs"
    )
    dagster_api_url: str | None = _setting(
        None,
        web_address,
        "address of Dagster's web server, which `cronless serve` asks for runs; unset: it leaves the run route alone",
    )
    dagster_token: str | None = _setting(
        None, secret, "token that Dagster's web server asks for, where a proxy or Dagster+ does"
    )
    dagster_location: str | None = _setting(
        None,
        name_of("code location"),
        "code location of the runs; unset: the only one that has the Dagster job",
    )
    checks: tuple[str, ...] = _setting(
        (), modules, "modules that register checks of your own, separated by commas"
    )
    api_bind: str = _setting("127.0.0.1:8088", bind_address, "where `cronless serve` listens for checks")
    api_private_bind: str = _setting(
        "127.0.0.1:9088", bind_address, "where it listens for /healthz, /readyz and /metrics: never public"
    )
    api_access_file: Path | None = _setting(  # noqa: RUF009  # returns a dataclass field
        None, path("file"), "who may call which check: hashes of the secret path and of the callers' tokens"
    )
    api_calls_per_second: int = _setting(
        50, whole(1, 100_000), "how many checks one caller may call, on average", "a second"
    )
    api_body_bytes: int = _setting(
        4_096, whole(0, 1_048_576), "the largest body of a call; checks need none", "bytes"
    )
    metrics_bind: str | None = _setting(
        None,
        bind_address,
        "where a worker, `cronless tick --loop` and the tick sensor show their metrics; unset: nowhere",
    )
    trace_slow_ms: int = _setting(
        1_000,
        whole(0, 3_600_000),
        "from when an operation counts as slow, and its trace is sent",
        "milliseconds",
    )
    trace_error_status: int = _setting(
        500,
        whole(400, 599),
        "from which HTTP status an answer counts as an error, and its trace is sent",
        "status",
    )
    history_days: int = _setting(30, whole(1, 3_650), "how long finished executions are kept", "days")
    tick_seconds: int = _setting(
        20, whole(1, 3_600), "how long one tick may go on before it leaves the rest to the next", "seconds"
    )
    statement_timeout_ms: int = _setting(
        15_000, whole(100, 600_000), "how long one statement may take in the database", "milliseconds"
    )
    max_payload_bytes: int = _setting(
        65_536, whole(2, 16_777_216), "the largest payload of a job, written as compact JSON", "bytes"
    )
    sensor_timeout_seconds: int = field(
        default=60,
        metadata={
            "read": whole(1, 86_400),
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
        handing_over = BROKER_CONNECT_SECONDS + BROKER_PUBLISH_SECONDS if self.broker_url else 0
        self.refuse_long_ticks(handing_over)

    def refuse_long_ticks(self, handing_over: float) -> None:
        """Refuse a tick that Dagster may cut off: the sensor goes on, still commits, and its hand-over is lost.

        Args:
            handing_over: Seconds that reaching a broker and publishing to it may add to a tick.

        Raises:
            SettingsError: A tick can last longer than Dagster waits for a sensor.
        """
        longest = self.tick_seconds + self.statement_timeout_ms / 1_000 + handing_over
        if longest > self.sensor_timeout_seconds:
            publishing = f" and {handing_over:g} s to hand over to the broker" if handing_over else ""
            raise SettingsError(
                f"A tick can last {longest:g} s (CRONLESS_TICK_SECONDS={self.tick_seconds}, one more"
                f" statement of CRONLESS_STATEMENT_TIMEOUT_MS={self.statement_timeout_ms}{publishing}), but Dagster"
                f" gives up after {self.sensor_timeout_seconds} s: lower them, or raise"
                f" {SENSOR_TIMEOUT_VARIABLE}."
            )

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings from an environment. A variable that is set to nothing counts as unset.

        ``CRONLESS_DATABASE_URL_FILE``, ``CRONLESS_BROKER_URL_FILE``, ``CRONLESS_SMTP_URL_FILE`` and
        ``CRONLESS_DAGSTER_TOKEN_FILE`` name files that hold these secrets, as they are mounted.

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
        for name, read in _SECRETS.items():
            variable = variable_of(name)
            file = environ.get(f"{variable}_FILE", "").strip()
            if file and name in values:
                raise SettingsError(f"{variable} and {variable}_FILE are both set: remove one of them.")
            if file:
                values[name] = read(f"{variable}_FILE", _content(f"{variable}_FILE", file))
        return cls(**values)

    def __repr__(self) -> str:
        shown = {item.name: getattr(self, item.name) for item in fields(self)}
        for name in _SECRETS:
            if shown[name] is not None:
                shown[name] = "***" if name == "dagster_token" else without_password(shown[name])
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def variable_of(name: str) -> str:
    """Return the environment variable of a setting: ``home`` is ``CRONLESS_HOME``."""
    metadata = next(item.metadata for item in fields(Settings) if item.name == name)
    return str(metadata.get("variable", PREFIX + name.upper()))


def without_password(url: str) -> str:
    """Return an address as it may be shown: a password in it, or in its query, becomes ``***``."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    user, colon, password = login.partition(":")
    login = f"{user}{colon}{'***' if password else ''}{at}"
    query = [(key, "***" if "password" in key else value) for key, value in parse_qsl(parts.query)]
    return urlunsplit(parts._replace(netloc=login + host, query=urlencode(query, safe="/*")))


_SECRETS = {
    "database_url": database_url,
    "broker_url": broker_url,
    "smtp_url": smtp_url,
    "dagster_token": secret,
}
"""The settings that may hold a password, and may come from a file, with their readers."""


def _content(variable: str, file: str) -> str:
    try:
        text = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"{variable} names {file!r}, which can't be read ({error}): correct the path or its permissions."
        ) from error
    if not text:
        raise SettingsError(f"{variable} names {file!r}, which is empty: write the value into it.")
    return text


def _refuse_misspelt(environ: Mapping[str, str]) -> None:
    known = {variable_of(item.name) for item in fields(Settings)}
    known |= {f"{variable_of(name)}_FILE" for name in _SECRETS}
    for name in environ:
        if name.startswith(PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.9)
            if near:
                raise SettingsError(f"{name} is no setting: did you mean {near[0]}?")
