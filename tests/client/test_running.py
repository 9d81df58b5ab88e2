"""Which minutes are called, and what is said about them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

from cronless_dagster.client.calls import calls_of
from cronless_dagster.client.outcomes import Outcome, Summary
from cronless_dagster.client.report import calls_as_dict, lines_of, table_of
from cronless_dagster.client.running import Client, minutes
from tests.client.support import WHO, config_of, serving

NINE = datetime(2026, 12, 1, 9, tzinfo=UTC)
TARGETS = {"eu": "https://eu.example.org", "us": "https://us.example.org:8443"}


class Clock:
    """A clock that passes only while somebody waits, and by `jumps` besides, one at each wait."""

    def __init__(self, at: datetime, *jumps: float) -> None:
        self.at, self.jumps = at, list(jumps)

    def __call__(self) -> datetime:
        """Say what time it is."""
        return self.at

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        assert 0 < seconds <= 1
        self.at += timedelta(seconds=seconds + (self.jumps.pop(0) if self.jumps else 0))


def first(clock: Clock, count: int) -> list[tuple[datetime, int]]:
    """The first minutes that are called, with how many were missed before each."""
    return list(islice(minutes(clock, clock.wait), count))


def after(count: int) -> datetime:
    """So many minutes after nine."""
    return NINE + timedelta(minutes=count)


def test_each_minute_is_called_once_the_running_one_first() -> None:
    """A client that starts in the middle of a minute calls for it at once."""
    assert first(Clock(NINE + timedelta(seconds=41.3)), 4) == [(after(i), 0) for i in range(4)]


def test_minutes_are_called_when_they_begin() -> None:
    """Each full minute is waited for, to the fraction of a second."""
    clock = Clock(NINE + timedelta(seconds=41.3))
    begun = [(minute, clock.at) for minute, _ in islice(minutes(clock, clock.wait), 3)][1:]
    assert [(at - minute).total_seconds() for minute, at in begun] == [0, 0]


def test_a_client_that_slept_calls_for_the_running_minute_only() -> None:
    """What it slept through is counted, and not made up for."""
    assert first(Clock(NINE, 5 * 60 + 30), 3) == [(after(0), 0), (after(5), 4), (after(6), 0)]


def test_calls_that_take_longer_than_a_minute_make_it_late() -> None:
    """The minute that has begun meanwhile is called at once."""
    clock = Clock(NINE)
    called = []
    for minute, missed in islice(minutes(clock, clock.wait), 3):
        called.append((minute, missed))
        clock.at += timedelta(seconds=150)
    assert called == [(after(0), 0), (after(2), 1), (after(5), 2)]


def test_a_clock_set_back_stops_nobody() -> None:
    """Minutes that come again are called again: a call too many does nothing, a silent hour would."""
    assert first(Clock(after(60), -3_600), 2) == [(after(60), 0), (after(0), 0)]


def test_a_minute_is_called_with_what_was_missed() -> None:
    """The summary is of the minute's beginning, whatever instant of it was given."""
    with serving() as eu:
        client = Client(config_of({"eu": eu.url}, '[[check]]\nname = "a"\nminutes = [0]\n'), WHO)
        summary = client.call(NINE + timedelta(seconds=59), missed=3)
        idle = client.call(after(1))
    assert (summary.minute, summary.missed, summary.acted) == (NINE, 3, 1)
    assert eu.paths[0].endswith("/checks/a?range=0-f")
    assert (idle.outcomes, idle.lost) == ((), ())


def test_failures_that_are_alike_are_one_line() -> None:
    """Sixty calls to a region that is away are told once, with their number."""
    calls = calls_of(config_of(TARGETS, '[[check]]\nname = "dispatch"\nprefix_length = 1\n'), NINE)
    outcomes = [
        Outcome(
            call=one, answered=one.target == "eu", acted=one.target == "eu", problem="nobody listens there"
        )
        for one in calls
    ]
    assert list(lines_of(Summary(NINE, tuple(outcomes), 1.26, 2))) == [
        "2026-12-01 09:00Z  32 calls, 16 failed, 2 minutes missed before, 16 acted, 1.3 s",
        "  us (dispatch 16): nobody listens there",
    ]
    lost = [Outcome(call=one, answered=False, problem="nobody listens there") for one in calls[:2]]
    assert list(lines_of(Summary(NINE, tuple(lost), 0.1))) == [
        "2026-12-01 09:00Z  2 calls, 2 failed, 1 group answered nowhere, 0 acted, 0.1 s",
        "  eu (dispatch 1): nobody listens there",
        "  us (dispatch 1): nobody listens there",
    ]


def test_a_dry_run_fits_a_terminal() -> None:
    """A group on each line, long ranges cut short, and the checks whose turn it isn't."""
    config = config_of(
        TARGETS,
        """
        [[check]]
        name = "dispatch"
        groups = 2
        [[check]]
        name = "garbage-collect"
        spread_minutes = 60
        [[check]]
        name = "analytics"
        minutes = [15]
        """,
    )
    lines = list(table_of(config, after(1), calls_of(config, after(1))))
    assert lines == [
        "2026-12-01 09:01Z  6 calls, each group to 2 targets:",
        "  eu  https://eu.example.org",
        "  us  https://us.example.org:8443",
        "check            ids",
        "dispatch         range=0-7",
        "dispatch         range=8-f",
        "garbage-collect  range=04444444...-08888888...",
        "not in this minute: analytics",
    ]
    assert max(map(len, lines)) <= 80


def test_a_dry_run_for_machines_has_all_but_the_secret() -> None:
    """Each call with its address, exact to the last digit."""
    config = config_of(TARGETS, '[[check]]\nname = "dispatch"\ngroups = 3\n')
    made = calls_as_dict(config, NINE, calls_of(config, NINE))
    assert made["minute"] == "2026-12-01T09:00:00Z"
    assert made["calls"][1] == {
        "target": "us",
        "check": "dispatch",
        "range": "0-" + "5" * 31 + "4",
        "url": "https://us.example.org:8443/***/checks/dispatch?range=0-" + "5" * 31 + "4",
    }
