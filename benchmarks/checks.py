"""A call from outside that finds nothing to do, on a large table beside a small one: `python -m benchmarks.checks`.

Both tables lie in one server and are asked in turn for one of 256 parts of the id space, whose last tick is fresh.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.support import Ratio, database, fill, in_turn, job_types, print_table, server
from cronless_dagster.checks.declaring import Asked
from cronless_dagster.checks.dispatching import dispatch
from cronless_dagster.scheduling.shards import from_prefix

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sqlalchemy import Engine

    from cronless_dagster.engine.queueing import Publishing
    from cronless_dagster.store.embedded import EmbeddedPostgres

SMALL, LARGE, PAIRS = 10_000, 1_000_000, 500


def measure(running: EmbeddedPostgres, *, quick: bool = False) -> list[Ratio]:
    """Return the ratio of the two medians."""
    small_rows, large_rows, pairs = (1_000, 10_000, 10) if quick else (SMALL, LARGE, PAIRS)
    with database(running, "check_small") as small, database(running, "check_large") as large:
        fill(small, small_rows, due=False)
        fill(large, large_rows, due=False)

        def call(engine: Engine) -> Asked:
            return Asked(
                engine=engine, ids=from_prefix("b7"), job_types=job_types(route="queue"), queue=_no_broker
            )

        asked = {engine: call(engine) for engine in (small, large)}
        for one in asked.values():
            dispatch(replace(one, queue=None))  # the tick that is noted

        def ask(engine: Engine) -> None:
            assert dispatch(asked[engine]).acted == 0

        ours, base = in_turn(lambda: ask(large), lambda: ask(small), pairs)
    what = f"a check that finds nothing, {large_rows:,} rows beside {small_rows:,}"
    return [Ratio(what, ours * 1000, base * 1000, "ms", 1.5, "at most")]


def _no_broker() -> AbstractContextManager[Publishing]:
    raise AssertionError("nothing is due, so nothing is published")


if __name__ == "__main__":
    with server() as made:
        print_table(measure(made), "a call from outside")
