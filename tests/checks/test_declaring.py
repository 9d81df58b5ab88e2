from __future__ import annotations

from datetime import timedelta

import pytest

from cronless_dagster.checks.built_in import built_in
from cronless_dagster.checks.declaring import Answer, Check, CheckError, Checks

MINUTE = timedelta(minutes=1)


def one(name: str = "mine", every: timedelta = MINUTE) -> Check:
    """Return a check that does nothing."""
    return Check(name=name, ids="things", every=every, ask=lambda _: Answer())


def test_the_built_in_ones_say_whose_ids_they_are_cut_from() -> None:
    """And how often they are worth calling."""
    assert {name: (check.ids, check.every // MINUTE) for name, check in built_in().items()} == {
        "dispatch": ("jobs", 1),
        "rescue": ("jobs", 1),
        "analytics": ("job types", 15),
        "garbage-collect": ("jobs", 60),
    }


@pytest.mark.parametrize("name", ["", "Mine", "my_check", "a/b", "a--b", "-a", "a\n", "x" * 61, "1a"])
def test_a_name_that_no_address_should_hold(name: str) -> None:
    """Refused where it is declared."""
    with pytest.raises(CheckError, match="lower case words"):
        one(name)


def test_a_window_that_nobody_calls_in() -> None:
    """Clients call once a minute."""
    with pytest.raises(CheckError, match="a minute or more"):
        one(every=timedelta(seconds=59))


def test_two_of_one_name() -> None:
    """Neither is silently dropped."""
    with pytest.raises(CheckError, match="two checks named 'mine'"):
        Checks([one(), one()])
