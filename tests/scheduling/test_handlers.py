from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cronless_dagster.scheduling.errors import ScheduleError
from cronless_dagster.scheduling.schedules import HandlerSchedule, parse_schedule

NOW = datetime(2026, 3, 28, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["@handler fallback=24h", "@Handler  fallback = 1d", "@handler\tfallback=23h60m"]
)
def test_the_fallback_is_read(text: str) -> None:
    """The schedule has no instants of its own, only a fallback."""
    schedule = parse_schedule(text)
    assert isinstance(schedule, HandlerSchedule)
    assert schedule.fallback == timedelta(days=1)
    assert schedule.next_after(NOW) is None
    assert schedule.last_at_or_before(NOW, after=NOW - timedelta(days=9)) == (None, 0, False)


@pytest.mark.parametrize(
    "text", ["@handler", "@handler 24h", "@handler fallback=", "@handler fallback=30s", "@handler x=1h"]
)
def test_without_a_usable_fallback_it_is_refused(text: str) -> None:
    """A job whose handler fails for good would otherwise die without a word."""
    with pytest.raises(ScheduleError, match="fallback"):
        parse_schedule(text)
