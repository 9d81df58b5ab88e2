"""Leases: read from a hub's word, and renewed in time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronless_dagster.assets.webhooks.leases import LONGEST, MARGIN, granted_lease, renewed_after


@pytest.mark.parametrize(("text", "seconds"), [("1", 1), ("0864000", 864_000), ("864000", 864_000)])
def test_a_positive_integer_is_a_lease(text: str, seconds: int) -> None:
    """In seconds."""
    assert granted_lease(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", [None, "", "0", "000", "-5", "+5", "1.5", "1e3", "soon", " 5", "٣", "²"])
def test_anything_else_is_none(text: str | None) -> None:
    """Also numbers of other scripts, which Python would read."""
    assert granted_lease(text) is None


@pytest.mark.parametrize("text", ["315705600", "9" * 11, "9" * 10_000])
def test_a_lease_without_an_end_is_cut(text: str) -> None:
    """To ten years, and without trying to read a number of thousands of digits."""
    assert granted_lease(text) in (LONGEST, timedelta(seconds=315_619_200))
    assert LONGEST.days == 3_653


@given(st.integers(1, int(LONGEST.total_seconds())))
def test_a_lease_is_renewed_before_its_end(seconds: int) -> None:
    """A minute before at the latest, unless it is too short for a tick a minute; and never sooner than in a minute."""
    lease = timedelta(seconds=seconds)
    wait = renewed_after(lease)
    assert wait >= MARGIN
    assert wait <= lease - MARGIN or seconds < 120
    assert wait <= max(lease * 0.8, MARGIN)


def test_the_part_is_the_callers() -> None:
    """Half of ten days is five."""
    assert renewed_after(timedelta(days=10)) == timedelta(days=8)
    assert renewed_after(timedelta(days=10), 0.5) == timedelta(days=5)
