from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta

import pytest

from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.scheduling.models import ModelError, Outcome, RetryPolicy
from tests.scheduling.jobs import job


class TestOutcome:
    def test_plain_outcomes(self) -> None:
        """Each kind is accepted without further words."""
        assert [Outcome(kind).retry for kind in ("success", "failure", "canceled")] == [True, True, True]

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ({"kind": "done"}, "'done'"),
            ({"kind": "success", "error": "boom"}, "carries the error 'boom'"),
            ({"kind": "failure", "next_at": datetime(2026, 1, 1, tzinfo=UTC)}, "only a success"),
            ({"kind": "canceled", "next_at": datetime(2026, 1, 1, tzinfo=UTC)}, "only a success"),
            ({"kind": "success", "next_at": datetime(2026, 1, 1)}, "without a zone"),
            ({"kind": "success", "retry_after": timedelta(seconds=1)}, "to a failure"),
            ({"kind": "failure", "retry_after": timedelta(seconds=-1)}, "isn't negative"),
        ],
    )
    def test_nonsense_is_refused(self, arguments: dict[str, object], says: str) -> None:
        """An outcome that contradicts itself can't be built, and the message names the value."""
        with pytest.raises(ModelError, match=says):
            Outcome(**arguments)  # type: ignore[arg-type]


class TestRetryPolicy:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ({"max_attempts": 0}, "max_attempts is 0"),
            ({"delay": timedelta(seconds=-1)}, "delay"),
            ({"max_delay": timedelta(seconds=-1)}, "longest retry delay"),
            ({"factor": 0.5}, "factor is 0.5"),
            ({"factor": float("nan")}, "factor is nan"),
            ({"pause_after": 0}, "pause_after is 0"),
        ],
    )
    def test_values_out_of_range_are_refused(self, arguments: dict[str, object], says: str) -> None:
        """Each field names its own range."""
        with pytest.raises(ModelError, match=says):
            RetryPolicy(**arguments)  # type: ignore[arg-type]

    def test_edges_are_accepted(self) -> None:
        """One try, no pause, equal pauses and a pause after the first failure are sensible policies."""
        policy = RetryPolicy(
            max_attempts=1, delay=timedelta(0), max_delay=timedelta(0), factor=1, pause_after=1
        )
        assert policy.max_attempts == policy.pause_after == 1


def test_errors_are_ours() -> None:
    """Callers that catch the package's base catch these too."""
    assert issubclass(ModelError, CronlessError)


def test_models_are_frozen() -> None:
    """A job that was planned can't be changed behind the planner's back."""
    with pytest.raises(FrozenInstanceError):
        job().attempt = 3  # type: ignore[misc]
