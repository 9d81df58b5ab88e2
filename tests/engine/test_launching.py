"""Ticks that launch the runs themselves: one run a claim, whoever asks, whatever is lost on the way."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest

from cronless_dagster.engine import tick as tick_module
from cronless_dagster.engine.dagster_jobs import DAGSTER_JOB
from cronless_dagster.engine.job_types import JobTypes
from cronless_dagster.engine.launching import HAND_OVER_PATIENCE
from cronless_dagster.engine.runs import LaunchFailed, RunView
from cronless_dagster.store import claims as store
from cronless_dagster.store.database import transaction
from tests.engine.queues import FakeBroker
from tests.engine.support import (
    World,
    add,
    add_many,
    after,
    claim,
    claims,
    nothing,
    outcomes,
    sql,
    types_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from cronless_dagster.engine.job_types import JobType
    from cronless_dagster.engine.running import ClaimReport
    from cronless_dagster.engine.runs import HandOver


class Killed(BaseException):
    """Stands for the end of a process: nothing after it is done."""


def nobody() -> None:
    """Let nothing happen."""


@dataclass
class FakeDagster:
    """An executor that makes a run of each question, as Dagster's web server does.

    Attributes:
        runs: All runs, the oldest first.
        away: Raised instead of any answer.
        fails: Raised by each launch; where it says so, after the run was made.
        asking, asked: Called before and after each question for runs.
        launching, launched: Called before and after each run is made.
        tried: The hand-overs that were asked for.
    """

    runs: list[RunView] = field(default_factory=list)
    away: Exception | None = None
    fails: Callable[[HandOver], LaunchFailed | None] = lambda _: None
    asking: Callable[[], None] = nobody
    asked: Callable[[], None] = nobody
    launching: Callable[[], None] = nobody
    launched: Callable[[], None] = nobody
    tried: list[HandOver] = field(default_factory=list)

    def of_claims(self, claim_ids: Sequence[UUID]) -> Sequence[RunView]:
        """Return the runs of these claims."""
        self.asking()
        if self.away is not None:
            raise self.away
        found = [run for run in self.runs if run.claim_id in claim_ids]
        self.asked()
        return found

    def why(self, run_id: str) -> str:
        """Say no more than that."""
        return f"{run_id} failed"

    def launch(self, one: HandOver, _: JobType) -> str:
        """Make a run, unless the test says otherwise."""
        self.launching()
        self.tried.append(one)
        error = self.away or self.fails(one)
        if isinstance(error, LaunchFailed) and not error.made:
            raise error
        run_id = str(uuid4())
        self.runs.append(RunView(run_id, one.claim_id, one.dispatch, "waiting"))
        self.launched()
        if error is not None:
            raise error
        return run_id

    def set(self, state: Any, *run_ids: str) -> None:
        """Let runs reach a state."""
        self.runs = [
            RunView(one.run_id, one.claim_id, one.dispatch, state if one.run_id in run_ids else one.state)
            for one in self.runs
        ]


def in_turn(*calls: Callable[[], Any]) -> Callable[[], None]:
    """Return a hook that makes one of these calls each time, and none of its own while one is under way."""
    left = list(calls)

    def hook() -> None:
        if left:
            left.pop(0)()

    return hook


@pytest.fixture
def dagster() -> FakeDagster:
    """An executor without runs."""
    return FakeDagster()


@pytest.fixture
def launch(world: World, dagster: FakeDagster) -> Callable[..., Any]:
    """Tick at an instant with the launcher alone."""

    def launch(at: datetime | None = None, **options: Any) -> Any:
        return world.tick(at, **{"runs": None, "launcher": dagster, **options})

    return launch


def work_off(world: World, dagster: FakeDagster) -> list[ClaimReport]:
    """Run all waiting runs to their end."""
    waiting = [run.run_id for run in dagster.runs if run.state == "waiting"]
    reports = [
        world.run(run.claim_id, execution_id=UUID(run.run_id), run_id=run.run_id)
        for run in dagster.runs
        if run.run_id in waiting
    ]
    dagster.set("success", *waiting)
    return reports


def due(world: World, launch: Callable[..., Any], count: int = 1, **values: Any) -> None:
    """Add jobs that are due at `after(minutes=1)`."""
    add_many(world.engine, count, "0 0 * * *", next_run_at=after(minutes=1), **values)
    assert launch(after(seconds=30)).launched == {}


class TestOneRun:
    """Each claim gets one run, and ends done."""

    def test_a_due_job_is_launched_by_the_tick_itself(
        self, world: World, dagster: FakeDagster, launch: Callable[..., Any]
    ) -> None:
        """Claimed, launched, noted with its run, done; the same tick again asks for nothing."""
        due(world, launch, 3)
        report = launch(after(minutes=1))
        assert (report.claimed, report.launched) == ({"work": 3}, {"work": 1})
        assert "launched 1 run" in report.summary()
        [run] = dagster.runs
        held = claim(world.engine)
        assert (held.state, held.run_id, held.dispatches) == ("SUBMITTED", run.run_id, 0)
        for minute in (1, 2, 60):
            assert launch(after(minutes=minute)).launched == {}
        [ran] = work_off(world, dagster)
        assert (ran.status, ran.succeeded) == ("done", 3)
        assert claim(world.engine).state == "CLOSED"
        assert len(dagster.tried) == 1

    @pytest.mark.parametrize("point", ["asking", "asked", "launching", "launched"])
    def test_a_second_launcher_at_each_step(
        self, world: World, dagster: FakeDagster, launch: Callable[..., Any], point: str
    ) -> None:
        """Another node's whole tick, between any two steps of ours, makes no second run of a claim."""
        due(world, launch, job_type="one")
        due(world, launch, job_type="two")
        world.types = types_of(nothing, "one", "two")
        setattr(dagster, point, in_turn(lambda: launch(after(minutes=1)), lambda: launch(after(minutes=1))))
        launch(after(minutes=1))
        launch(after(minutes=2))
        assert len({run.claim_id for run in dagster.runs}) == len(dagster.runs) == 2
        assert [ran.status for ran in work_off(world, dagster)] == ["done", "done"]
        assert outcomes(world.engine) == ["success", "success"]

    def test_launchers_at_once(self, world: World, dagster: FakeDagster, launch: Callable[..., Any]) -> None:
        """Four nodes that begin together make one run of each of eight claims."""
        names = [f"type_{number}" for number in range(8)]
        world.types = types_of(nothing, *names)
        for name in names:
            due(world, launch, job_type=name)
        together = threading.Barrier(4)

        def node(_: int) -> int:
            together.wait(30)
            return sum(launch(after(minutes=1)).launched.values())

        with ThreadPoolExecutor(4) as nodes:
            assert sum(nodes.map(node, range(4))) == 8
        assert len({run.claim_id for run in dagster.runs}) == len(dagster.runs) == 8

    def test_a_run_that_died_before_its_fence_gets_a_successor(
        self, world: World, dagster: FakeDagster, launch: Callable[..., Any]
    ) -> None:
        """Its next run is another hand-over, so that it isn't taken for the first."""
        due(world, launch)
        launch(after(minutes=1))
        dagster.set("failure", dagster.runs[0].run_id)
        assert launch(after(minutes=2)).reconciled == {"again": 1}
        assert launch(after(minutes=3)).launched == {"work": 1}
        assert [run.dispatch for run in dagster.runs] == [0, 1]
        assert [ran.status for ran in work_off(world, dagster)] == ["done"]


