"""All benchmarks, one table: `python -m benchmarks`, or `--quick` to see that they work.

Ratios, because a machine is only as fast as its neighbours let it be: each side is measured in turn with the
other. The calibration says how fast the machine was meanwhile.
"""

from __future__ import annotations

import argparse
import os
import platform

from benchmarks import check_api, checks, claim, empty_tick, next_run, queue, research, run, sensor
from benchmarks.support import Ratio, print_table, server


def main() -> int:
    """Measure all, print the table; 1 where a ratio is outside its limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small tables: a smoke test, no measure")
    quick = parser.parse_args().quick
    lines = next_run.read_lines()
    rate = next_run.rate(next_run.questions(lines))
    what = "next-run computations on one core beside 30,000/s"
    ratios = [Ratio(what, rate, next_run.WANTED, "/s", 1.0, "at least")]
    with server() as running:
        for benchmark in (empty_tick, claim, run, sensor, queue, research, checks, check_api):
            print(f"{benchmark.__name__} …", flush=True)
            found = benchmark.measure(running, quick=quick)
            print(*(f"  {one.what}: {one.ratio:.2f}" for one in found), sep="\n", flush=True)
            ratios += found
    bare = max(one.base for one in ratios if one.unit == "rows/s")
    print_table(
        ratios,
        f"machine: {os.cpu_count()} cores, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}, "
        f"{next_run.calibration():.1f} M datetime additions/s, bare claim at most {bare:,.0f} rows/s",
    )
    return 0 if quick or all(one.met for one in ratios) else 1


if __name__ == "__main__":
    raise SystemExit(main())
