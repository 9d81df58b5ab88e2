"""A web server of the test's own, and the ground that Dagster's processes stand on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.dagster.conftest import ground  # noqa: F401 - a fixture
from tests.graphql.web import Web

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def web() -> Iterator[Web]:
    """A web server that answers as its test says."""
    with Web() as made:
        yield made
