from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronless_dagster.scheduling.errors import ScheduleError
from cronless_dagster.scheduling.hashing import stable_hash
from cronless_dagster.scheduling.schedules import parse_schedule
from tests.scheduling.strategies import examples

BASE = datetime(2026, 3, 28, 23, 59, 59, tzinfo=UTC)


@examples(100)
@given(
    job_id=st.uuids(), minutes=st.sampled_from([5, 15, 60, 90, 720, 1440]), seconds=st.integers(0, 10_000_000)
)
def test_once_in_each_window_at_the_ids_own_minute(job_id: UUID, minutes: int, seconds: int) -> None:
    """Every window of the epoch has exactly one instant, at the hash's minute."""
    schedule = parse_schedule(f"@window {minutes}m", "Europe/Berlin")
    base = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    found = list(islice(schedule.instants_after(base, job_id=job_id), 20))
    epoch_minutes = [int(at.timestamp()) // 60 for at in found]
    assert all(minute % minutes == stable_hash(job_id) % minutes for minute in epoch_minutes)
    windows = [minute // minutes for minute in epoch_minutes]
    assert windows == list(range(windows[0], windows[0] + 20))
    assert base < found[0] <= base + timedelta(minutes=minutes)


def test_many_ids_use_all_minutes() -> None:
    """Over 2,000 ids, each of the 60 minutes of an hour is somebody's."""
    schedule = parse_schedule("@window 1h")
    minutes = {at.minute for n in range(2_000) if (at := schedule.next_after(BASE, job_id=UUID(int=n)))}
    assert minutes == set(range(60))


@pytest.mark.parametrize("written", ["4m", "7m", "7h", "25h", "2d", "90s", "0m", "", "1h30s", "61m"])
def test_windows_that_do_not_divide_a_day_are_refused(written: str) -> None:
    """Below 5 minutes, above a day, or not an even part of a day: refused."""
    with pytest.raises(ScheduleError, match="window"):
        parse_schedule(f"@window {written}")


def test_a_near_window_is_offered() -> None:
    """The message names the windows next to the one refused."""
    with pytest.raises(ScheduleError, match="such as 6h or 8h"):
        parse_schedule("@window 7h")


def test_an_id_is_needed() -> None:
    """Without a job id there is no minute, and none is made up."""
    with pytest.raises(ScheduleError, match="needs a job id"):
        parse_schedule("@window 1h").next_after(BASE)
