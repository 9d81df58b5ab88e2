"""The numbers of a run's summary."""

from __future__ import annotations

from uuid import uuid4

import pytest

from cronless_dagster.assets.summary import _quantile, summary_metadata
from cronless_dagster.engine.running import ClaimReport


@pytest.mark.parametrize(
    ("values", "part", "expected"),
    [
        ([7.0], 0.5, 7.0),
        ([7.0], 0.95, 7.0),
        ([1.0, 2.0], 0.5, 1.0),
        ([1.0, 2.0, 3.0], 0.5, 2.0),
        ([float(n) for n in range(1, 101)], 0.95, 95.0),
        ([float(n) for n in range(1, 20)], 0.95, 19.0),
    ],
)
def test_quantiles_are_values_that_occurred(values: list[float], part: float, expected: float) -> None:
    """No interpolation: somebody really waited that long."""
    assert _quantile(values, part) == expected


def test_a_claim_without_jobs_has_no_lateness() -> None:
    """All its jobs were removed or discarded; zero would look like punctuality."""
    metadata = summary_metadata(ClaimReport(uuid4(), "digest", job_count=2, discarded=2))
    assert metadata["dagster/row_count"] == 0
    assert metadata["jobs_per_second"] == 0.0
    assert not [name for name in metadata if name.startswith("lateness")]


def test_rates_and_outcomes_are_numbers() -> None:
    """Dagster's UI plots numbers only."""
    report = ClaimReport(
        uuid4(),
        "digest",
        job_count=7,
        recorded={"success": 3, "failure": 1, "exhausted": 1, "superseded": 1},
        lateness=[4.0, 1.0, 2.0, 3.0, 5.0, 6.0],
        seconds=2.0,
        paused=1,
    )
    metadata = summary_metadata(report)
    assert metadata["jobs_per_second"] == 3.0
    assert (metadata["retried"], metadata["exhausted"], metadata["superseded"], metadata["paused"]) == (
        1,
        1,
        1,
        1,
    )
    assert metadata["lateness_p50_seconds"] == 3.0
    assert metadata["lateness_max_seconds"] == 6.0
    assert all(isinstance(value, int | float) for name, value in metadata.items() if name != "claim")
