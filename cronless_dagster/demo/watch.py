"""What the demo shows while it runs, and the table at its end; read from the claims and their history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import Engine, text

from cronless_dagster.store.database import transaction

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

LATE_AFTER = timedelta(minutes=2)
"""A start this long after its due instant counts as late: two ticks."""

_CLAIMS = text(
    "SELECT id, job_type, route, job_count, done_count, failed_count, state, run_id, oldest_due_at, created_at,"
    " closed_at, close_reason FROM cronless.job_claim WHERE created_at >= :since OR closed_at >= :since"
    " ORDER BY created_at"
)
_TOTALS = text(
    "SELECT job_type, count(*) FILTER (WHERE outcome = 'success') AS done,"
    " count(*) FILTER (WHERE outcome IN ('failure', 'exhausted', 'superseded', 'crashed', 'canceled')) AS failed,"
    " count(*) FILTER (WHERE outcome <> 'missed' AND started_at > due_at + :late) AS late"
    " FROM cronless.job_execution WHERE recorded_at >= :since GROUP BY job_type"
)


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of one job type since the demo started, and the route that its claims took last."""

    job_type: str
    route: str
    claimed: int = 0
    done: int = 0
    failed: int = 0
    late: int = 0


class Watcher:
    """Follows the claims since an instant; each call of `news` says what changed."""

    def __init__(self, engine: Engine, since: datetime, run_address: str) -> None:
        """Watch from `since` (aware UTC) on; `run_address` is put before a run's id."""
        self._engine, self._since, self._run_address = engine, since, run_address
        self._states: dict[UUID, str] = {}

    def news(self) -> Iterator[str]:
        """Yield a line for each claim that was made or closed since the last call, in the order of their instants."""
        with transaction(self._engine) as connection:
            claims = connection.execute(_CLAIMS, {"since": self._since}).all()
        events: list[tuple[datetime, str]] = []
        for claim in claims:
            before = self._states.get(claim.id)
            self._states[claim.id] = claim.state
            if before == claim.state:
                continue
            what = f"{claim.job_count:>5,} {claim.job_type}"
            if before is None and claim.created_at >= self._since:
                oldest = "" if claim.oldest_due_at is None else f", due since {claim.oldest_due_at:%H:%M:%S}"
                taken = "queued " if claim.route == "queue" else "claimed"
                events.append((claim.created_at, f"{taken} {what}{oldest}"))
            if claim.state == "CLOSED":
                result = f"{claim.done_count:,} done, {claim.failed_count:,} failed"
                if claim.close_reason != "done":
                    result += f" ({claim.close_reason})"
                where = "by the workers" if claim.route == "queue" else f"{self._run_address}{claim.run_id}"
                events.append((claim.closed_at, f"ran     {what}: {result}  {where}"))
        for at, words in sorted(events):
            yield f"{at:%H:%M:%S}  {words}"

    def totals(self) -> list[Totals]:
        """Return the counts by job type."""
        with transaction(self._engine) as connection:
            claims = connection.execute(_CLAIMS, {"since": self._since}).all()
            ended = {
                row.job_type: row
                for row in connection.execute(_TOTALS, {"since": self._since, "late": LATE_AFTER})
            }
        claimed: dict[str, int] = {}
        routes = {claim.job_type: claim.route for claim in claims}
        for claim in claims:
            if claim.created_at >= self._since:
                claimed[claim.job_type] = claimed.get(claim.job_type, 0) + claim.job_count
        return [
            Totals(
                name,
                routes.get(name, "run"),
                claimed.get(name, 0),
                ended[name].done if name in ended else 0,
                ended[name].failed if name in ended else 0,
                ended[name].late if name in ended else 0,
            )
            for name in sorted({*claimed, *ended})
        ]
