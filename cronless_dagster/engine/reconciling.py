"""Open claims against the executor's runs: what is submitted, what must be handed over again, what died."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from cronless_dagster.engine.runs import HandOver, RunView

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from cronless_dagster.scheduling.shards import IdRange
    from cronless_dagster.store.claims import Claim

Action = Literal["keep", "submitted", "again", "cancel", "died", "release"]

_LONGEST_WAIT = timedelta(minutes=30)


def decide(  # noqa: PLR0911 - a table of cases, one return each
    claim: Claim, runs: Sequence[RunView], now: datetime
) -> tuple[Action, str | None]:
    """Decide what becomes of an open claim of the run route, given its runs. Returns the action and a run id.

    "Done" is never inferred from a run's state: only the claim's own fence closes it.
    """
    if claim.state == "RUNNING":
        holder = next((run for run in runs if run.run_id == claim.run_id), None)
        if holder is not None and holder.state == "canceled":
            return "cancel", holder.run_id
        if holder is not None and holder.ended:
            return "died", holder.run_id
        # A run may be STARTED for ever when its worker and its code server died together; one deleted in the
        # UI may still be at work. Both are judged by the lease alone.
        return ("died", claim.run_id) if claim.lease_expires_at < now else ("keep", claim.run_id)
    alive = [run for run in runs if not run.ended]
    if alive:
        return (
            "keep" if claim.state == "SUBMITTED" and claim.run_id == alive[0].run_id else "submitted"
        ), alive[0].run_id
    current = [run for run in runs if run.dispatch == claim.dispatches]
    if any(run.state == "canceled" for run in current):
        return "cancel", current[0].run_id
    if current:
        return "again", None
    # No run of this hand-over: never made (the request was lost), or deleted by a person.
    return ("again" if claim.state == "SUBMITTED" else "keep"), None


def decide_local(claim: Claim, now: datetime) -> Action:
    """Decide about a claim that a process of the command line runs by itself: by its lease alone."""
    if claim.lease_expires_at >= now:
        return "keep"
    return "died" if claim.state == "RUNNING" else "release"


def decide_forgotten(claim: Claim, runs: Sequence[RunView]) -> Action:
    """Decide about a claim of a job type that no code has declared for long: it would wait for ever.

    Its rows go back to wait for whoever declares the type again, or for an edit. Only before the start fence:
    a run that comes late finds the claim closed.
    """
    if claim.state != "CLAIMED" or any(not run.ended for run in runs):
        return "keep"
    return "release"


def due_for_hand_over(claim: Claim, now: datetime, patience: timedelta = timedelta(0)) -> bool:
    """Tell whether a claim without a run may be handed over at this tick.

    Not within `patience` of its last hand-over, where a second one would make a second run. One whose runs keep
    ending before they start it waits longer and longer, so that a broken code location doesn't fill the run list.
    """
    if claim.state != "CLAIMED":
        return False
    if claim.handed_over_at is None:
        return True
    if claim.handed_over_at + patience > now:
        return False
    if claim.dispatches == 0:
        return True
    wait = min(timedelta(minutes=2 ** min(claim.dispatches - 1, 10)) - timedelta(seconds=30), _LONGEST_WAIT)
    return claim.handed_over_at + wait <= now


def hand_overs(
    claims: Sequence[Claim], ids: IdRange, now: datetime, most: int, patience: timedelta = timedelta(0)
) -> list[HandOver]:
    """Choose the claims to hand over: never handed over first, then the one that waited longest.

    A claim belongs to the dispatcher whose id range holds its lower bound, so that each has one owner however
    the shards are cut.
    """
    mine = [
        claim for claim in claims if ids.contains(claim.id_low) and due_for_hand_over(claim, now, patience)
    ]
    mine.sort(
        key=lambda claim: (claim.handed_over_at or datetime.min.replace(tzinfo=now.tzinfo), claim.created_at)
    )
    return [
        HandOver(claim.id, claim.job_type, claim.dispatches, claim.job_count, claim.manual)
        for claim in mine[:most]
    ]


def group_size(unfinished: int) -> int:
    """Return into how large groups a dead claim is cut: tenths, then single jobs."""
    return max(1, -(-unfinished // 10))


def by_claim(runs: Sequence[RunView]) -> dict[UUID, list[RunView]]:
    """Group runs by their claim, those of later hand-overs first."""
    grouped: dict[UUID, list[RunView]] = {}
    for run in sorted(runs, key=lambda run: -run.dispatch):
        grouped.setdefault(run.claim_id, []).append(run)
    return grouped
