"""`cronless explain`: its JSON word for word, its table, its refusals, its start."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Ran

AFTER = ("--after", "2026-11-30T12:00:00Z")


def test_json_is_exactly_what_is_documented(run_anywhere: Callable[..., Ran]) -> None:
    """Four keys, instants in UTC with Z, no warning where nothing is odd."""
    ran = run_anywhere(
        "explain", "0 9 * * *", "--timezone", "Europe/Berlin", *AFTER, "--count", "2", "--json"
    )
    assert ran == type(ran)(
        0,
        '{"schedule": "0 9 * * *", "timezone": "Europe/Berlin",'
        ' "next": ["2026-12-01T08:00:00Z", "2026-12-02T08:00:00Z"], "warnings": []}\n',
        "",
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("@every 90m", "--starts-at", "2026-12-01T00:00Z", *AFTER), "2026-12-01T00:00:00Z"),
        (("@once 2026-12-01T09:00", "--timezone", "Asia/Tokyo", *AFTER), "2026-12-01T00:00:00Z"),
        (("0 9 * * *", "--timezone", "Asia/Tokyo", "--after", "2026-12-01T08:59"), "2026-12-01T00:00:00Z"),
        (("0 9 * * *", "--after", "2026-12-01T09:00:00+00:00"), "2026-12-02T09:00:00Z"),
        (("RRULE:FREQ=WEEKLY;BYDAY=MO", "--starts-at", "2026-12-01T06:30Z", *AFTER), "2026-12-07T06:30:00Z"),
        (
            (
                "30 2 * * *",
                "--timezone",
                "Europe/Berlin",
                "--after",
                "2027-03-28T00:00Z",
                "--dst-policy",
                "wall",
            ),
            "2027-03-29T00:30:00Z",
        ),
        (
            ("30 2 * * *", "--timezone", "Europe/Berlin", "--after", "2027-03-28T00:00Z"),
            "2027-03-28T01:00:00Z",
        ),
    ],
)
def test_options_reach_the_schedule(
    run_anywhere: Callable[..., Ran], arguments: tuple[str, ...], expected: str
) -> None:
    """Zone, base, start and DST policy each change the answer; a time without offset is the zone's."""
    assert run_anywhere("explain", *arguments, "--count", "1", "--json").json["next"] == [expected]


def test_a_schedule_that_never_fires_is_no_error(run_anywhere: Callable[..., Ran]) -> None:
    """It has no next instant, and a warning says why."""
    ran = run_anywhere("explain", "0 0 30 2 *", "--json")
    assert ran.status == 0
    assert ran.json["next"] == []
    assert "never" in ran.json["warnings"][0]


def test_people_see_both_clocks_and_warnings(run_anywhere: Callable[..., Ran]) -> None:
    """Local time with its offset, UTC, the distance; a warning for what is odd; all within 80 columns."""
    ran = run_anywhere("explain", "*/7 9 * * *", "--timezone", "Europe/Berlin", *AFTER, "--count", "1")
    lines = ran.stdout.splitlines()
    assert ran.status == 0
    assert lines[1].split("  ")[0] == "local time in Europe/Berlin"
    assert lines[2].split() == ["Tue", "2026-12-01", "09:00", "+01:00", "2026-12-01", "08:00Z", "20", "h"]
    assert lines[3].startswith("Warning: The step in the minute field */7")
    assert all(len(line) <= 80 for line in lines[:3])
    assert "\x1b" not in ran.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("0 9 * *",),
        ("",),
        ("0 0 9 * * *",),
        ("@every 5s",),
        ("@reboot",),
        ("0 9 * * *", "--timezone", "Mars/Olympus"),
        ("0 9 * * *", "--timezone", ""),
        ("0 9 * * *", "--timezone", "../../etc/passwd"),
        ("0 9 * * *", "--dst-policy", "summer"),
        ("0 9 * * *", "--after", "yesterday"),
        ("0 9 * * *", "--after", "2026-13-01T00:00Z"),
        ("0 9 * * *", "--starts-at", "9999-12-31T23:59-12:00"),
        ("0 9 * * *", "--count", "0"),
        ("0 9 * * *", "--count", "many"),
        ("0 9 * * *", "--count", "9" * 5_000),
        ("0 9 * * *", "--nonsense"),
        ("0", "9", "*", "*", "*"),
        (),
        ("0 9 * * *\0",),
        ("0 9 * * *\udcff",),
        ("0 ٩ * * *",),
        ("1," * 5_000 + "1 * * * *",),
        ("RRULE:FREQ=HOURLY;INTERVAL=0",),
        ("\x1b[31mred",),
        ("a\nb",),
    ],
)
def test_refusals(run_anywhere: Callable[..., Ran], arguments: tuple[str, ...]) -> None:
    """Exit status 2 and one sentence, on stderr for people and as JSON on stdout for machines."""
    sentence = run_anywhere("explain", *arguments).refused()
    assert sentence.isprintable()
    assert len(sentence) < 600
    ran = run_anywhere("explain", *arguments, "--json")
    assert (ran.status, ran.json, ran.stderr) == (2, {"error": sentence}, "")


HEAVY = (
    "dagster",
    "sqlalchemy",
    "psycopg",
    "alembic",
    "pandas",
    "numpy",
    "rich",
    "dateutil",
    "cronless_dagster.store",
)


def test_it_loads_nothing_heavy() -> None:
    """It starts at once because none of the large libraries is imported, nor our own store."""
    code = (
        "import sys\n"
        "from cronless_dagster.cli import main\n"
        f"sys.argv = ['cronless', 'explain', '0 9 * * *', '--timezone', 'Europe/Berlin', '--json']\n"
        "try:\n    main()\nexcept SystemExit as left:\n    assert left.code == 0\n"
        f"print(sorted(name for name in {HEAVY!r} if name in sys.modules))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    answer, loaded = ran.stdout.splitlines()
    assert len(json.loads(answer)["next"]) == 5
    assert loaded == "[]"


def test_help_imports_no_command() -> None:
    """The list of commands is known without loading what they need."""
    code = (
        "import sys\n"
        "from cronless_dagster.cli import main\n"
        "sys.argv = ['cronless', '--help']\n"
        "try:\n    main()\nexcept SystemExit as left:\n    assert left.code == 0\n"
        f"print(sorted(name for name in {(*HEAVY, 'cronless_dagster.cli.tick')!r} if name in sys.modules))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("as_json", [False, True])
def test_a_reader_that_leaves_is_no_error(as_json: bool) -> None:
    """`cronless explain … | head -1` prints no traceback."""
    command = [sys.executable, "-m", "cronless_dagster.cli", "explain", "* * * * *", "--count", "10000"]
    process = subprocess.Popen(
        [*command, "--json"] if as_json else command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    said = process.stderr.read()
    process.wait(timeout=60)
    process.stderr.close()
    assert said == ""
