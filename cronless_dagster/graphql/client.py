"""Dagster's web server as the tick's executor: which runs exist, and one more, please."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from cronless_dagster.engine.run_requests import (
    CLAIM_TAG,
    DISPATCH_TAG,
    dagster_job_name,
    run_config,
    tags_of,
)
from cronless_dagster.engine.run_views import reason, view_of
from cronless_dagster.engine.runs import LaunchFailed
from cronless_dagster.graphql import questions
from cronless_dagster.graphql.errors import DagsterFailed, DagsterRefused, DagsterUnavailable
from cronless_dagster.graphql.locations import Locations
from cronless_dagster.graphql.transport import Transport

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from uuid import UUID

    from cronless_dagster.engine.job_types import JobType
    from cronless_dagster.engine.runs import HandOver, RunView

CONNECT_SECONDS = 3.0
TIMEOUT_SECONDS = 10.0

_CLAIMS_A_QUESTION = 50
_RUNS_A_PAGE = 50
_EVENTS_A_PAGE = 1_000
# A longer log is a user's own; its first error is told by looking at the run.
_LOG_PAGES = 10


class DagsterGraphQL:
    """A `cronless_dagster.engine.runs.Launcher` for any number of threads.

    Args:
        url: The web server's address, with its path prefix if it has one.
        location: The code location of the Dagster jobs; None: the only one that has the job in question.
        repository: The repository in it, "__repository__" unless the code names its own.
        token: For a proxy before the web server, or of Dagster+; see `Transport`.
        connect_seconds: How long a connection may take.
        timeout_seconds: How long one answer may take. Together they must stay far below `HAND_OVER_PATIENCE`.

    Raises:
        DagsterUnavailable: `url` is no web address.
    """

    def __init__(
        self,
        url: str,
        *,
        location: str | None = None,
        repository: str = "__repository__",
        token: str | None = None,
        connect_seconds: float = CONNECT_SECONDS,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._transport = Transport(
            url, token=token, connect_seconds=connect_seconds, timeout_seconds=timeout_seconds
        )
        self._location, self._repository = location, repository
        self._locations = Locations(self._transport, repository)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connections."""
        self._transport.close()

    def of_claims(self, claim_ids: Sequence[UUID]) -> list[RunView]:
        """Return all runs of these claims, re-executed ones included; of none: only ask whether Dagster answers.

        Raises:
            DagsterUnavailable, DagsterRefused, DagsterFailed: It can't be asked.
        """
        if not claim_ids:
            self._transport.ask(questions.ANSWERS, {})
        views = (_view(run) for run in self._runs([{CLAIM_TAG: str(claim_id)} for claim_id in claim_ids]))
        return [view for view in views if view is not None]

    def why(self, run_id: str) -> str:
        """Return the first error of a failed run, as people would look it up in its log."""
        try:
            said = self._first_error(run_id)
        except Exception as error:  # noqa: BLE001 - a log that can't be read must not keep a failure from its record
            said = f"its log can't be read, {type(error).__name__}"
        return reason(run_id, said)

    def launch(self, one: HandOver, job_type: JobType) -> str:
        """Ask for a run of a claim; returns its id.

        Raises:
            LaunchFailed: There is none, or (`made`) none that is known of.
        """
        job = dagster_job_name(job_type.name)
        try:
            location = self._location or self._locations.of(job)
        except (DagsterRefused, DagsterUnavailable, DagsterFailed) as error:
            raise _failed(job, error, made=False) from None
        tags = {**job_type.tags, **tags_of(one, job_type)}
        params = {
            "selector": {
                "repositoryLocationName": location,
                "repositoryName": self._repository,
                "jobName": job,
            },
            "runConfigData": run_config(job_type.name, one.claim_id),
            "executionMetadata": {"tags": _pairs(tags)},
        }
        try:
            answer = self._transport.ask(questions.LAUNCH, {"params": params}).get("launched")
            return str(questions.checked(answer, "LaunchRunSuccess")["run"]["runId"])
        except DagsterRefused as error:
            self._locations.forget()
            raise _failed(job, error, made=False, where=location) from None
        except DagsterUnavailable as error:
            raise _failed(job, error, made=error.sent) from None
        except DagsterFailed as error:
            return self._made_all_the_same(one, job, error)

    def _made_all_the_same(self, one: HandOver, job: str, error: DagsterFailed) -> str:
        """Look whether a run was made before the error; it is over by now, so what isn't there never will be."""
        self._locations.forget()
        try:
            found = self._runs([{CLAIM_TAG: str(one.claim_id), DISPATCH_TAG: str(one.dispatch)}])
            views = [view for view in map(_view, found) if view is not None]
        except (DagsterRefused, DagsterUnavailable, DagsterFailed):
            raise _failed(job, error, made=True) from None
        if not views:
            raise _failed(job, error, made=False) from None
        return views[0].run_id

    def _runs(self, wanted: Sequence[Mapping[str, str]]) -> Iterator[dict[str, Any]]:
        """Yield the runs that have such tags, of each mapping; a filter of Dagster's takes one value a tag."""
        for start in range(0, len(wanted), _CLAIMS_A_QUESTION):
            part = wanted[start : start + _CLAIMS_A_QUESTION]
            filters = {f"c{number}": {"tags": _pairs(tags)} for number, tags in enumerate(part)}
            after: dict[str, str | None] = dict.fromkeys(filters)
            while after:
                variables: dict[str, Any] = {"limit": _RUNS_A_PAGE}
                for name, cursor in after.items():
                    variables |= {name: filters[name], f"{name}_after": cursor}
                answer = self._transport.ask(questions.runs(list(after)), variables)
                unread, after = after, {}
                for name in unread:
                    page = questions.checked(answer.get(name), "Runs")["results"]
                    yield from page
                    if len(page) == _RUNS_A_PAGE:
                        after[name] = page[-1]["runId"]

    def _first_error(self, run_id: str) -> str | None:
        of_run, cursor = None, None
        for _ in range(_LOG_PAGES):
            asked = {"run": run_id, "after": cursor, "limit": _EVENTS_A_PAGE}
            log = questions.checked(self._transport.ask(questions.LOG, asked).get("log"), "EventConnection")
            for event in log["events"]:
                said = _error(event)
                if said and event["__typename"] == "ExecutionStepFailureEvent":
                    return said
                of_run = of_run or said
            if not log["hasMore"]:
                break
            cursor = log["cursor"]
        return of_run


def _pairs(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in tags.items()]


def _view(run: Mapping[str, Any]) -> RunView | None:
    tags = {tag["key"]: tag["value"] for tag in run["tags"]}
    return view_of(run["runId"], run["status"], tags, run["startTime"], run["endTime"])


def _error(event: Mapping[str, Any]) -> str | None:
    error = event.get("error") or {}
    error = error.get("cause") or error
    lines = str(error.get("message") or "").strip().splitlines()
    return lines[0] if lines else None


def _failed(job: str, error: Exception, *, made: bool, where: str | None = None) -> LaunchFailed:
    named = f"the Dagster job {job}" + ("" if where is None else f" of the code location {where}")
    what = f"whether Dagster made a run of {named} isn't known" if made else f"Dagster made no run of {named}"
    return LaunchFailed(f"{what}: {error}", made=made)
