"""The configuration, `checks.toml`: whom to call, which checks, in which minutes, for which groups."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .addresses import Target, read_target
from .credentials import SECRETS, Source, read_source
from .errors import ClientError, shown
from .tables import Table
from .windows import EVERY_MINUTE, Window

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MOST_GROUPS = 65_536
_WEEK = 7 * 24 * 60


@dataclass(frozen=True, slots=True)
class Check:
    """A check that is called."""

    name: str
    window: Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """What is done about calls that got no answer.

    Attributes:
        most: How often a call is made again at most.
        base_seconds, cap_seconds: The wait before the n-th repetition (from 0) is a random time up to
            `base * 2**n`, and up to the cap.
    """

    most: int = 2
    base_seconds: float = 0.5
    cap_seconds: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """How calls are made.

    Attributes:
        concurrency: Calls that are on their way at once, for each target: one that is slow keeps none from another.
        timeout_seconds: How long one try of a call may take in all.
        deadline_seconds: How long the calls of a minute may take in all, repetitions included.
        retries: What is done about calls that got no answer.
        ca_file: Certificates (PEM) that may sign a target's; None: the system's.
        proxy: Host and port of a proxy that targets are reached through (CONNECT); None: straight. The
            environment's proxies are never used.
    """

    concurrency: int = 16
    timeout_seconds: float = 10.0
    deadline_seconds: float = 50.0
    retries: Retries = field(default_factory=Retries)
    ca_file: str | None = None
    proxy: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All of it.

    Attributes:
        targets: The API of each region.
        checks: What is called, in the file's order.
        own: The name of the target of the region that this client is in, if it was said.
        skip_own: Leave that target out: its own region's client is the first to die with it.
        sending: How calls are made.
        secrets: Where the secrets come from, by their names in `credentials.SECRETS`.
    """

    targets: tuple[Target, ...]
    checks: tuple[Check, ...]
    own: str | None = None
    skip_own: bool = False
    sending: Sending = field(default_factory=Sending)
    secrets: Mapping[str, Source] = field(default_factory=dict)

    @property
    def called(self) -> tuple[Target, ...]:
        """The targets that this client calls."""
        return tuple(one for one in self.targets if not (self.skip_own and one.name == self.own))

    def seen_from(self, own: str) -> Config:
        """Return the same as a client in this target's region has it. Raises ClientError for an unknown one."""
        return _checked(replace(self, own=own))


def load_config(path: str | Path) -> Config:
    """Read a configuration file.

    Raises:
        ClientError: It can't be read, or something in it can't be used.
    """
    try:
        text = Path(path).read_bytes().decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8"
        raise ClientError(f"the configuration {str(path)!a} can't be read ({reason}): correct it") from error
    return parse_config(text)


