"""One evaluation of the tick with 100,000 rows due at once: `python -m benchmarks.sensor`.

Measured in processes of their own, so that each one's memory is its own: the tick alone, and the real sensor
inside Dagster. It takes what its limits allow and says what is left.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from benchmarks.support import NoRuns, Ratio, database, fill, job_types, print_table, seconds, server
from cronless_dagster.scheduling.limits import Limits

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cronless_dagster.engine.job_types import JobTypes
    from cronless_dagster.store.embedded import EmbeddedPostgres

FEW, MANY, MOST_SECONDS = 10_000, 100_000, 30.0
# For each of three types: as many claims as one evaluation ever hands over, or as many as find enough rows due
# in the smaller table too.
_GREEDY, _EQUAL = 7, 3


def measure(running: EmbeddedPostgres, *, quick: bool = False) -> list[Ratio]:
    """Return the seconds of one evaluation beside its limit, and its memory beside that with fewer rows due."""
    few_rows, many_rows = (1_000, 10_000) if quick else (FEW, MANY)
    found = []
    for kind in ("tick", "sensor"):
        figures = {}
        for rows in (few_rows, many_rows):
            name = f"sensor_{kind}_{rows}"
            with database(running, name) as engine:
                fill(engine, rows, due=True)
            figures[rows] = _in_a_process(running.url(name), kind, few_rows // 10, _EQUAL)
        few, many = figures[few_rows], figures[many_rows]
        most = _in_a_process(running.url(name), kind, many_rows // 100, _GREEDY)
        what = f"{kind} with {many_rows:,} due ({most['claimed']:,} claimed)"
        found.append(Ratio(what, most["seconds"], MOST_SECONDS, "s", 1.0, "at most"))
        what = f"{kind}: memory with {many_rows:,} due beside {few_rows:,}"
        found.append(Ratio(what, many["megabytes"], few["megabytes"], "MB", 1.1, "at most"))
    return found


def _in_a_process(url: str, kind: str, batch_size: int, claims: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.sensor", kind, str(batch_size), str(claims)]
    done = subprocess.run(
        command,
        env={**os.environ, "CRONLESS_DATABASE_URL": url},
        capture_output=True,
        check=False,
        timeout=600,
    )
    if done.returncode:
        raise RuntimeError(f"the measured process failed:\n{done.stderr.decode()}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _evaluate(kind: str, batch_size: str, claims: str) -> None:
    """Evaluate once and print the figures; this is the child process."""
    from cronless_dagster.store.database import create_store_engine

    types = job_types(
        batch_size=int(batch_size), claims_per_tick=int(claims), limits=Limits(open_claims=None)
    )
    engine = create_store_engine(os.environ["CRONLESS_DATABASE_URL"])
    before = _jobs_claimed(engine)
    spent = _tick(engine, types) if kind == "tick" else _sensor(types)
    megabytes = _peak_megabytes()
    print(json.dumps({"seconds": spent, "megabytes": megabytes, "claimed": _jobs_claimed(engine) - before}))


def _jobs_claimed(engine: Engine) -> int:
    with engine.begin() as connection:
        count: int = connection.execute(
            text("SELECT coalesce(sum(job_count), 0) FROM cronless.job_claim")
        ).scalar_one()
    return count


def _tick(engine: Engine, types: JobTypes) -> float:
    from cronless_dagster.engine.tick import tick

    def evaluate() -> None:
        report = tick(engine, types, runs=NoRuns())
        assert report.left, "the tick must say what is left"

    return seconds(evaluate)


def _sensor(types: JobTypes) -> float:
    import dagster as dg

    from cronless_dagster.definitions import build_definitions

    definitions = build_definitions(types)
    sensor = definitions.resolve_sensor_def("cronless_tick")
    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.build_sensor_context(
            definitions=definitions, instance=instance, resources=definitions.resources
        ) as context,
    ):
        return seconds(lambda: sensor.evaluate_tick(context))


def _peak_megabytes() -> float:
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _evaluate(*sys.argv[1:])
    else:
        with server() as made:
            print_table(measure(made), "the sensor")