class TestPatience:
    """What was taken and never seen again is launched anew, after the patience and not before."""

    def test_a_node_killed_between_taking_and_launching(
        self, world: World, dagster: FakeDagster, launch: Callable[..., Any]
    ) -> None:
        """The next node waits until the dead one's run must have been seen, then launches one."""
        due(world, launch)

        def die() -> None:
            raise Killed

        dagster.launching = in_turn(die)
        with pytest.raises(Killed):
            launch(after(minutes=1))
        assert (claim(world.engine).state, dagster.runs) == ("CLAIMED", [])
        taken = after(minutes=1)
        for waited in (timedelta(0), HAND_OVER_PATIENCE - timedelta(seconds=1)):
            assert launch(taken + waited).launched == {}
        assert launch(taken + HAND_OVER_PATIENCE).launched == {"work": 1}
        assert [run.dispatch for run in dagster.runs] == [0]

    def test_a_node_killed_after_launching(
        self, world: World, dagster: FakeDagster, launch: Callable[..., Any]
    ) -> None:
        """Its run is seen by the next tick, which notes it and makes no other."""
        due(world, launch)

        def die() -> None:
            raise Killed

        dagster.launched = in_turn(die)
        with pytest.raises(Killed):
            launch(after(minutes=1))
        report = launch(after(minutes=2))
        assert (report.launched, report.reconciled) == ({}, {"submitted": 1})
        assert claim(world.engine).run_id == dagster.runs[0].run_id
        assert launch(after(minutes=9)).launched == {}

    def test_the_answer_to_a_launch_is_lost(
        self, world: World, dagster: FakeDagster, launch: Callable[..., Any]
    ) -> None:
        """A run that exists all the same is found; the claim keeps its hand-over, and the others get their runs."""
        world.types = types_of(nothing, "lost", "fine")
        due(world, launch, job_type="lost")
        due(world, launch, job_type="fine")
        dagster.fails = lambda one: (
            LaunchFailed("no answer in time", made=True) if one.job_type == "lost" else None
        )
        report = launch(after(minutes=1))
        assert report.launched == {"fine": 1}
        [error] = report.errors
        assert "cronless_lost" in error
        assert "no answer in time" in error
        assert [one.job_type for one in report.hand_over] == ["fine"]
        assert launch(after(minutes=2)).reconciled == {"submitted": 1}
        assert launch(after(minutes=10)).launched == {}
        assert len(dagster.runs) == 2
        assert {one.dispatches for one in claims(world.engine)} == {0}

    def test_a_launch_that_breaks(
        self, world: World, dagster: FakeDagster, launch: Callable[..., Any]
    ) -> None:
        """Whatever it raises, the others get their runs, and none is said to be handed over that isn't."""
        world.types = types_of(nothing, "broken", "fine")
        due(world, launch, job_type="broken")
        due(world, launch, job_type="fine")
        dagster.launching = in_turn(lambda: UUID("no id"))
        report = launch(after(minutes=1))
        [launched] = report.hand_over
        assert report.launched == {launched.job_type: 1}
        assert sum("badly formed" in error for error in report.errors) == 1
        assert sum(launch(after(minutes=minute)).launched != {} for minute in range(2, 5)) == 1
        assert len({run.claim_id for run in dagster.runs}) == len(dagster.runs) == 2

    def test_a_launch_that_outlasts_the_patience(
        self, world: World, dagster: FakeDagster, launch: Callable[..., Any]
    ) -> None:
        """Two runs of one claim: the work is done once, and the second run says so and succeeds."""
        due(world, launch)
        late = after(minutes=1) + HAND_OVER_PATIENCE
        dagster.launching = in_turn(lambda: launch(late))
        launch(after(minutes=1))
        assert len(dagster.runs) == 2
        first, second = work_off(world, dagster)
        assert (first.status, second.status) == ("done", "closed")
        assert second.message
        assert outcomes(world.engine) == ["success"]


