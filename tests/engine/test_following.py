"""What becomes of the claim of a user's own Dagster job, given the runs that Dagster shows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from cronless_dagster.engine.following import LAUNCHES, decide
from cronless_dagster.engine.runs import RunState, RunView
from cronless_dagster.store.claims import Claim

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
CLAIM_ID = UUID(int=7)
FIRST, SECOND = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
CLAIM = Claim(
    id=CLAIM_ID,
    job_type="report",
    route="dagster_job",
    id_low=UUID(int=0),
    manual=False,
    job_count=1,
    done_count=0,
    failed_count=0,
    state="SUBMITTED",
    dispatches=0,
    run_id=FIRST,
    execution_id=None,
    lease_seconds=600,
    lease_expires_at=NOW + timedelta(minutes=10),
    oldest_due_at=NOW,
    handed_over_at=NOW,
    created_at=NOW,
    started_at=None,
    parent_id=None,
)
RUNNING = replace(CLAIM, state="RUNNING", execution_id=UUID(FIRST), started_at=NOW)


def run(state: RunState, run_id: str = FIRST, *, dispatch: int = 0, began: bool = True) -> RunView:
    """Return a run of the claim."""
    return RunView(run_id, CLAIM_ID, dispatch, state, NOW if began else None)


def test_a_run_that_never_began_speaks_for_none_that_did() -> None:
    """Executed again by a person and not even launched: what the first run came to is what counts."""
    runs = [run("failure", SECOND, began=False), run("failure")]
    assert decide(RUNNING, runs, NOW) == ("ended", runs[1])


def test_a_claim_whose_run_is_gone_is_not_left_to_one_that_never_began() -> None:
    """The run that had begun was deleted, its repetition never launched: once the lease is over it runs again."""
    late = NOW + timedelta(minutes=11)
    assert decide(RUNNING, [run("failure", SECOND, began=False)], late)[0] == "died"
    assert decide(RUNNING, [run("failure", SECOND, began=False)], NOW)[0] == "keep"


@pytest.mark.parametrize("order", [1, -1])
def test_a_success_of_any_run_is_the_claims(order: int) -> None:
    """A person executed a failed run of an earlier hand-over again, and it did the work: no third run follows."""
    claim = replace(CLAIM, dispatches=1)
    runs = [run("failure", began=False), run("success", SECOND)][::order]
    assert decide(claim, runs, NOW) == ("ended", next(one for one in runs if one.state == "success"))


def test_a_run_that_fails_before_it_begins_is_launched_again_and_in_the_end_a_failure() -> None:
    """Without a code server it is no try; what fails at every launch, as a broken resource does, is one at last."""
    for dispatch in range(LAUNCHES - 1):
        claim = replace(CLAIM, dispatches=dispatch)
        assert decide(claim, [run("failure", dispatch=dispatch, began=False)], NOW) == ("again", None)
    last = run("failure", dispatch=LAUNCHES - 1, began=False)
    assert decide(replace(CLAIM, dispatches=LAUNCHES - 1), [last], NOW) == ("ended", last)


def test_runs_of_an_earlier_hand_over_do_not_stand_for_the_next() -> None:
    """Handed over again, and not yet launched: that the earlier run failed has been said."""
    claim = replace(CLAIM, state="CLAIMED", run_id=None, dispatches=1)
    assert decide(claim, [run("failure", began=False)], NOW) == ("keep", None)


def test_a_person_who_cancels_is_heard() -> None:
    """Before it began or after, whatever else failed to launch."""
    canceled = run("canceled", SECOND, began=False)
    assert decide(CLAIM, [run("failure", began=False), canceled], NOW) == ("cancel", canceled)
