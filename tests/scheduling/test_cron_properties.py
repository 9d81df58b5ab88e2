from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronless_dagster.scheduling.base import COUNT_BOUND, DST_POLICIES
from cronless_dagster.scheduling.schedules import parse_schedule
from cronless_dagster.scheduling.zones import zone
from tests.scheduling import oracle
from tests.scheduling.strategies import LINES, ZONES, examples, zones_and_bases

if TYPE_CHECKING:
    from uuid import UUID

SPAN = timedelta(hours=30)


@pytest.mark.parametrize("policy", DST_POLICIES)
@examples(120)
@given(line=LINES, where=zones_and_bases())
def test_agrees_with_a_walk_over_every_minute(policy: str, line: str, where: tuple[str, datetime]) -> None:
    """Around every change, from any base, the firings are those of a simulated daemon or wall clock."""
    name, base = where
    schedule = parse_schedule(line, name, policy)
    found = list(takewhile(lambda at: at <= base + SPAN, schedule.instants_after(base)))
    assert found == oracle.instants(line, zone(name), policy, base, base + SPAN)


@pytest.mark.parametrize("policy", DST_POLICIES)
@examples(100)
@given(line=LINES, name=st.sampled_from(ZONES), base=st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)))
def test_the_answer_is_later_than_the_base_and_the_earliest(
    policy: str, line: str, name: str, base: datetime
) -> None:
    """An answer lies strictly after its base, and is the same from any base before it."""
    at = base.replace(tzinfo=UTC)
    schedule = parse_schedule(line, name, policy)
    found = schedule.next_after(at)
    if found is not None:
        assert found > at
        assert found.tzinfo is UTC
        assert schedule.next_after(found - timedelta(microseconds=1)) == found
        assert schedule.next_after(at + (found - at) / 2) == found


@pytest.mark.parametrize("policy", DST_POLICIES)
@examples(60)
@given(line=LINES, where=zones_and_bases(), days=st.integers(0, 40), seconds=st.integers(0, 86_400))
def test_a_stretch_has_the_last_instant_and_the_count_of_a_walk(
    policy: str, line: str, where: tuple[str, datetime], days: int, seconds: int
) -> None:
    """Counting whole days at once gives what counting each instant gives, changes of offset included."""
    name, after = where
    limit = after + timedelta(days=days, seconds=seconds)
    schedule = parse_schedule(line, name, policy)
    walked = list(takewhile(lambda at: at <= limit, schedule.instants_after(after)))
    last, count, cut = schedule.last_at_or_before(limit, after=after)
    assert last == (walked[-1] if walked else None)
    assert (count, cut) == (min(len(walked), COUNT_BOUND), len(walked) > COUNT_BOUND)


@examples(80)
@given(
    text=st.sampled_from(["@every 7m", "@every 1d", "@window 5m", "@window 24h", "@once 2026-11-01T01:30"]),
    after=st.datetimes(datetime(2026, 10, 30), datetime(2026, 11, 2)),
    minutes=st.integers(0, 5_000),
    job_id=st.uuids(),
)
def test_a_stretch_of_elapsed_time_is_counted_like_a_walk(
    text: str, after: datetime, minutes: int, job_id: UUID
) -> None:
    """The arithmetic of intervals and windows gives what walking them gives."""
    base = after.replace(tzinfo=UTC)
    limit = base + timedelta(minutes=minutes)
    anchor = datetime(2026, 10, 31, 5, 17, 23, tzinfo=UTC)
    schedule = parse_schedule(text, "America/New_York")
    walked = schedule.instants_after(base, job_id=job_id, anchor=anchor)
    found = list(takewhile(lambda at: at <= limit, walked))
    expected = (found[-1] if found else None, len(found), False)
    assert schedule.last_at_or_before(limit, after=base, job_id=job_id, anchor=anchor) == expected