class TestRefusals:
    """What Dagster certainly didn't make is asked for later and later."""

    def test_later_and_later(self, world: World, dagster: FakeDagster, launch: Callable[..., Any]) -> None:
        """A Dagster job that is gone is asked for ever less often, at least each half hour, and then done."""
        due(world, launch)
        dagster.fails = lambda _: LaunchFailed("no such job", made=False)
        tried: list[int] = []
        for minute in range(1, 181):
            before = len(dagster.tried)
            report = launch(after(minutes=minute))
            if len(dagster.tried) > before:
                tried.append(minute)
                assert report.errors
        gaps = [later - earlier for earlier, later in pairwise(tried)]
        assert gaps == sorted(gaps)
        assert (gaps[0], gaps[-1]) == (2, 30)
        assert [one.dispatch for one in dagster.tried] == list(range(len(tried)))
        dagster.fails = lambda _: None
        for minute in range(181, 212):
            launch(after(minutes=minute))
        assert [ran.status for ran in work_off(world, dagster)] == ["done"]
        [row] = sql(world.engine, "SELECT attempt, crashes, consecutive_failures FROM cronless.scheduled_job")
        assert tuple(row) == (0, 0, 0)

    def test_only_who_was_refused_counts_it(
        self, world: World, dagster: FakeDagster, launch: Callable[..., Any]
    ) -> None:
        """A refusal that comes back late counts nothing where the claim was handed over anew meanwhile."""
        due(world, launch)
        dagster.fails = lambda _: LaunchFailed("no such job", made=False)

        def somebody() -> None:
            with transaction(world.engine) as connection:
                store.hand_over_again(connection, claim(world.engine).id, 0)

        dagster.launching = in_turn(somebody)
        launch(after(minutes=1))
        assert claim(world.engine).dispatches == 1


