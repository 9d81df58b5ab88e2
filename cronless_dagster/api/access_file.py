"""The access file: TOML that holds hashes only, read whole and checked before anything listens."""

from __future__ import annotations

import difflib
import re
import tomllib
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

from cronless_dagster.api.access import EVERY_CHECK, Access, Caller
from cronless_dagster.api.secrets import read_hash
from cronless_dagster.scheduling.errors import CronlessError, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from ipaddress import IPv4Network, IPv6Network
    from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_MEMBERS = ("tokens", "keys", "checks", "now", "networks")


class AccessError(CronlessError, ValueError):
    """An access file that can't be used; the message never shows what may be a secret."""


def load_access(file: Path) -> Access:
    """Read an access file.

    Raises:
        AccessError: It can't be read, or something in it can't be used.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise AccessError(
            f"the access file {shown(str(file))} can't be read ({error.strerror}): make one with `cronless api"
            " secrets` and `cronless api caller NAME`, and name it in CRONLESS_API_ACCESS_FILE"
        ) from error
    except UnicodeDecodeError as error:
        raise AccessError(
            f"the access file {shown(str(file))} is no UTF-8: write it as plain text"
        ) from error
    return parse_access(text)


def parse_access(text: str) -> Access:
    """Return what an access file's text says.

    Raises:
        AccessError: Something in it can't be used.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise AccessError(f"the access file is no TOML: {error}; correct it there") from error
    except RecursionError as error:
        raise AccessError(
            "the access file is nested too deeply: it holds `paths` and tables of callers"
        ) from error
    _refuse_unknown(table, ("paths", "callers"), "the access file")
    paths = _digests(table, "paths", "the access file")
    callers = table.get("callers", {})
    if not isinstance(callers, dict) or not callers:
        raise AccessError(
            "the access file names no callers: add the lines that `cronless api caller NAME` prints"
        )
    access = Access(paths, tuple(_caller(name, value) for name, value in callers.items()))
    _refuse_twice(access)
    return access


def refuse_unknown_checks(access: Access, known: Collection[str]) -> None:
    """Refuse a caller who may call what isn't there: a misspelt name would be a 404 each minute.

    Raises:
        AccessError: A check isn't known.
    """
    for caller in access.callers:
        for name in sorted(caller.checks - {EVERY_CHECK} - set(known)):
            near = difflib.get_close_matches(name, known, n=1)
            raise AccessError(
                f"caller {caller.name!r} may call the check {shown(name)}, which isn't there: "
                + (f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}")
            )


def _caller(name: str, value: Any) -> Caller:
    if not _NAME.fullmatch(name):
        raise AccessError(
            f"a caller is named {shown(name)}: use up to 63 letters, digits, dots, dashes and underscores"
        )
    where = f"caller {name!r}"
    if not isinstance(value, dict):
        raise AccessError(f"{where} is no table: write [callers.{name}] and its lines below")
    _refuse_unknown(value, _MEMBERS, where)
    now = value.get("now", False)
    if not isinstance(now, bool):
        raise AccessError(f"{where} has now = {shown(now)}: write true or false")
    checks = frozenset(_texts(value, "checks", where))
    if not checks:
        raise AccessError(f'{where} may call no check: write checks = ["dispatch"], or ["*"] for all')
    return Caller(
        name,
        _digests(value, "tokens", where),
        _digests(value, "keys", where),
        checks,
        now,
        tuple(_networks(_texts(value, "networks", where), where)),
    )


def _refuse_unknown(table: dict[str, Any], known: Collection[str], where: str) -> None:
    for name in table:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it may hold {', '.join(known)}"
            raise AccessError(f"{where} has {shown(name)}, which means nothing: {hint}")


def _texts(table: dict[str, Any], name: str, where: str) -> list[str]:
    values = table.get(name, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        # Not shown: a token may have been put there.
        raise AccessError(f'{where} has a `{name}` that is no list of texts: write {name} = ["…"]')
    return values


def _digests(table: dict[str, Any], name: str, where: str) -> tuple[bytes, ...]:
    digests = []
    for number, text in enumerate(_texts(table, name, where), start=1):
        digest = read_hash(text)
        if digest is None:
            raise AccessError(
                f"{where} has as number {number} of `{name}` what is no hash: write sha256: and its 64 digits in small"
                " letters, as `cronless api secrets` prints them, never the secret itself"
            )
        digests.append(digest)
    if not digests:
        raise AccessError(f'{where} has no `{name}`: write {name} = ["sha256:…"], two while they are rotated')
    return tuple(digests)


def _networks(texts: Iterable[str], where: str) -> Iterable[IPv4Network | IPv6Network]:
    for text in texts:
        try:
            yield ip_network(text)
        except ValueError as error:
            raise AccessError(
                f"{where} has the network {shown(text)}, which is none: write one such as 10.0.0.0/8"
            ) from error


def _refuse_twice(access: Access) -> None:
    seen: dict[bytes, str] = {}
    lists = [("paths", access.paths)]
    for caller in access.callers:
        lists += [(f"tokens of {caller.name!r}", caller.tokens), (f"keys of {caller.name!r}", caller.keys)]
    for where, digests in lists:
        for digest in digests:
            if digest in seen:
                raise AccessError(
                    f"one hash stands both in the {seen[digest]} and in the {where}: each secret is used once"
                )
            seen[digest] = where
