"""Dagster's answers as the tick's executor takes them: whether a run exists, and what is said where none does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest

from cronless_dagster.engine.job_types import JobType
from cronless_dagster.engine.runs import HandOver, LaunchFailed
from cronless_dagster.graphql import client, locations
from cronless_dagster.graphql.client import DagsterGraphQL
from cronless_dagster.graphql.errors import DagsterFailed
from tests.engine.support import nothing
from tests.graphql.web import Answer, Asked

if TYPE_CHECKING:
    from tests.graphql.web import Web

CLAIM = UUID("00000000-0000-4000-8000-000000000001")
ONE = HandOver(CLAIM, "digest", 2, 500, manual=False)
DIGEST = JobType(name="digest", handler=nothing, tags={"team": "mail"})


def run(status: str = "QUEUED", *, run_id: str | None = None, **values: Any) -> dict[str, Any]:
    """Return a run of the claim, as Dagster shows it."""
    tags = {"cronless/claim": str(CLAIM), "cronless/dispatch": "2", **values.pop("tags", {})}
    return {
        "runId": run_id or str(uuid4()),
        "status": status,
        "startTime": None,
        "endTime": None,
        "tags": [{"key": key, "value": value} for key, value in tags.items()],
        **values,
    }


def location(name: str, *jobs: str, repository: str = "__repository__") -> dict[str, Any]:
    """Return a repository of a code location, as Dagster shows it."""
    return {"name": repository, "location": {"name": name}, "jobs": [{"name": job} for job in jobs]}


class FakeSchema:
    """Answers the questions of this package as Dagster would, from lists that a test fills."""

    def __init__(self) -> None:
        self.launched: Any = {"__typename": "LaunchRunSuccess", "run": {"runId": "made"}}
        self.locations = [location("here", "cronless_digest")]
        self.runs: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.runs_asked = Answer(None)

    def __call__(self, asked: Asked) -> Answer:
        """Answer one question."""
        query, variables = asked.body["query"], asked.body["variables"]
        if "launchRun" in query:
            return self.launched if isinstance(self.launched, Answer) else self._data(launched=self.launched)
        if "repositoriesOrError" in query:
            return self._data(found={"__typename": "RepositoryConnection", "nodes": self.locations})
        if "logsForRun" in query:
            start = int(variables["after"] or 0)
            end = start + variables["limit"]
            log = {"__typename": "EventConnection", "cursor": str(end), "hasMore": end < len(self.events)}
            return self._data(log={**log, "events": self.events[start:end]})
        if "runsOrError" in query:
            if self.runs_asked.body is not None:
                return self.runs_asked
            names = [name for name in variables if name.startswith("c") and not name.endswith("_after")]
            return self._data(**{name: self._page(variables, name) for name in names})
        return self._data(version="0")

    def _page(self, variables: dict[str, Any], name: str) -> dict[str, Any]:
        wanted = [(tag["key"], tag["value"]) for tag in variables[name]["tags"]]
        found = [
            one
            for one in self.runs
            if all({"key": key, "value": value} in one["tags"] for key, value in wanted)
        ]
        after = variables[f"{name}_after"]
        ids = [one["runId"] for one in found]
        start = ids.index(after) + 1 if after is not None else 0
        return {"__typename": "Runs", "results": found[start : start + variables["limit"]]}

    @staticmethod
    def _data(**data: Any) -> Answer:
        return Answer({"data": data})


@pytest.fixture
def schema(web: Web) -> FakeSchema:
    """What the web server answers."""
    made = FakeSchema()
    web.answers = made
    return made


@pytest.fixture
def dagster(web: Web) -> DagsterGraphQL:
    """The web server as the executor."""
    return DagsterGraphQL(web.address)


class TestLaunch:
    """One question for one run."""

    def test_what_is_asked_for(self, web: Web, schema: FakeSchema, dagster: DagsterGraphQL) -> None:
        """The Dagster job of the type, the claim's id as its config, and tags to find the run by."""
        assert dagster.launch(ONE, DIGEST) == "made"
        params = web.asked[-1].body["variables"]["params"]
        assert params["selector"] == {
            "repositoryLocationName": "here",
            "repositoryName": "__repository__",
            "jobName": "cronless_digest",
        }
        assert params["runConfigData"] == {"ops": {"cronless__digest": {"config": {"claim_id": str(CLAIM)}}}}
        tags = {tag["key"]: tag["value"] for tag in params["executionMetadata"]["tags"]}
        assert tags["cronless/claim"] == str(CLAIM)
        assert tags["cronless/dispatch"] == "2"
        assert tags["team"] == "mail"
        assert tags["dagster/max_retries"] == "0"

    @pytest.mark.parametrize(
        ("answer", "made", "says"),
        [
            ({"__typename": "PipelineNotFoundError", "message": "gone"}, False, "it has no such job"),
            ({"__typename": "UnauthorizedError", "message": ""}, False, "read-only"),
            (Answer(b"no", 401), False, "refuses this token"),
            (Answer(b"<html>"), False, "something else than GraphQL"),
            (Answer(b"no", 504), True, "fails with status 504"),
            (Answer({"data": {}}, cut=3), True, "broke off its answer"),
            ({"__typename": "PythonError", "message": "oh"}, False, "PythonError: oh"),
            ({"__typename": "RunConflict", "message": "oh"}, False, "RunConflict: oh"),
            ({"__typename": "SomethingNew"}, False, "SomethingNew"),
            (Answer({"errors": [{"message": "internal"}]}), False, "internal"),
            (Answer({"data": {}}), False, "leaves out"),
        ],
    )
    def test_no_run(
        self, schema: FakeSchema, dagster: DagsterGraphQL, answer: Any, says: str, *, made: bool
    ) -> None:
        """What refuses made none; what broke off may have; an error in the answer is looked into."""
        schema.launched = answer
        with pytest.raises(LaunchFailed) as caught:
            dagster.launch(ONE, DIGEST)
        assert says in str(caught.value)
        assert "cronless_digest" in str(caught.value)
        assert ("isn't known" in str(caught.value)) is caught.value.made is made

    def test_a_run_that_was_made_before_the_error(self, schema: FakeSchema, dagster: DagsterGraphQL) -> None:
        """Dagster made and queued it, and failed to say so; one that was never queued is none."""
        schema.launched = {"__typename": "PythonError", "message": "oh"}
        schema.runs = [run(tags={"cronless/dispatch": "1"}), run("NOT_STARTED")]
        with pytest.raises(LaunchFailed) as caught:
            dagster.launch(ONE, DIGEST)
        assert not caught.value.made
        schema.runs.append(run("QUEUED", run_id="there"))
        assert dagster.launch(ONE, DIGEST) == "there"

    def test_an_error_that_cannot_be_looked_into(self, schema: FakeSchema, dagster: DagsterGraphQL) -> None:
        """Then a run may exist."""
        schema.launched = {"__typename": "PythonError", "message": "oh"}
        schema.runs_asked = Answer(b"no", 500)
        with pytest.raises(LaunchFailed, match="PythonError: oh") as caught:
            dagster.launch(ONE, DIGEST)
        assert caught.value.made


