"""What the benchmarks share: a database of their own, rows in it, and ratios measured in turn."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Literal

from sqlalchemy import text

from cronless_dagster.engine.job_types import JobType, JobTypes
from cronless_dagster.store.database import create_store_engine
from cronless_dagster.store.embedded import EmbeddedPostgres
from cronless_dagster.store.migrate import upgrade

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Engine

    from cronless_dagster.engine.runs import RunView

TENANTS = 300
TYPES = ("email_digest", "research_refresh", "webhook_renewal")
# Commits reach the disk as in production; only the memory is what a server of any size would have.
OPTIONS = {"shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "30min"}


@dataclass(frozen=True, slots=True)
class Ratio:
    """One line of the table.

    Attributes:
        what: What was measured.
        ours: Our figure.
        base: What it is held beside.
        unit: Of both.
        limit: What the ratio may be.
        kind: Whether the limit is the highest or the lowest that will do.
    """

    what: str
    ours: float
    base: float
    unit: str
    limit: float
    kind: Literal["at most", "at least"]

    @property
    def ratio(self) -> float:
        """Ours divided by the base."""
        return self.ours / self.base

    @property
    def met(self) -> bool:
        """Whether the ratio is within its limit."""
        return self.ratio <= self.limit if self.kind == "at most" else self.ratio >= self.limit


def print_table(ratios: Sequence[Ratio], calibration: str) -> None:
    """Print the ratios, and how fast the machine was meanwhile."""
    print(f"\n{calibration}")
    print(f"{'what':<58}{'ours':>10}{'beside':>10} {'unit':<8}{'ratio':>7}  wanted")
    for one in ratios:
        print(
            f"{one.what:<58}{_shown(one.ours):>10}{_shown(one.base):>10} {one.unit:<8}{one.ratio:>7.2f}  "
            f"{one.kind} {one.limit:g}{'' if one.met else '  NOT MET'}"
        )


def _shown(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


class NoRuns:
    """An executor that never has a run: hand-overs go nowhere."""

    def of_claims(self, claim_ids: Sequence[object]) -> Sequence[RunView]:  # noqa: ARG002 - the protocol's own
        """Return none."""
        return ()

    def why(self, run_id: str) -> str:
        """Say so."""
        return f"there is no run {run_id}"


def no_operation(_job: object) -> None:
    """Do nothing."""


def job_types(**options: object) -> JobTypes:
    """Return the benchmark's job types, with these options."""
    return JobTypes(tuple(JobType(name=name, handler=no_operation, **options) for name in TYPES))  # type: ignore[arg-type]


@contextmanager
def server() -> Iterator[EmbeddedPostgres]:
    """Start a PostgreSQL of the benchmarks' own, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as directory:
        Path(directory).chmod(0o711)
        with EmbeddedPostgres(Path(directory) / "pg", options=OPTIONS) as running:
            yield running


@contextmanager
def database(running: EmbeddedPostgres, name: str) -> Iterator[Engine]:
    """Make a migrated database and an engine on it."""
    url = running.url(name)
    upgrade(url)
    engine = create_store_engine(url)
    yield engine
    engine.dispose()


_FILL = text(
    "INSERT INTO cronless.scheduled_job (tenant_id, job_type, name, payload, schedule, timezone,"
    " misfire_grace_seconds, next_run_at, scheduled_for)"
    " SELECT 'tenant-' || lpad((n % :tenants)::text, 5, '0'), (CAST(:job_types AS text[]))[1 + n % :types],"
    " :prefix || n, jsonb_build_object('user', n, 'address', 'user-' || n || '@example.org', 'note', repeat('x', 80)),"
    " (n % 60)::text || ' * * * *',"
    " (ARRAY['UTC', 'Europe/Berlin', 'America/New_York', 'Asia/Tokyo'])[1 + n % 4],"
    " 1000000, at, date_trunc('minute', at)"
    " FROM (SELECT n, now() + CAST(:ahead AS interval) + n % 3000 * interval '1 second' AS at"
    " FROM generate_series(1, :rows) AS n) AS numbered"
)


def fill(
    engine: Engine,
    rows: int,
    *,
    due: bool,
    types: Sequence[str] = TYPES,
    tenants: int = TENANTS,
    prefix: str = "",
) -> None:
    """Add planned rows, due since up to an hour or ahead by hours, and bring the statistics up to date.

    Their misfire grace is so long that they stay merely late while they are measured again and again.
    """
    with engine.begin() as connection:
        connection.execute(
            _FILL,
            {
                "rows": rows,
                "tenants": tenants,
                "job_types": list(types),
                "types": len(types),
                "prefix": prefix,
                "ahead": "-1 hour" if due else "3 hours",
            },
        )
    tidy(engine)


def tidy(engine: Engine) -> None:
    """Vacuum and analyze, so that no side pays for what the other left."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE cronless.scheduled_job, cronless.job_claim"))


def seconds(action: Callable[[], object]) -> float:
    """Time one call."""
    started = perf_counter()
    action()
    return perf_counter() - started


def in_turn(first: Callable[[], object], second: Callable[[], object], pairs: int) -> tuple[float, float]:
    """Call both in turn, each leading every other time; return the medians of their seconds."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(pairs):
        for side in (0, 1) if number % 2 else (1, 0):
            times[side].append(seconds((first, second)[side]))
    return median(times[0]), median(times[1])
