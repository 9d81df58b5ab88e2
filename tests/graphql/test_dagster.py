"""A real web server, daemon and code server: ticks that launch runs through GraphQL, and what may go wrong.

Runs as processes take some seconds each: those that a test is not about are worked off in its own process.
"""

from __future__ import annotations

import signal
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import httpx
import pytest

from cronless_dagster.engine.running import run_claim
from cronless_dagster.engine.runs import HandOver
from cronless_dagster.engine.tick import tick
from cronless_dagster.graphql.client import DagsterGraphQL
from cronless_dagster.store.clock import make_virtual
from tests.dagster import switches
from tests.dagster.job_types import CREATE_CALLS, job_types
from tests.dagster.site import ROOT, eventually
from tests.dagster.stack import Stack, free_port
from tests.dagster.support import add_due, assert_all_done_once, claims, job_rows
from tests.graphql.web import Answer, Asked, Web

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cronless_dagster.engine.report import TickReport
    from tests.dagster.conftest import Ground

pytestmark = [pytest.mark.dagster, pytest.mark.crash, pytest.mark.slow]

SENSOR = {
    "repositoryLocationName": "stack",
    "repositoryName": "__repository__",
    "sensorName": "cronless_tick",
}
START = "mutation ($s: SensorSelector!) { startSensor(sensorSelector: $s) { __typename } }"
DELETE = "mutation ($r: String!) { deletePipelineRun(runId: $r) { __typename } }"


@dataclass
class Nodes:
    """Nodes that tick with Dagster's web server as their executor, at an instant of the virtual clock."""

    stack: Stack
    at: datetime
    ids: list[UUID] = field(default_factory=list)

    def add(self, job_type: str, count: int = 1) -> None:
        """Add due jobs, a second after all before."""
        self.forward(seconds=1)
        self.ids += add_due(self.stack.engine, job_type, count, now=self.at)

    def forward(self, **span: float) -> None:
        """Let time pass."""
        self.at += timedelta(**span)
        make_virtual(self.stack.engine, self.at)

    def tick(self, address: str | None = None, **options: Any) -> TickReport:
        """Tick as one node does."""
        with DagsterGraphQL(address or self.stack.address, **options) as dagster:
            return tick(self.stack.engine, job_types, launcher=dagster)

    def newest(self) -> Any:
        """Return the newest claim."""
        return claims(self.stack.engine)[-1]

    def runs_of(self, claim_id: UUID) -> list[dict[str, Any]]:
        """Return the runs of a claim."""
        wanted = {"key": "cronless/claim", "value": str(claim_id)}
        return [run for run in self.stack.runs() if wanted in run["tags"]]

    def ended(self) -> Counter[str]:
        """Wait until all runs have ended; counts how."""

        def found() -> Counter[str]:
            counts = Counter(str(run["status"]) for run in self.stack.runs())
            return counts if set(counts) <= {"SUCCESS", "FAILURE", "CANCELED"} else Counter()

        return Counter(eventually(found, "the end of the runs", seconds=300))

    def work_off(self) -> None:
        """Do the work of all queued runs here, and check that it was all that was left to do."""
        for run in [run for run in self.stack.runs() if run["status"] == "QUEUED"]:
            [claim_id] = [tag["value"] for tag in run["tags"] if tag["key"] == "cronless/claim"]
            run_id = run["runId"]
            run_claim(self.stack.engine, job_types, UUID(claim_id), execution_id=UUID(run_id), run_id=run_id)
            self.stack.graphql(DELETE, r=run_id)
        assert_all_done_once(self.stack.engine, self.ids)


@pytest.fixture(scope="module")
def nodes(ground: Ground) -> Iterator[Nodes]:
    """Start all of Dagster once."""
    with ground() as (url, directory, spawn):
        turned_on = directory / "switches"
        turned_on.mkdir()
        stack = Stack(
            url,
            directory,
            spawn,
            module="tests.graphql.location",
            environment={switches.VARIABLE: str(turned_on)},
        )
        with stack.engine.begin() as connection:
            connection.execute(CREATE_CALLS)
        stack.start_all()
        made = Nodes(stack, datetime.now(UTC))
        made.forward(seconds=0)
        yield made
        stack.engine.dispose()