class TestLocation:
    """Where nobody says in which code location a Dagster job is, Dagster is asked, once a minute."""

    def asked(self, web: Web) -> int:
        """Count the questions for jobs."""
        return sum("repositoriesOrError" in one.body["query"] for one in web.asked)

    def test_it_is_asked_for_once_a_minute(
        self,
        web: Web,
        schema: FakeSchema,
        dagster: DagsterGraphQL,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A code location that was renamed is found then."""
        for _ in range(3):
            dagster.launch(ONE, DIGEST)
        assert self.asked(web) == 1
        schema.locations = [location("renamed", "cronless_digest")]
        monkeypatch.setattr(locations.time, "monotonic", lambda: dagster._locations._until)
        dagster.launch(ONE, DIGEST)
        assert web.asked[-1].body["variables"]["params"]["selector"]["repositoryLocationName"] == "renamed"

    def test_a_refusal_makes_it_ask_again(
        self, web: Web, schema: FakeSchema, dagster: DagsterGraphQL
    ) -> None:
        """The job isn't where it was."""
        schema.launched = {"__typename": "PipelineNotFoundError", "message": "gone"}
        for _ in range(2):
            with pytest.raises(LaunchFailed):
                dagster.launch(ONE, DIGEST)
        assert self.asked(web) == 2

    @pytest.mark.parametrize(
        ("found", "says"),
        [
            ([], "no code location that Dagster could load has it"),
            ([location("a", "other"), location("b")], "no code location"),
            ([location("a", "cronless_digest", repository="own")], "no code location"),
            (
                [location("a", "cronless_digest"), location("b", "cronless_digest")],
                "a, b all have it: name one by CRONLESS_DAGSTER_LOCATION",
            ),
        ],
    )
    def test_none_or_several(
        self,
        web: Web,
        schema: FakeSchema,
        dagster: DagsterGraphQL,
        found: list[dict[str, Any]],
        says: str,
    ) -> None:
        """An error that says what to do, and no run."""
        schema.locations = found
        with pytest.raises(LaunchFailed, match=says) as caught:
            dagster.launch(ONE, DIGEST)
        assert not caught.value.made
        assert not any("launchRun" in one.body["query"] for one in web.asked)

    def test_where_it_is_said_nothing_is_asked(self, web: Web, schema: FakeSchema) -> None:
        """The named location and repository are the ones."""
        DagsterGraphQL(web.address, location="there", repository="own").launch(ONE, DIGEST)
        [asked] = web.asked
        selector = asked.body["variables"]["params"]["selector"]
        assert (selector["repositoryLocationName"], selector["repositoryName"]) == ("there", "own")

    def test_dagster_cannot_say(self, web: Web, dagster: DagsterGraphQL) -> None:
        """Then nothing was asked for."""
        web.answers = lambda _: Answer(b"no", 502)
        with pytest.raises(LaunchFailed) as caught:
            dagster.launch(ONE, DIGEST)
        assert not caught.value.made


class TestRuns:
    """Which runs exist of which claims."""

    @pytest.mark.parametrize(
        ("status", "state"),
        [
            ("QUEUED", "waiting"),
            ("STARTING", "waiting"),
            ("STARTED", "started"),
            ("CANCELING", "started"),
            ("SUCCESS", "success"),
            ("FAILURE", "failure"),
            ("CANCELED", "canceled"),
            ("SOMETHING_NEW", "waiting"),
        ],
    )
    def test_each_status(self, schema: FakeSchema, dagster: DagsterGraphQL, status: str, state: str) -> None:
        """In the tick's words."""
        schema.runs = [run(status, run_id="r", startTime=60.0)]
        [view] = dagster.of_claims([CLAIM])
        assert (view.run_id, view.claim_id, view.dispatch, view.state) == ("r", CLAIM, 2, state)
        assert view.started_at == datetime(1970, 1, 1, 0, 1, tzinfo=UTC)

    def test_a_run_past_its_limit_failed(self, schema: FakeSchema, dagster: DagsterGraphQL) -> None:
        """Dagster shows it as canceled, and no person did that."""
        limit = {"tags": {"dagster/max_runtime": "60"}, "startTime": 0.0}
        schema.runs = [run("CANCELED", endTime=61.0, **limit), run("CANCELED", endTime=59.0, **limit)]
        assert [view.state for view in dagster.of_claims([CLAIM])] == ["failure", "canceled"]

    def test_a_run_that_was_never_queued_is_none(self, schema: FakeSchema, dagster: DagsterGraphQL) -> None:
        """Whoever made it died before."""
        schema.runs = [run("NOT_STARTED")]
        assert dagster.of_claims([CLAIM]) == []

    def test_many_claims_with_many_runs(
        self,
        web: Web,
        schema: FakeSchema,
        dagster: DagsterGraphQL,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """So many claims a question, so many runs a page; all runs are found, and only those of these claims."""
        monkeypatch.setattr(client, "_CLAIMS_A_QUESTION", 2)
        monkeypatch.setattr(client, "_RUNS_A_PAGE", 3)
        wanted = [UUID(int=number) for number in range(1, 6)]
        for number, claim_id in enumerate([*wanted, UUID(int=99)]):
            schema.runs += [
                run(run_id=f"{claim_id}/{n}", tags={"cronless/claim": str(claim_id)}) for n in range(number)
            ]
        found = dagster.of_claims(wanted)
        expected = {f"{claim_id}/{n}" for number, claim_id in enumerate(wanted) for n in range(number)}
        assert {view.run_id for view in found} == expected
        assert len(found) == len(expected)
        # Three groups, of which the second and the third have a claim with a full page.
        assert len(web.asked) == 5

    def test_of_no_claims_it_is_asked_whether_it_answers(self, web: Web, dagster: DagsterGraphQL) -> None:
        """So that a tick claims nothing that it can't launch."""
        assert dagster.of_claims([]) == []
        assert len(web.asked) == 1
        web.answers = lambda _: Answer({"errors": [{"message": "oh"}]})
        with pytest.raises(DagsterFailed):
            dagster.of_claims([])

    def test_half_an_answer_is_none(self, schema: FakeSchema, dagster: DagsterGraphQL) -> None:
        """A claim of which nothing is said must not look as if it had no run."""
        schema.runs_asked = Answer(
            {"data": {"c0": {"__typename": "Runs", "results": []}, "c1": {"__typename": "PythonError"}}}
        )
        with pytest.raises(DagsterFailed, match="PythonError"):
            dagster.of_claims([CLAIM, UUID(int=2)])
        schema.runs_asked = Answer({"data": {"c0": {"__typename": "Runs", "results": []}}})
        with pytest.raises(DagsterFailed, match="leaves out"):
            dagster.of_claims([CLAIM, UUID(int=2)])


def failed(message: str, kind: str = "ExecutionStepFailureEvent", cause: str | None = None) -> dict[str, Any]:
    """Return an event of a failure."""
    return {
        "__typename": kind,
        "error": {"message": message, "cause": None if cause is None else {"message": cause}},
    }


class TestWhy:
    """The first error in a run's log is what its scheduled job says."""

    @pytest.mark.parametrize(
        ("events", "says"),
        [
            ([failed("outer", cause="ValueError: inner\nmore")], "ValueError: inner (its Dagster run r)"),
            ([failed("run", "RunFailureEvent"), failed("step")], "step (its Dagster run r)"),
            ([failed("run", "RunFailureEvent")], "run (its Dagster run r)"),
            ([{"__typename": "RunFailureEvent", "error": None}], "failed without an error in its log"),
            ([], "failed without an error in its log"),
        ],
    )
    def test_the_first_error(
        self, schema: FakeSchema, dagster: DagsterGraphQL, events: list[dict[str, Any]], says: str
    ) -> None:
        """A step's before the run's, its cause before what was made of it."""
        schema.events = [{"__typename": "LogMessageEvent"}, *events]
        assert says in dagster.why("r")

    def test_a_long_log(
        self, schema: FakeSchema, dagster: DagsterGraphQL, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is read page by page."""
        monkeypatch.setattr(client, "_EVENTS_A_PAGE", 2)
        schema.events = [{"__typename": "LogMessageEvent"}] * 5 + [failed("at last")]
        assert dagster.why("r").startswith("at last")

    def test_a_log_that_cannot_be_read(self, web: Web, dagster: DagsterGraphQL) -> None:
        """It keeps no failure from its record."""
        web.answers = lambda _: Answer(b"no", 500)
        assert dagster.why("r") == "its log can't be read, DagsterUnavailable (its Dagster run r)"


def test_it_can_be_closed(web: Web) -> None:
    """Its connections end with it."""
    with DagsterGraphQL(web.address) as dagster:
        dagster.of_claims([])
    with pytest.raises(RuntimeError):
        dagster.of_claims([])
