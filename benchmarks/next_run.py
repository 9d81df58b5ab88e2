"""Next-run computations a second on one core, with the parse cached: `python -m benchmarks.next_run`.

The lines are the real ones of `examples/schedules.csv`, in their stated zones (UTC if none is stated), each asked for
its next run from instants spread over two years, so changes of offset are met as often as in real life. A
second row gives the lines with a zone other than UTC alone, a third puts all lines into zones with changes. The
calibration is a fixed loop of datetime arithmetic: it says how fast this machine was at that moment.
"""

from __future__ import annotations

import csv
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import process_time

from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.scheduling.schedules import CronSchedule, parse_schedule

WANTED = 30_000
ASKED = 60_000
ROUNDS = 3
START = datetime(2026, 1, 1, tzinfo=UTC)
ZONES = ("America/New_York", "Europe/Berlin", "Europe/London", "Australia/Sydney", "America/Los_Angeles")
SCHEDULES = Path(__file__).parents[1] / "examples" / "schedules.csv"

Questions = list[tuple[str, str, datetime]]


def read_lines() -> list[tuple[str, str]]:
    """Return the cron lines that can be read, each with its zone."""
    with SCHEDULES.open(newline="", encoding="utf-8") as file:
        rows = [(row["expr"], row["timezone"] or "UTC") for row in csv.DictReader(file)]
    readable = []
    for line, zone in rows:
        try:
            if isinstance(parse_schedule(line, zone), CronSchedule):
                readable.append((line, zone))
        except CronlessError:
            continue
    return readable


def questions(lines: list[tuple[str, str]]) -> Questions:
    """Draw lines and bases, the same in every run."""
    draw = random.Random(1)  # noqa: S311 - a mix to measure with, no secret
    return [
        (*draw.choice(lines), START + timedelta(seconds=draw.randrange(63_000_000))) for _ in range(ASKED)
    ]


def rate(asked: Questions) -> float:
    """Return the best rate of a few rounds, in answers a second of processor time, parse lookup included."""
    best = 0.0
    for _ in range(ROUNDS):
        started = process_time()
        for line, zone, base in asked:
            parse_schedule(line, zone).next_after(base)
        best = max(best, len(asked) / (process_time() - started))
    return best


def calibration() -> float:
    """Return millions of datetime additions a second."""
    step, count = timedelta(seconds=61), 500_000
    at = START
    started = process_time()
    for _ in range(count):
        at += step
    return count / (process_time() - started) / 1e6


def main() -> None:
    """Print the rates and their ratio to the wanted one."""
    lines = read_lines()
    zoned = [(line, zone) for line, zone in lines if zone not in ("UTC", "Etc/UTC")]
    moved = [(line, ZONES[n % len(ZONES)]) for n, (line, _) in enumerate(lines)]
    print(f"calibration: {calibration():.1f} M datetime additions a second")
    print(f"{'lines':<34}{'number':>7}{'a second':>10}{'of 30,000':>11}")
    for name, mix in (
        ("as they are", lines),
        ("with a zone other than UTC", zoned),
        ("all in changing zones", moved),
    ):
        found = rate(questions(mix))
        print(f"{name:<34}{len(mix):>7}{found:>10,.0f}{found / WANTED:>10.2f}x")


if __name__ == "__main__":
    main()
