"""What a tick must know of the executor that runs claims; Dagster's side of it lives above this layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from cronless_dagster.scheduling.errors import CronlessError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from cronless_dagster.engine.job_types import JobType

RunState = Literal["waiting", "started", "success", "failure", "canceled"]


@dataclass(frozen=True, slots=True)
class RunView:
    """A run of a claim, as the executor sees it.

    Attributes:
        dispatch: The hand-over it belongs to.
        state: "waiting" (queued, starting) and "started" may still do something; the others have ended.
        started_at: When it began to work, aware UTC.
    """

    run_id: str
    claim_id: UUID
    dispatch: int
    state: RunState
    started_at: datetime | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more can come from it."""
        return self.state in ("success", "failure", "canceled")


class Runs(Protocol):
    """The executor, asked once a tick."""

    def of_claims(self, claim_ids: Sequence[UUID]) -> Sequence[RunView]:
        """Return all runs of these claims; of no claims: raise what any question would, or return nothing."""

    def why(self, run_id: str) -> str:
        """Return why a run failed, in one line."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """A claim that needs a run: `run_key` is the same until the claim is handed over anew."""

    claim_id: UUID
    job_type: str
    dispatch: int
    job_count: int
    manual: bool

    @property
    def run_key(self) -> str:
        """What lets the executor start one run for it, however often it is handed over."""
        return f"{self.claim_id}:{self.dispatch}"


class LaunchFailed(CronlessError):
    """A run could not be asked for.

    Attributes:
        made: Whether a run may exist all the same: the question was sent, and its answer never came.
    """

    def __init__(self, message: str, *, made: bool) -> None:
        super().__init__(message)
        self.made = made


class Launcher(Runs, Protocol):
    """An executor that makes runs when asked, and takes two questions for two runs."""

    def launch(self, one: HandOver, job_type: JobType) -> str:
        """Ask for a run of a claim; returns its id.

        Raises:
            LaunchFailed: There is none, or none that is known of.
        """