class TestAway:
    """An executor that can't be asked: nothing is claimed, nothing is taken from anybody, nothing is lost."""

    def test_nothing_is_claimed(self, world: World, dagster: FakeDagster, launch: Callable[..., Any]) -> None:
        """With no claim open there is nothing to ask about, and it is asked before anything is claimed."""
        due(world, launch)
        dagster.away = RuntimeError("it can't be reached")
        report = launch(after(minutes=1))
        assert (report.claimed, claims(world.engine)) == ({}, [])
        assert report.errors == ["ask the executor: it can't be reached"]
        dagster.away = None
        assert launch(after(minutes=2)).launched == {"work": 1}

    def test_it_is_not_asked_where_nothing_is_due(
        self, dagster: FakeDagster, launch: Callable[..., Any]
    ) -> None:
        """A tick with nothing to do costs no question."""
        dagster.away = RuntimeError("it can't be reached")
        assert launch().errors == []

    def test_the_queue_route_goes_on(
        self, world: World, dagster: FakeDagster, launch: Callable[..., Any]
    ) -> None:
        """Job types that need no Dagster don't wait for it."""
        world.types = JobTypes((*types_of(), *types_of(nothing, "queued", route="queue")))
        due(world, launch, job_type="work")
        due(world, launch, job_type="queued")
        dagster.away = RuntimeError("it can't be reached")
        broker = FakeBroker()
        report = launch(after(minutes=1), queue=broker)
        assert report.claimed == {"queued": 1}
        assert len(broker.sent) == 1

    def test_nothing_is_rescued_or_handed_over(
        self, world: World, dagster: FakeDagster, launch: Callable[..., Any]
    ) -> None:
        """A claim whose lease ran out stays with its run, which may well be alive; so do those without a run."""
        world.types = types_of(nothing, "held", "open")
        due(world, launch, job_type="held")
        launch(after(minutes=1))
        [run] = dagster.runs
        with transaction(world.engine) as connection:
            assert store.start_claim(connection, run.claim_id, uuid4(), run.run_id, world.at) is not None
        add(world.engine, "0 0 * * *", job_type="open", next_run_at=after(minutes=2))
        dagster.fails = lambda _: LaunchFailed("no answer", made=True)
        dagster.launched = in_turn(dagster.runs.pop)
        launch(after(minutes=2))
        dagster.away = RuntimeError("it can't be reached")
        for hours in (1, 5):
            report = launch(after(hours=hours))
            assert (report.reconciled, report.launched) == ({}, {})
            assert "reconcile: it can't be reached" in report.errors
        assert {one.job_type: one.state for one in claims(world.engine)} == {
            "held": "RUNNING",
            "open": "CLAIMED",
        }

    def test_it_goes_away_in_the_middle(
        self, world: World, dagster: FakeDagster, launch: Callable[..., Any]
    ) -> None:
        """What was claimed by then is launched once it is back."""
        due(world, launch)
        dagster.fails = lambda _: LaunchFailed("it can't be reached", made=False)
        assert launch(after(minutes=1)).claimed == {"work": 1}
        dagster.fails = lambda _: None
        launched = [launch(after(minutes=minute)).launched for minute in range(2, 6)]
        assert launched.count({"work": 1}) == 1
        assert [ran.status for ran in work_off(world, dagster)] == ["done"]


