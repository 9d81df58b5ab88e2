"""What an account's items come to, week by week."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WEEKS = 26


def first_monday(now: datetime, weeks: int = WEEKS) -> datetime:
    """Return the beginning, in UTC, of the first of so many ISO weeks of which the last one holds `now`."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=today.weekday(), weeks=weeks - 1)


def by_week(instants: Sequence[datetime]) -> dict[str, int]:
    """Count instants by ISO week in UTC, its Monday as key: `{"2027-01-04": 3}`; weeks without any are left out."""
    if not instants:
        return {}
    import pandas as pd

    days = pd.DatetimeIndex(pd.to_datetime(list(instants), utc=True)).normalize()
    mondays = days - pd.to_timedelta(days.day_of_week, unit="D")
    counts = mondays.value_counts().sort_index()
    return {f"{monday:%Y-%m-%d}": int(count) for monday, count in counts.items()}
