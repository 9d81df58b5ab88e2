"""Every event of the code is in the list that operators read, and the other way round."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import cronless_dagster

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(cronless_dagster.__file__).parent
DOCUMENT = PACKAGE.parent / "docs" / "telemetry.md"


@cache
def _events() -> set[str]:
    return set(_found())


def _found() -> Iterator[str]:
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text()
        for node in ast.walk(ast.parse(source)) if "telemetry.events" in source else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "event":
                name = node.args[1]
                assert isinstance(name, ast.Constant), f"{path}:{node.lineno}: a name that varies is no name"
                yield str(name.value)


def _listed() -> set[str]:
    rows = DOCUMENT.read_text().partition("| event |")[2].splitlines()
    return {
        name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1] if "|" in row else "")
    }


def test_all_are_listed_and_no_others() -> None:
    """What an alarm may hold on is documented, and what is documented exists."""
    assert _events() == _listed()


def test_names_are_dotted_words() -> None:
    """A thing and what happened to it, in small letters."""
    for name in _events():
        assert re.fullmatch(r"[a-z_]+\.[a-z_]+", name), name