class TestBounds:
    """Each tick launches so many at most, as long as it has time, and leaves what isn't its own."""

    def test_no_more_than_one_tick_hands_over(
        self, world: World, dagster: FakeDagster, launch: Callable[..., Any]
    ) -> None:
        """Five claims, two a tick: the third tick launches the last, those that wait longest first."""
        names = [f"type_{number}" for number in range(5)]
        world.types = types_of(nothing, *names)
        for name in names:
            due(world, launch, job_type=name)
        launched = [launch(after(minutes=1), max_hand_over=2).launched for _ in range(4)]
        assert [len(one) for one in launched] == [2, 2, 1, 0]
        assert len({run.claim_id for run in dagster.runs}) == 5

    def test_no_launch_begins_after_the_budget(
        self,
        world: World,
        dagster: FakeDagster,
        launch: Callable[..., Any],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A slow executor: what there was no time for isn't taken, and the next tick launches it at once."""
        world.types = types_of(nothing, "one", "two")
        due(world, launch, job_type="one")
        due(world, launch, job_type="two")
        monkeypatch.setattr(tick_module._Tick, "may_claim", lambda _: not dagster.tried)
        assert len(launch(after(minutes=1)).launched) == 1
        assert len(claims(world.engine)) == 2
        monkeypatch.undo()
        assert len(launch(after(minutes=1)).launched) == 1

    def test_the_rescue_part_launches_what_is_open_and_claims_nothing(
        self, world: World, dagster: FakeDagster, launch: Callable[..., Any]
    ) -> None:
        """A claim whose hand-over was lost gets its run; what is due waits for a whole tick."""
        due(world, launch)
        dagster.fails = lambda _: LaunchFailed("no answer", made=True)
        dagster.launched = in_turn(dagster.runs.clear)
        launch(after(minutes=1))
        dagster.fails = lambda _: None
        add(world.engine, "0 0 * * *", next_run_at=after(minutes=2))
        report = launch(after(minutes=3), part="rescue")
        assert (report.claimed, report.launched) == ({}, {"work": 1})
        assert launch(after(minutes=4)).claimed == {"work": 1}

    def test_users_own_dagster_jobs_stay_with_the_sensor(
        self, world: World, dagster: FakeDagster, launch: Callable[..., Any]
    ) -> None:
        """Their partitions and configs are made by users' code: they are neither claimed nor launched here."""
        types = JobTypes()
        types.dagster_job("report", _NamedJob())
        world.types = types
        due(world, launch, job_type="report")
        assert launch(after(minutes=1)).claimed == {}
        assert len(world.tick(after(minutes=1)).hand_over) == 1
        assert claim(world.engine).route == DAGSTER_JOB
        for minute in (2, 10):
            report = launch(after(minutes=minute))
            assert (report.launched, dagster.tried) == ({}, [])


@dataclass(frozen=True)
class _NamedJob:
    """What a job type keeps of Dagster's job: its name."""

    name: str = "report_job"


class TestBesideASensor:
    """A sensor and the launchers serve the same rows: what both hand over is done once."""

    def test_the_sensor_hands_over_what_was_just_launched(
        self, world: World, dagster: FakeDagster, launch: Callable[..., Any]
    ) -> None:
        """Its run is surplus: it says so and succeeds."""
        due(world, launch)
        [one] = world.tick(after(minutes=1), runs=dagster).hand_over
        sensors = RunView(str(uuid4()), one.claim_id, one.dispatch, "waiting")
        # The sensor's request takes its time; the launcher's patience is over before Dagster shows the run.
        assert launch(after(minutes=1) + HAND_OVER_PATIENCE).launched == {"work": 1}
        dagster.runs.append(sensors)
        first, second = work_off(world, dagster)
        assert (first.status, second.status) == ("done", "closed")
        assert outcomes(world.engine) == ["success"]

    def test_what_the_sensor_has_just_handed_over_is_left_to_it(
        self, world: World, dagster: FakeDagster, launch: Callable[..., Any]
    ) -> None:
        """Within the patience its run may be on the way."""
        due(world, launch)
        assert len(world.tick(after(minutes=1), runs=dagster).hand_over) == 1
        for seconds in (60, 149):
            assert launch(after(seconds=seconds)).launched == {}

    def test_what_was_launched_is_not_handed_over_by_the_sensor(
        self, world: World, dagster: FakeDagster, launch: Callable[..., Any]
    ) -> None:
        """It sees the run, or that the claim has one."""
        due(world, launch)
        launch(after(minutes=1))
        for minute in (1, 2, 5):
            assert world.tick(after(minutes=minute), runs=dagster).hand_over == []
