from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.scheduling import zones
from cronless_dagster.scheduling.errors import TimezoneError

if TYPE_CHECKING:
    from pathlib import Path


class TestSource:
    """Zone data come from the pinned package and from nowhere else."""

    def test_pythontzpath_and_the_system_are_not_asked(self, tmp_path: Path) -> None:
        """With PYTHONTZPATH at a directory whose Europe/Berlin is Tokyo, Berlin is still Berlin."""
        fake = tmp_path / "Europe" / "Berlin"
        fake.parent.mkdir()
        fake.write_bytes(files("tzdata").joinpath("zoneinfo", "Asia", "Tokyo").read_bytes())
        code = (
            "from datetime import datetime, UTC; from zoneinfo import ZoneInfo;"
            "from cronless_dagster.scheduling.schedules import parse_schedule as p;"
            "print(ZoneInfo('Europe/Berlin').utcoffset(datetime(2026, 6, 1)));"
            "print(p('0 9 * * *', 'Europe/Berlin').next_after(datetime(2026, 6, 1, tzinfo=UTC)))"
        )
        answer = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONTZPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert answer.stdout.splitlines() == ["9:00:00", "2026-06-01 07:00:00+00:00"]

    def test_version_is_the_packages(self) -> None:
        """The version stored with each planned instant is the IANA release of the package."""
        assert zones.TZDATA_VERSION[:2] == "20"
        assert zones.TZDATA_VERSION >= "2026"

    def test_all_names_load(self) -> None:
        """Every name of the package's list can be loaded and knows its offset."""
        assert len(zones.zone_names()) > 500
        for name in zones.zone_names():
            assert zones.zone(name).utcoffset(datetime(2026, 6, 1)) is not None


class TestNames:
    """A wrong name is refused in one sentence that helps."""

    @pytest.mark.parametrize(
        ("name", "offered"),
        [
            ("Europe/Berln", "Europe/Berlin"),
            ("europe/berlin", "Europe/Berlin"),
            ("berlin", "Europe/Berlin"),
            ("new york", "America/New_York"),
            ("Europe/London ", "Europe/London"),
        ],
    )
    def test_near_names_are_offered(self, name: str, offered: str) -> None:
        """A slip, another case or a city alone is answered with the name that is meant."""
        with pytest.raises(TimezoneError, match=offered):
            zones.zone(name)

    @pytest.mark.parametrize(
        "name",
        ["", "/etc/passwd", "../zones", "Europe/../Asia/Tokyo", "Factory", "X" * 5000, "UTC\0", "GMT+25:00"],
    )
    def test_others_are_refused(self, name: str) -> None:
        """Paths, blanks and rubbish are refused, in a message that stays short."""
        with pytest.raises(TimezoneError) as error:
            zones.zone(name)
        assert len(str(error.value)) < 200


class TestLocalTimes:
    """A local time is one instant, none, or two."""

    def test_regular_skipped_and_repeated(self) -> None:
        """New York in 2026: noon, a time in the gap of March, a time in the repeated hour of November."""
        tz = zones.zone("America/New_York")
        assert zones.instants(tz, datetime(2026, 6, 1, 12)) == (datetime(2026, 6, 1, 16, tzinfo=UTC),)
        assert zones.instants(tz, datetime(2026, 3, 8, 2, 30)) == ()
        assert zones.instants(tz, datetime(2026, 11, 1, 1, 30)) == (
            datetime(2026, 11, 1, 5, 30, tzinfo=UTC),
            datetime(2026, 11, 1, 6, 30, tzinfo=UTC),
        )

    def test_ends_of_gap_and_first_pass(self) -> None:
        """The change itself is found to the second, from the first and the last minute around it."""
        tz = zones.zone("America/New_York")
        for minute in (0, 59):
            gap = zones.gap_end(tz, datetime(2026, 3, 8, 2, minute))
            first_pass = zones.first_pass_end(tz, datetime(2026, 11, 1, 1, minute))
            assert (gap, first_pass) == (
                datetime(2026, 3, 8, 7, tzinfo=UTC),
                datetime(2026, 11, 1, 6, tzinfo=UTC),
            )

    def test_changes_of_a_zone_with_four_a_year(self) -> None:
        """Casablanca changes around Ramadan; a zone without changes has none."""
        start, end = datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
        assert list(zones.changes(zones.zone("Africa/Casablanca"), start, end)) == [
            datetime(2025, 2, 23, 2, tzinfo=UTC),
            datetime(2025, 4, 6, 2, tzinfo=UTC),
        ]
        assert list(zones.changes(zones.zone("UTC"), start, end)) == []

    def test_changes_respect_the_bounds(self) -> None:
        """The start is left out, the end is in."""
        tz, change = zones.zone("America/New_York"), datetime(2026, 3, 8, 7, tzinfo=UTC)
        assert list(zones.changes(tz, change - timedelta(seconds=1), change)) == [change]
        assert list(zones.changes(tz, change, change + timedelta(days=1))) == []

    def test_naive_instants_are_refused(self) -> None:
        """An instant without a zone is never guessed at."""
        with pytest.raises(TimezoneError, match="has no zone"):
            zones.utc(datetime(2026, 1, 1))
