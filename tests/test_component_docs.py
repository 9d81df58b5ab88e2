"""The how-to of the component and its models agree, field by field."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cronless_dagster import CronlessComponent
from cronless_dagster.component import attributes
from cronless_dagster.component.component import Unread

if TYPE_CHECKING:
    from pydantic import BaseModel

DOCS = Path(__file__).parent.parent / "docs" / "howto_component.md"


def rows(model: type[BaseModel], schema: dict[str, Any]) -> list[str]:
    """Return the rows of a model's table, as they are to stand in the docs: what is required comes first."""
    required = set(schema.get("required", ()))
    table = []
    for name, field in sorted(schema["properties"].items(), key=lambda item: item[0] not in required):
        default = "" if name in required or field.get("default") in (None, "") else f"`{field['default']}`"
        described = model.model_fields[name].description
        table.append(f"| `{name}` | {'required' if name in required else default} | {described} |")
    return table


def documented() -> dict[str, list[str]]:
    """Return the rows of each of the component's tables, by the name of its model."""
    schema = Unread.model_json_schema()
    models = {CronlessComponent: schema}
    models |= {getattr(attributes, name): found for name, found in schema["$defs"].items()}
    return {model.__name__: rows(model, found) for model, found in models.items()}


@pytest.mark.parametrize("name", list(documented()))
def test_the_docs_have_each_field(name: str) -> None:
    """With the default and the description that `dg` shows."""
    text = DOCS.read_text(encoding="utf-8")
    for row in documented()[name]:
        assert row in text, row


def test_the_docs_have_no_other_field() -> None:
    """A field that was renamed is gone from the docs too."""
    listed = re.findall(r"^\| `\w+` \|.*$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(listed) == {row for table in documented().values() for row in table}
