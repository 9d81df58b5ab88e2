"""The questions in GraphQL, and what the errors among the answers say."""

from __future__ import annotations

from typing import Any

from cronless_dagster.graphql.errors import DagsterFailed, DagsterRefused
from cronless_dagster.graphql.transport import one_line

ANSWERS = "{ version }"

JOBS = """
{
  found: repositoriesOrError {
    __typename
    ... on RepositoryConnection { nodes { name location { name } jobs { name } } }
    ... on Error { message }
  }
}
"""

LAUNCH = """
mutation ($params: ExecutionParams!) {
  launched: launchRun(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on RunConfigValidationInvalid { errors { message } }
    ... on InvalidStepError { invalidStepKey }
    ... on InvalidOutputError { stepKey }
    ... on Error { message }
  }
}
"""

LOG = """
query ($run: ID!, $after: String, $limit: Int!) {
  log: logsForRun(runId: $run, afterCursor: $after, limit: $limit) {
    __typename
    ... on EventConnection {
      cursor
      hasMore
      events {
        __typename
        ... on ExecutionStepFailureEvent { error { message cause { message } } }
        ... on RunFailureEvent { error { message cause { message } } }
      }
    }
    ... on Error { message }
  }
}
"""

_RUNS = """{name}: runsOrError(filter: ${name}, cursor: ${name}_after, limit: $limit) {{
    __typename
    ... on Runs {{ results {{ runId status startTime endTime tags {{ key value }} }} }}
    ... on Error {{ message }}
  }}"""


def runs(names: list[str]) -> str:
    """Return one question for several lists of runs, each by a filter `$name` and from `$name_after` on."""
    declared = ", ".join(f"${name}: RunsFilter!, ${name}_after: String" for name in names)
    asked = "\n  ".join(_RUNS.format(name=name) for name in names)
    return f"query ($limit: Int!, {declared}) {{\n  {asked}\n}}"


# Each of them is given before Dagster makes the run; any other error may come after it.
_REFUSALS = {
    "PipelineNotFoundError": "it has no such job",
    "RunConfigValidationInvalid": "it refuses the run's config",
    "InvalidSubsetError": "it refuses the selection",
    "InvalidStepError": "it knows no such step",
    "InvalidOutputError": "it knows no such output",
    "PresetNotFoundError": "it knows no such preset",
    "ConflictingExecutionParamsError": "it refuses the request as contradictory",
    "NoModeProvidedError": "it asks for a mode",
    "UnauthorizedError": "it lets us launch no runs: the web server is read-only, or the token's rights don't allow it",
}


def checked(answer: Any, wanted: str) -> dict[str, Any]:
    """Return a member of an answer's union if it is the wanted one.

    Raises:
        DagsterRefused: Dagster did nothing.
        DagsterFailed: It is another error, or nothing that this code knows.
    """
    if not isinstance(answer, dict):
        raise DagsterFailed("Dagster's web server leaves out a part of its answer: see its log.")
    kind = str(answer.get("__typename"))
    if kind == wanted:
        return answer
    said = _said(answer)
    if kind in _REFUSALS:
        raise DagsterRefused(f"{_REFUSALS[kind]} ({kind}{said})")
    raise DagsterFailed(f"Dagster's web server answers with {kind}{said}")


def _said(answer: dict[str, Any]) -> str:
    message = answer.get("message")
    errors = answer.get("errors")
    if not message and errors:
        message = errors[0].get("message")
    return f": {one_line(str(message))}" if message else ""