@dataclass(frozen=True)
class Ran:
    """A claim that a tick launched, with a run too many, and a run of a claim that doesn't exist."""

    claim_id: UUID
    unknown_run: str


@pytest.fixture(scope="module")
def ran(nodes: Nodes) -> Ran:
    """Let a tick launch twenty due jobs, ask for two runs more, and wait for the ends of all three."""
    nodes.add("digest", 20)
    report = nodes.tick()
    assert (report.launched, report.errors) == ({"digest": 1}, [])
    assert nodes.tick().launched == {}
    claim_id, digest = nodes.newest().id, job_types["digest"]
    with DagsterGraphQL(nodes.stack.address) as dagster:
        dagster.launch(HandOver(claim_id, "digest", 0, 20, manual=False), digest)
        unknown = dagster.launch(HandOver(uuid4(), "digest", 0, 1, manual=False), digest)
    nodes.ended()
    return Ran(claim_id, unknown)


def test_a_tick_runs_what_is_due_without_any_sensor(nodes: Nodes, ran: Ran) -> None:
    """Dagster's daemon starts what the tick launched; each job is done once and waits for its next occurrence."""
    assert {run["jobName"] for run in nodes.runs_of(ran.claim_id)} == {"cronless_digest"}
    assert_all_done_once(nodes.stack.engine, nodes.ids)


def test_a_surplus_run_says_so_and_succeeds(nodes: Nodes, ran: Ran) -> None:
    """Two questions are two runs to Dagster; the claim's fence lets one of them work."""
    with DagsterGraphQL(nodes.stack.address) as dagster:
        views = dagster.of_claims([ran.claim_id])
    assert [(view.dispatch, view.state) for view in views] == [(0, "success")] * 2
    assert all(view.started_at is not None for view in views)


def test_a_failed_run_tells_why(nodes: Nodes, ran: Ran) -> None:
    """The first error in its log: here, that its claim doesn't exist."""
    with DagsterGraphQL(nodes.stack.address) as dagster:
        said = dagster.why(ran.unknown_run)
        assert "there is no claim" in said
        assert f"(its Dagster run {ran.unknown_run})" in said
        assert "can't be read" in dagster.why(str(uuid4()))


def test_the_runs_of_many_claims(nodes: Nodes, ran: Ran) -> None:
    """Those that exist are found among the many that don't."""
    wanted = [*(uuid4() for _ in range(59)), ran.claim_id]
    with DagsterGraphQL(nodes.stack.address) as dagster:
        found = [view.claim_id for view in dagster.of_claims(wanted)]
    assert found == [ran.claim_id] * 2


def test_a_sensor_beside_the_nodes(nodes: Nodes, ran: Ran) -> None:
    """Both tick over the same rows: each job is done once, and no run fails, not even one too many."""
    failed = nodes.ended()["FAILURE"]
    assert nodes.stack.graphql(START, s=SENSOR)["startSensor"]["__typename"] == "Sensor"
    nodes.add("renewal", 5)
    nodes.tick()

    def done() -> bool:
        nodes.forward(seconds=1)
        nodes.tick()
        return all(row.last_outcome == "success" for row in job_rows(nodes.stack.engine))

    eventually(done, "the end of all jobs", seconds=300)
    assert nodes.ended()["FAILURE"] == failed
    assert_all_done_once(nodes.stack.engine, nodes.ids)


@pytest.fixture(scope="module")
def nobody_runs(nodes: Nodes, ran: Ran) -> None:
    """End the daemon, which starts queued runs and evaluates the sensor."""
    nodes.stack.kill("daemon")


