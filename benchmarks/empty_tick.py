"""An empty tick on a large table beside one on a small table: `python -m benchmarks.empty_tick`.

Both tables lie in one server and are asked in turn. Nothing is due; the tick makes its usual round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.support import NoRuns, Ratio, database, fill, in_turn, job_types, print_table, server
from cronless_dagster.engine.tick import tick

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cronless_dagster.store.embedded import EmbeddedPostgres

SMALL, LARGE, PAIRS = 10_000, 1_000_000, 200


def measure(running: EmbeddedPostgres, *, quick: bool = False) -> list[Ratio]:
    """Return the ratio of the two medians."""
    small_rows, large_rows, pairs = (1_000, 10_000, 10) if quick else (SMALL, LARGE, PAIRS)
    types = job_types()
    with database(running, "empty_small") as small, database(running, "empty_large") as large:
        fill(small, small_rows, due=False)
        fill(large, large_rows, due=False)

        def empty(engine: Engine) -> None:
            report = tick(engine, types, runs=NoRuns())
            assert report.summary() == "nothing is due", report

        for engine in (small, large):
            empty(engine)
        ours, base = in_turn(lambda: empty(large), lambda: empty(small), pairs)
    return [
        Ratio(
            f"empty tick, {large_rows:,} rows beside {small_rows:,}",
            ours * 1000,
            base * 1000,
            "ms",
            1.5,
            "at most",
        )
    ]


if __name__ == "__main__":
    with server() as made:
        print_table(measure(made), "an empty tick")
