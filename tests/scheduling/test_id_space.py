from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronless_dagster.scheduling.id_space import place_of
from cronless_dagster.scheduling.shards import shard

SOME = UUID("b7a3c1d2-0000-4000-8000-00000000000f")


def test_places() -> None:
    """A UUID stands where it is, a text at the beginning of its SHA-256, an integer where its text does."""
    assert place_of(SOME) == SOME
    # What `printf acme | sha256sum` begins with.
    assert place_of("acme") == UUID("822b33ad87c148a0a20a5ba7cd5ebcaa")
    assert place_of(17) == place_of("17")
    assert place_of(str(SOME)) != SOME


@given(st.integers() | st.text(st.characters(exclude_categories=["Cs"])) | st.uuids(), st.integers(1, 300))
def test_each_entity_is_in_one_part(entity: UUID | str | int, parts: int) -> None:
    """However many parts there are."""
    assert sum(shard(i, parts).contains(place_of(entity)) for i in range(parts)) == 1


@pytest.mark.parametrize("entity", ["", "\ud800", -1, 10**40])
def test_odd_ones_have_a_place(entity: str | int) -> None:
    """Nothing that somebody calls an id is refused."""
    assert isinstance(place_of(entity), UUID)
