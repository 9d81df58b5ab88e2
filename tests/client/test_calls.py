"""The calls of a minute, and that the groups of a window hold every id exactly once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cronless_dagster.api.calls import read_call
from cronless_dagster.client.calls import Call, calls_of
from cronless_dagster.client.errors import ClientError
from cronless_dagster.client.parts import FULL, SPACE, Part
from cronless_dagster.client.windows import Window, minute_of, read_minute
from cronless_dagster.scheduling import shards
from tests.client.support import config_of

NINE = datetime(2026, 12, 1, 9, tzinfo=UTC)
MINUTES = st.datetimes(datetime(1970, 1, 1), datetime(2199, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - zone beside
COUNTS = st.integers(1, 5_000)
EDGES = (0, 1, SPACE // 2 - 1, SPACE // 2, SPACE - 2, SPACE - 1)


def window_minutes(start: datetime, window: Window) -> list[Part]:
    """All groups of the minutes of one spread, from any minute on."""
    return [part for i in range(window.spread) for part in window.groups_at(start + timedelta(minutes=i))]


def each_id_once(parts: list[Part]) -> None:
    """Check that the parts, in order, begin at the first id, end at the last, and leave nothing out between."""
    ordered = sorted(parts)
    assert ordered[0].low == 0
    assert ordered[-1].high == SPACE - 1
    assert all(one.low <= one.high for one in ordered)
    assert all(after.low == one.high + 1 for one, after in pairwise(ordered))


def holders(parts: list[Part], number: int) -> int:
    """How many of the parts hold an id."""
    return sum(one.low <= number <= one.high for one in parts)


def as_the_api_reads(part: Part) -> Part:
    """What the API makes of a call for a part."""
    ids = read_call(Call("eu", "dispatch", part).query.encode(), may_say_now=False).ids
    return Part(ids.low.int, ids.high.int)


@given(MINUTES, COUNTS)
@example(NINE, 4_999)
def test_the_groups_of_a_minute_hold_each_id_once(minute: datetime, groups: int) -> None:
    """Whatever the number of groups, each id is in exactly one, those at all edges included."""
    parts = list(Window(groups=groups).groups_at(minute))
    assert len(parts) == groups
    each_id_once(parts)
    ids = [
        *EDGES,
        *(part.low + step for part in (parts[0], parts[-1], parts[groups // 2]) for step in (-1, 0, 1)),
    ]
    assert all(holders(parts, number) == 1 for number in ids if 0 <= number < SPACE)


@given(MINUTES, st.integers(1, 200), st.integers(1, 25))
@example(NINE, 60, 7)
@example(NINE, 7, 1)
def test_a_spread_holds_each_id_once(minute: datetime, spread: int, groups: int) -> None:
    """From any minute on, the groups of as many minutes as the ids are spread over hold each id once."""
    parts = window_minutes(minute, Window(spread=spread, groups=groups))
    assert len(parts) == spread * groups
    each_id_once(parts)


@given(MINUTES, st.integers(1, 300), st.integers(1, 2))
@example(NINE, 60, 2)
@example(NINE, 60, 1)
def test_prefixes_that_are_spread_hold_each_id_once(minute: datetime, spread: int, length: int) -> None:
    """Each prefix has one minute of the spread, more minutes than prefixes included, and shares are even."""
    window = Window(spread=spread, prefix_length=length)
    parts = window_minutes(minute, window)
    each_id_once(parts)
    assert {part.parameter()[0] for part in parts} == {"prefix"}
    shares = {len(window.groups_at(minute + timedelta(minutes=i))) for i in range(spread)}
    assert max(shares) - min(shares) <= 1


@given(COUNTS, st.data())
def test_groups_are_the_shards_of_the_package(groups: int, data: st.DataObject) -> None:
    """This folder's own arithmetic gives what the scheduler's gives."""
    i = data.draw(st.integers(0, groups - 1))
    part, ours = FULL.piece(i, groups), shards.shard(i, groups)
    assert (part.low, part.high) == (ours.low.int, ours.high.int)


@given(st.integers(0, SPACE - 1), st.integers(0, SPACE - 1))
@example(0, 0)
@example(SPACE - 1, SPACE - 1)
@example(0, SPACE - 1)
@example(0xB << 124, (0xB << 124) + (0xFF << 112))
def test_a_parameter_means_the_part_it_is_made_of(one: int, other: int) -> None:
    """However a part lies, its prefix or range says it exactly."""
    part = Part(min(one, other), max(one, other))
    assert as_the_api_reads(part) == part


@given(st.text("0123456789abcdef", min_size=1, max_size=32))
def test_a_prefix_is_called_by_its_name(prefix: str) -> None:
    """A part that is a prefix is written as this prefix, or as a shorter way to say the same."""
    ids = shards.from_prefix(prefix)
    name, written = Part(ids.low.int, ids.high.int).parameter()
    assert name == "prefix"
    assert shards.from_prefix(written) == ids


@pytest.mark.parametrize(
    ("groups", "parameters"),
    [(1, ["range=0-f"]), (2, ["range=0-7", "range=8-f"]), (16, [f"prefix={i:x}" for i in range(16)])],
)
def test_parameters_are_short(groups: int, parameters: list[str]) -> None:
    """A prefix is used where there is one, and no digit that the API fills up by itself."""
    assert ["=".join(part.parameter()) for part in Window(groups=groups).groups_at(NINE)] == parameters


def test_a_whole_id_is_a_part() -> None:
    """A single id is called by all of its digits."""
    number = UUID("0123456789abcdef0123456789abcdef").int
    assert Part(number, number).parameter() == ("prefix", "0123456789abcdef0123456789abcdef")


def test_calls_are_for_each_check_group_and_target() -> None:
    """Calls come in the order of the file, each group at each target."""
    config = config_of(
        {"eu": "https://eu.example.org", "us": "https://us.example.org"},
        """
        [[check]]
        name = "dispatch"
        groups = 2
        [[check]]
        name = "analytics"
        minutes = [0, 15, 30, 45]
        """,
    )
    calls = [(one.target, one.check, one.query) for one in calls_of(config, NINE)]
    assert calls == [
        ("eu", "dispatch", "range=0-7"),
        ("us", "dispatch", "range=0-7"),
        ("eu", "dispatch", "range=8-f"),
        ("us", "dispatch", "range=8-f"),
        ("eu", "analytics", "range=0-f"),
        ("us", "analytics", "range=0-f"),
    ]
    later = calls_of(config, NINE + timedelta(minutes=7))
    assert {one.check for one in later} == {"dispatch"}


def test_a_minute_is_the_same_at_each_of_its_seconds_and_in_each_zone() -> None:
    """Only the minute counts, not how far it has come or how its instant is written."""
    config = config_of(
        {"eu": "https://eu.example.org"}, '[[check]]\nname = "a"\nspread_minutes = 7\ngroups = 3\n'
    )
    kathmandu = timezone(timedelta(hours=5, minutes=45))
    late = (NINE + timedelta(seconds=59.999)).astimezone(kathmandu)
    assert calls_of(config, late) == calls_of(config, NINE)
    assert minute_of(late) == NINE


def test_minutes_of_the_hour_are_utc() -> None:
    """A minute of the hour is one of UTC, whatever offset the instant is written with."""
    window = Window(minutes=frozenset({15}))
    quarter = NINE + timedelta(minutes=15)
    assert window.groups_at(quarter.astimezone(timezone(timedelta(hours=5, minutes=45))))
    assert not window.groups_at(NINE)


def test_an_instant_says_its_offset() -> None:
    """A local time would be another minute on another machine, so it is refused."""
    naive = NINE.replace(tzinfo=None)
    for refuse in (Window().groups_at, minute_of):
        with pytest.raises(ClientError, match="no offset"):
            refuse(naive)
    with pytest.raises(ClientError, match="2026-12-01T09:00Z"):
        read_minute("tomorrow")
    with pytest.raises(ClientError, match="no offset"):
        read_minute("2026-12-01T09:00")
    assert read_minute("2026-12-01T10:00:30+01:00") == NINE
