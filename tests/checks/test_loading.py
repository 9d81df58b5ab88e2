from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cronless_dagster.checks.declaring import CheckError
from cronless_dagster.checks.loading import load_checks

if TYPE_CHECKING:
    from pathlib import Path


def test_a_module_of_ones_own() -> None:
    """The example's, with the check that it registers."""
    assert list(load_checks("examples.own_check.trials")) == ["trial-reminders"]


@pytest.mark.parametrize(
    ("source", "said"),
    [("x = 1", "write `checks = Checks"), ("1 / 0", "ZeroDivisionError"), (None, "can't be imported")],
)
def test_what_is_no_module_of_checks(
    source: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told in a sentence that names it."""
    monkeypatch.syspath_prepend(tmp_path)
    if source is not None:
        (tmp_path / "some_checks.py").write_text(source)
    monkeypatch.delitem(__import__("sys").modules, "some_checks", raising=False)
    with pytest.raises(CheckError, match=said) as caught:
        load_checks("some_checks")
    assert "some_checks" in str(caught.value)