@pytest.mark.usefixtures("nobody_runs")
class TestFaults:
    """Runs stay queued here, so that what was launched can be counted."""

    def test_ticks_at_once_launch_one_run_a_claim(self, nodes: Nodes) -> None:
        """Four nodes with connections of their own."""
        nodes.add("digest")
        nodes.add("renewal")
        with ThreadPoolExecutor(4) as pool:
            reports = list(pool.map(lambda _: nodes.tick(), range(4)))
        assert sum(sum(report.launched.values()) for report in reports) == 2
        assert [len(nodes.runs_of(claim.id)) for claim in claims(nodes.stack.engine)[-2:]] == [1, 1]
        nodes.work_off()

    def test_the_answer_to_a_launch_is_lost(self, nodes: Nodes) -> None:
        """Dagster made the run, the node never heard of it: the next tick finds it and makes no second one."""
        nodes.add("renewal")

        def forward(asked: Asked) -> Answer:
            answer = httpx.post(f"{nodes.stack.address}{asked.path}", json=asked.body, timeout=60)
            return Answer(answer.json(), cut=20 if "launchRun" in asked.body["query"] else None)

        with Web() as cutting:
            cutting.answers = forward
            report = nodes.tick(cutting.address)
        assert report.launched == {}
        [error] = report.errors
        assert "isn't known" in error
        assert nodes.tick().reconciled == {"submitted": 1}
        for _ in range(3):
            nodes.forward(minutes=2)
            assert nodes.tick().launched == {}
        assert len(nodes.runs_of(nodes.newest().id)) == 1
        nodes.work_off()

    def test_a_node_killed_before_it_asks_for_the_run(self, nodes: Nodes) -> None:
        """Its hand-over was taken and nothing made of it: the next node waits out the patience, then launches."""
        nodes.add("digest")
        node = nodes.stack.spawn(
            *(sys.executable, "-m", "tests.graphql.dying_node", nodes.stack.address),
            env=nodes.stack.environment,
            cwd=str(ROOT),
            output=nodes.stack.home / "node.log",
        )
        assert node.wait(timeout=60) == -signal.SIGKILL, (nodes.stack.home / "node.log").read_text()
        claim = nodes.newest()
        assert (claim.state, nodes.runs_of(claim.id)) == ("CLAIMED", [])
        nodes.forward(seconds=89)
        assert nodes.tick().launched == {}
        nodes.forward(seconds=1)
        assert nodes.tick().launched == {"digest": 1}
        nodes.work_off()

    def test_a_code_location_that_is_not_there(self, nodes: Nodes) -> None:
        """Renamed, or its server dead: asked for later and later, and once when it is back."""
        nodes.add("digest")
        [error] = nodes.tick(location="renamed").errors
        assert "of the code location renamed: it has no such job" in error
        claim = nodes.newest()
        assert (claim.state, claim.dispatches) == ("CLAIMED", 1)
        nodes.stack.kill("code")
        nodes.forward(minutes=2)
        [error] = nodes.tick(location="stack").errors
        assert "Dagster made no run" in error
        assert nodes.newest().dispatches == 2
        nodes.forward(minutes=1)
        assert nodes.tick(location="stack").errors == []
        nodes.forward(minutes=1)
        [error] = nodes.tick().errors
        assert "Dagster made no run" in error
        assert (nodes.newest().id, nodes.newest().dispatches) == (claim.id, 3)
        assert nodes.runs_of(claim.id) == []
        nodes.stack.start("code")

        def launched() -> bool:
            nodes.forward(minutes=30)
            return nodes.tick().launched == {"digest": 1}

        eventually(launched, "the launch once the code server is back")
        nodes.work_off()

    def test_nobody_listens(self, nodes: Nodes) -> None:
        """Nothing is claimed, nothing is lost; once it is back the same jobs are launched."""
        nodes.add("renewal", 2)
        before = len(claims(nodes.stack.engine))
        report = nodes.tick(f"http://127.0.0.1:{free_port()}")
        assert (report.claimed, report.launched, report.reconciled) == ({}, {}, {})
        assert "can't be reached" in " ".join(report.errors)
        assert len(claims(nodes.stack.engine)) == before
        assert nodes.tick().claimed == {"renewal": 2}
        nodes.work_off()
