"""What a tick did, for the sensor's log, the command line and the tests."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime

    from cronless_dagster.engine.runs import HandOver
    from cronless_dagster.rabbitmq.topology import QueueDepth


@dataclass(slots=True)
class TickReport:
    """Counts of one tick; a step that failed is in `errors`, and the others went on.

    Attributes:
        now: The instant that the tick was asked about.
        planned: Rows that got their next instant.
        invalid: Rows found unusable.
        claimed: Rows claimed, by job type.
        misfires: Claimed rows that were past their grace, by job type.
        left: Why a job type still has due rows, by job type.
        reconciled: Claims by what became of them (submitted, again, released, split, canceled, crashed).
        hand_over: Claims that need a run now; with a launcher, those whose run was made.
        launched: Runs that a launcher made, by job type.
        published: Messages that the broker has confirmed, by job type.
        unconfirmed: Job types whose messages the broker left unanswered, those not tried since first.
        queues: How each job type's queue stood before this tick published, and the dead letters.
        seconds: Time of each step.
    """

    now: datetime
    planned: int = 0
    invalid: int = 0
    finished: int = 0
    replanned_zones: int = 0
    claimed: dict[str, int] = field(default_factory=dict)
    claims: int = 0
    misfires: dict[str, int] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    reconciled: dict[str, int] = field(default_factory=dict)
    open_claims: int = 0
    hand_over: list[HandOver] = field(default_factory=list)
    launched: dict[str, int] = field(default_factory=dict)
    published: dict[str, int] = field(default_factory=dict)
    unconfirmed: list[str] = field(default_factory=list)
    queues: dict[str, QueueDepth] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def claimed_rows(self) -> int:
        """Rows claimed, of all types."""
        return sum(self.claimed.values())

    @property
    def misfired(self) -> int:
        """Claimed rows that were past their grace, of all types."""
        return sum(self.misfires.values())

    def count(self, what: str, number: int = 1) -> None:
        """Add to the reconciled claims."""
        self.reconciled[what] = self.reconciled.get(what, 0) + number

    def count_misfired(self, job_type: str, number: int) -> None:
        """Add to the claimed rows that were past their grace."""
        if number:
            self.misfires[job_type] = self.misfires.get(job_type, 0) + number

    def summary(self) -> str:
        """Say in one line what happened; for the tick's log and skip reason."""
        parts = []
        if self.planned:
            parts.append(f"planned {self.planned:,}")
        if self.invalid:
            parts.append(f"{self.invalid:,} invalid")
        if self.finished:
            parts.append(f"took {_counted(self.finished, 'reported outcome')}")
        parts += [f"{what} {_counted(number, 'claim')}" for what, number in sorted(self.reconciled.items())]
        if self.claimed:
            by_type = ", ".join(f"{name} {count:,}" for name, count in self.claimed.items())
            parts.append(f"claimed {_counted(self.claimed_rows, 'job')} ({by_type})")
        if self.misfired:
            parts.append(f"{self.misfired:,} past their grace")
        if self.launched:
            parts.append(f"launched {_counted(sum(self.launched.values()), 'run')}")
        elif self.hand_over:
            parts.append(f"handing over {_counted(len(self.hand_over), 'claim')}")
        if self.published:
            parts.append(f"published {_counted(sum(self.published.values()), 'message')}")
        parts += [
            f"{name} queue: {depth.messages:,} waiting, {_counted(depth.consumers, 'consumer')}"
            for name, depth in sorted(self.queues.items())
            if depth.messages or name in self.published
        ]
        parts += [f"{name}: {reason}" for name, reason in self.left.items()]
        parts += [f"error: {error}" for error in self.errors]
        return "; ".join(parts) if parts else "nothing is due"

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        values = asdict(self)
        values["now"] = self.now.isoformat().replace("+00:00", "Z")
        values["misfired"] = self.misfired
        values["hand_over"] = [
            {
                "claim_id": str(one.claim_id),
                "job_type": one.job_type,
                "jobs": one.job_count,
                "run_key": one.run_key,
            }
            for one in self.hand_over
        ]
        return values


def first_line(error: BaseException) -> str:
    """Return what an error says, without the statement or the hint that follows."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
