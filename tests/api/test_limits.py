"""The token bucket, on a clock of the test's own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cronless_dagster.api.limits import BURST_SECONDS, Rate


@given(
    rate=st.sampled_from([0.1, 0.5, 1.0, 7.0, 50.0]),
    pauses=st.lists(st.floats(0, 30), min_size=1, max_size=200),
)
def test_no_more_than_its_rate_and_one_burst(rate: float, pauses: list[float]) -> None:
    """Over any span whatever; and who waits as long as told is let through."""
    at = 0.0
    bucket = Rate(rate, lambda: at)
    for through, pause in enumerate(pauses, start=1):
        at += pause
        wait = bucket.wait()
        if wait:
            at += wait
            assert bucket.wait() == 0
        assert through <= max(1, rate * BURST_SECONDS) + at * rate + 1e-3


def test_a_full_bucket_holds_ten_seconds_worth() -> None:
    """And no more, however long nobody called."""
    at = 0.0
    bucket = Rate(2, lambda: at)
    at = 1e6
    assert [bucket.wait() for _ in range(21)] == [0] * 20 + [1]
