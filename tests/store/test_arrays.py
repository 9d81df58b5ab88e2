"""Arrays as PostgreSQL reads them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from sqlalchemy import text

from cronless_dagster.store.arrays import instant_array, integer_array, text_array, uuid_array

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

TEXTS = [
    "",
    "NULL",
    "null",
    "plain",
    'a "quoted" one',
    "back\\slash",
    '\\"',
    "{a,b}",
    " spaced ",
    "é\n\t",
    None,
    "'",
]
INSTANTS = [
    datetime(2026, 3, 2, 12, 0, 0, 123456, tzinfo=UTC),
    None,
    datetime(1, 1, 2, tzinfo=UTC),
    datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2026, 3, 2, tzinfo=timezone(timedelta(hours=5, minutes=45))),
]
IDS = [UUID(int=0), None, UUID(int=2**128 - 1), UUID("b7a3c1d2-0000-4000-8000-000000000001")]
NUMBERS = [0, -1, 2**31 - 1]


@pytest.mark.parametrize(
    ("write", "kind", "values"),
    [
        (text_array, "text[]", TEXTS),
        (instant_array, "timestamptz[]", INSTANTS),
        (uuid_array, "uuid[]", IDS),
        (integer_array, "integer[]", NUMBERS),
    ],
)
def test_values_come_back_as_they_were(
    engine: Engine, write: Callable[[Any], str], kind: str, values: list[Any]
) -> None:
    """Awkward values, NULL, and no values at all survive the way to the server and back."""
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL TimeZone = 'UTC'"))
        for given in (values, []):
            answer = connection.execute(
                text(
                    f"SELECT value FROM unnest(CAST(:given AS {kind})) WITH ORDINALITY AS t (value, n) ORDER BY n"
                ),
                {"given": write(given)},
            )
            assert list(answer.scalars()) == given
