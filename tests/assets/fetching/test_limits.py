"""The limits of a fetcher."""

from __future__ import annotations

from typing import Any

import pytest

from cronless_dagster.assets.fetching import FetchError, FetchLimits


@pytest.mark.parametrize(
    "wrong",
    [
        {"per_host": 0},
        {"seconds": -1},
        {"connect_seconds": float("nan")},
        {"bytes": 0},
        {"redirects": -1},
        {"networks": ("10.0.0.1/8",)},
        {"networks": ("localhost",)},
        {"user_agent": "two\nlines"},
        {"user_agent": " "},
        {"user_agent": "Bücher/1"},
    ],
)
def test_refused(wrong: dict[str, Any]) -> None:
    """A limit that could never work is refused by its name or value, where it is given."""
    with pytest.raises(FetchError, match=r"is .*: give|is no network|can't be sent"):
        FetchLimits(**wrong)


def test_standard() -> None:
    """The client calls itself by the package's name, and robots.txt is asked unless somebody says otherwise."""
    limits = FetchLimits()
    assert limits.user_agent.startswith("cronless_dagster/")
    assert limits.robots
    assert limits.networks == ()
