"""The description: whole, valid, and without secrets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from cronless_dagster.api.openapi import description
from tests.api.support import Asks, checks_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def described(*, now: bool = False) -> dict[str, Any]:
    """Return the description of two checks."""
    return description(checks_of(dispatch=Asks(), other=Asks()).values(), now=now)


def test_each_check_has_its_path() -> None:
    """With its id space in words."""
    paths = described()["paths"]
    assert list(paths) == ["/checks/dispatch", "/checks/other"]
    assert "ids of jobs" in paths["/checks/dispatch"]["post"]["summary"]


@pytest.mark.parametrize("now", [True, False])
def test_the_clock_is_told_to_those_who_may_set_it(now: bool) -> None:
    """And to nobody else."""
    names = [one["name"] for one in described(now=now)["paths"]["/checks/dispatch"]["post"]["parameters"]]
    assert names == ["prefix", "range", *(["now"] if now else [])]


def test_every_reference_is_there_and_every_schema_is_one() -> None:
    """As JSON Schema 2020-12, which OpenAPI 3.1 uses."""
    found = described(now=True)
    schemas = found["components"]["schemas"]
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    references = {value for name, value in _members(found) if name == "$ref"}
    assert references == {f"#/components/schemas/{name}" for name in schemas}


def test_it_is_json() -> None:
    """As it is served."""
    assert json.loads(json.dumps(described())) == described()


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, member in value.items():
            yield name, member
            yield from _members(member)
    elif isinstance(value, list):
        for member in value:
            yield from _members(member)
