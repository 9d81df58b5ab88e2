"""Short ways to write jobs, ticks and runs in the engine's tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from sqlalchemy import text

from cronless_dagster.engine.job_types import JobType, JobTypes
from cronless_dagster.engine.running import ClaimReport, run_claim
from cronless_dagster.engine.runs import HandOver, RunState, RunView
from cronless_dagster.engine.tick import tick
from cronless_dagster.store import jobs
from cronless_dagster.store.database import transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Engine, Row

    from cronless_dagster.engine.report import TickReport

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
"""Where the virtual clock of the tests starts."""


def after(**span: float) -> datetime:
    """Return the instant that lies so long after noon."""
    return NOON + timedelta(**span)


def nothing(_job: object) -> None:
    """Do nothing, well."""


def types_of(handler: Callable[..., Any] = nothing, *names: str, **options: Any) -> JobTypes:
    """Declare job types (one named "work" unless named) that share a handler."""
    return JobTypes(tuple(JobType(name=name, handler=handler, **options) for name in names or ("work",)))


def far_away(now: datetime) -> str:
    """Return a schedule whose next instant is some twelve hours off: no test sees a second occurrence."""
    return f"0 {(now.hour + 12) % 24} * * *"


def add(engine: Engine, schedule: str = "* * * * *", **values: Any) -> UUID:
    """Add a job of type "work" in a transaction of its own."""
    given = {"tenant_id": "t", "job_type": "work", "name": uuid4().hex, "schedule": schedule, **values}
    with transaction(engine) as connection:
        return jobs.add(connection, **given)


def add_many(engine: Engine, count: int, schedule: str = "* * * * *", **values: Any) -> list[UUID]:
    """Add so many jobs in one transaction."""
    with transaction(engine) as connection:
        return [
            jobs.add(
                connection,
                **{"tenant_id": "t", "job_type": "work", "name": str(n), "schedule": schedule, **values},
            )
            for n in range(count)
        ]


def sql(engine: Engine, statement: str, **parameters: Any) -> Sequence[Row[Any]]:
    """Run a statement in a transaction of its own and return its rows, if it has any."""
    with engine.begin() as connection:
        answer = connection.execute(text(statement), parameters)
        return answer.all() if answer.returns_rows else []


def row(engine: Engine, job_id: UUID) -> Row[Any]:
    """Return a job's row."""
    return sql(engine, "SELECT * FROM cronless.scheduled_job WHERE id = :id", id=job_id)[0]


def history(engine: Engine, job_id: UUID | None = None) -> Sequence[Row[Any]]:
    """Return the history, in the order of its writing."""
    return sql(
        engine,
        "SELECT * FROM cronless.job_execution WHERE CAST(:id AS uuid) IS NULL OR job_id = :id"
        " ORDER BY recorded_at, scheduled_for, attempt",
        id=job_id,
    )


def outcomes(engine: Engine, job_id: UUID | None = None) -> list[str]:
    """Return the outcomes of the history, in the order of its writing."""
    return [line.outcome for line in history(engine, job_id)]


def claims(engine: Engine) -> Sequence[Row[Any]]:
    """Return all claims, the oldest first."""
    return sql(engine, "SELECT * FROM cronless.job_claim ORDER BY created_at, job_count DESC, id")


def claim(engine: Engine) -> Row[Any]:
    """Return the only claim."""
    [only] = claims(engine)
    return only


@dataclass
class FakeRuns:
    """An executor whose runs do what the test says."""

    runs: dict[str, RunView] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    broken: BaseException | None = None

    def of_claims(self, claim_ids: Sequence[UUID]) -> Sequence[RunView]:
        """Return the runs of these claims, or raise what the test wants."""
        if self.broken is not None:
            raise self.broken
        return [run for run in self.runs.values() if run.claim_id in claim_ids]

    def launch(self, hand_over: HandOver, state: RunState = "waiting") -> str | None:
        """Make a run unless the key was used before, as Dagster does; returns its id."""
        if hand_over.run_key in self.keys:
            return None
        self.keys.add(hand_over.run_key)
        run_id = str(uuid4())
        self.runs[run_id] = RunView(run_id, hand_over.claim_id, hand_over.dispatch, state)
        return run_id

    def set(self, run_id: str, state: RunState) -> None:
        """Let a run reach a state."""
        run = self.runs[run_id]
        self.runs[run_id] = RunView(run_id, run.claim_id, run.dispatch, state)

    def delete(self, run_id: str) -> None:
        """Delete a run as a person does in the UI, which forgets its key as well."""
        run = self.runs.pop(run_id)
        self.keys.discard(f"{run.claim_id}:{run.dispatch}")


@dataclass
class World:
    """An engine, its job types and its runs at an instant of the virtual clock."""

    engine: Engine
    types: JobTypes
    at: datetime = NOON
    runs: FakeRuns = field(default_factory=FakeRuns)

    def tick(self, at: datetime | None = None, **options: Any) -> TickReport:
        """Tick at an instant, which the world then stands at."""
        self.at = at or self.at
        return tick(self.engine, self.types, now=self.at, **{"runs": self.runs, **options})

    def run(self, claim_id: UUID, **options: Any) -> ClaimReport:
        """Run a claim under a fresh execution id."""
        given = {"execution_id": uuid4(), "now": self.at, **options}
        return run_claim(self.engine, self.types, claim_id, **given)

    def launch_and_run(self, report: TickReport) -> list[ClaimReport]:
        """Make the runs that a tick asked for and let each run its claim to the end."""
        ran = []
        for one in report.hand_over:
            run_id = self.runs.launch(one)
            if run_id is not None:
                ran.append(self.run(one.claim_id, execution_id=UUID(run_id), run_id=run_id))
                self.runs.set(run_id, "success")
        return ran

    def go(self, at: datetime | None = None, **options: Any) -> list[ClaimReport]:
        """Tick and run what was handed over."""
        return self.launch_and_run(self.tick(at, **options))