def parse_config(text: str) -> Config:
    """Read a configuration, of TOML.

    Raises:
        ClientError: Something in it can't be used; the message names the key and its value.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ClientError(f"the configuration is no TOML ({error}): correct it there") from error
    top = Table(
        values, "", ("self", "skip_self", "plain_http", "targets", "check", "sending", "retries", "secrets")
    )
    config = Config(
        targets=_targets(values, plain_http=top.flag("plain_http")),
        checks=_checks(values),
        own=top.text("self", "write the name of a target"),
        skip_own=top.flag("skip_self"),
        sending=_sending(values),
        secrets=_secrets(values),
    )
    if config.sending.proxy and any(not one.secure for one in config.targets):
        raise ClientError(
            "sending.proxy serves https:// only: write all targets with https://, or leave it out"
        )
    return config if config.own is None else _checked(config)


def _checked(config: Config) -> Config:
    names = [one.name for one in config.targets]
    if config.own not in names:
        raise ClientError(f"self is {shown(config.own)}, which is no target: write one of {', '.join(names)}")
    if not config.called:
        raise ClientError(
            f"skip_self leaves no target to call: write another beside {config.own} in [targets], or skip_self = false"
        )
    return config


def _targets(values: Mapping[str, Any], *, plain_http: bool) -> tuple[Target, ...]:
    table = Table(values.get("targets", {}), "[targets]")
    if not table.values:
        raise ClientError(
            'no target is named: write [targets] with one such as eu = "https://eu.example.org"'
        )
    return tuple(read_target(table, _name(name, "target"), plain_http=plain_http) for name in table.values)


def _checks(values: Mapping[str, Any]) -> tuple[Check, ...]:
    tables = values.get("check", [])
    if not isinstance(tables, list) or not tables:
        raise ClientError('no check is named: write [[check]] with a line such as name = "dispatch" for each')
    return tuple(_check(one) for one in tables)


def _check(values: object) -> Check:
    table = Table(values, "[[check]]", ("name", "minutes", "spread_minutes", "groups", "prefix_length"))
    name = table.text("name", "write a check's name such as dispatch")
    if name is None:
        raise ClientError('a [[check]] has no name: write one such as name = "dispatch"')
    table = Table(values, f"[[check]] {_name(name, 'check')}")
    for one, other in (("minutes", "spread_minutes"), ("groups", "prefix_length")):
        if one in table.values and other in table.values:
            raise ClientError(f"[[check]] {name} has both {one} and {other}: remove one of them")
    return Check(
        name,
        Window(
            minutes=_minutes(table),
            spread=table.whole("spread_minutes", 1, _WEEK, 1) or 1,
            groups=table.whole("groups", 1, _MOST_GROUPS, 1) or 1,
            prefix_length=table.whole("prefix_length", 1, 4),
        ),
    )


def _minutes(table: Table) -> frozenset[int]:
    if "minutes" not in table.values:
        return EVERY_MINUTE
    given = table.values["minutes"]
    if (
        not isinstance(given, list)
        or not given
        or not all(type(one) is int and 0 <= one <= 59 for one in given)
    ):
        raise table.refusal("minutes", "write minutes of the hour from 0 to 59, such as [0, 15, 30, 45]")
    return frozenset(given)


def _sending(values: Mapping[str, Any]) -> Sending:
    keys = ("concurrency", "timeout_seconds", "deadline_seconds", "ca_file", "proxy")
    table = Table(values.get("sending", {}), "[sending]", keys)
    again = Table(values.get("retries", {}), "[retries]", ("most", "base_seconds", "cap_seconds"))
    usual, usual_again = Sending(), Retries()
    return Sending(
        concurrency=table.whole("concurrency", 1, 256) or usual.concurrency,
        timeout_seconds=table.number("timeout_seconds", 0.1, 600, usual.timeout_seconds),
        deadline_seconds=table.number("deadline_seconds", 0.1, 900, usual.deadline_seconds),
        retries=Retries(
            most=again.whole("most", 0, 20, usual_again.most) or 0,
            base_seconds=again.number("base_seconds", 0, 60, usual_again.base_seconds),
            cap_seconds=again.number("cap_seconds", 0, 600, usual_again.cap_seconds),
        ),
        ca_file=table.text("ca_file", "write the path of a file of certificates (PEM)"),
        proxy=_proxy(table),
    )


def _proxy(table: Table) -> tuple[str, int] | None:
    write = "write HOST:PORT, such as proxy.example.org:3128"
    text = table.text("proxy", write)
    if text is None:
        return None
    found = re.fullmatch(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})", text)
    if found is None or not 1 <= int(found[2]) <= 65_535:
        raise table.refusal("proxy", write)
    return found[1].strip("[]"), int(found[2])


def _secrets(values: Mapping[str, Any]) -> Mapping[str, Source]:
    keys = [f"{name}_{kind}" for name in SECRETS for kind in ("env", "file")]
    table = Table(values.get("secrets", {}), "[secrets]", keys)
    return {name: read_source(table, name) for name in SECRETS}


def _name(text: str, what: str) -> str:
    if not _NAME.fullmatch(text):
        raise ClientError(
            f"the {what} {shown(text)} has no usable name: write letters, digits, '.', '_', '-'"
        )
    return text
