"""Arrays for the batched statements, written as PostgreSQL reads them.

The driver's own way looks at each element several times over, which for a batch of a thousand jobs and fifteen
columns takes longer than planning them. The statements cast each text to its array's type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from uuid import UUID


def uuid_array(values: Iterable[UUID | None]) -> str:
    """Return the text of a `uuid[]`."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def instant_array(values: Iterable[datetime | None]) -> str:
    """Return the text of a `timestamptz[]`; the instants are aware."""
    return "{" + ",".join(["NULL" if value is None else value.isoformat() for value in values]) + "}"


def integer_array(values: Iterable[int]) -> str:
    """Return the text of an `integer[]` or `bigint[]`."""
    return "{" + ",".join([str(value) for value in values]) + "}"


def text_array(values: Iterable[str | None]) -> str:
    """Return the text of a `text[]`; whatever the texts hold, they are quoted."""
    return "{" + ",".join(["NULL" if value is None else _quoted(value) for value in values]) + "}"


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
