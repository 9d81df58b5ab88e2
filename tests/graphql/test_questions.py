"""The questions are Dagster's GraphQL, and every answer that its schema allows is understood."""

from __future__ import annotations

import pytest
from dagster_graphql.schema import create_schema
from graphql import GraphQLUnionType, parse, validate

from cronless_dagster.graphql import questions
from cronless_dagster.graphql.errors import DagsterFailed, DagsterRefused

SCHEMA = create_schema().graphql_schema


@pytest.mark.parametrize(
    "question",
    [questions.ANSWERS, questions.JOBS, questions.LAUNCH, questions.LOG, questions.runs(["c0", "c1"])],
    ids=["answers", "jobs", "launch", "log", "runs"],
)
def test_dagsters_schema_knows_each_question(question: str) -> None:
    """As the installed version has it."""
    assert validate(SCHEMA, parse(question)) == []


def test_every_answer_to_a_launch_is_known() -> None:
    """One that a new version adds counts as an error after which a run may exist, until it is looked at."""
    union = SCHEMA.get_type("LaunchRunResult")
    assert isinstance(union, GraphQLUnionType)
    uncertain = {"PythonError", "RunConflict"}
    assert {one.name for one in union.types} == {"LaunchRunSuccess", *questions._REFUSALS, *uncertain}


@pytest.mark.parametrize("kind", sorted(questions._REFUSALS))
def test_refusals_say_what_dagster_says(kind: str) -> None:
    """With its own first line, where it has one."""
    with pytest.raises(DagsterRefused, match=rf"\({kind}: so it is\)"):
        questions.checked({"__typename": kind, "message": "so it is\nand more"}, "Runs")


def test_the_first_error_of_a_refused_config() -> None:
    """Dagster lists them; one is enough to look for."""
    answer = {"__typename": "RunConfigValidationInvalid", "errors": [{"message": "a field too many"}]}
    with pytest.raises(DagsterRefused, match=r"refuses the run's config .*: a field too many"):
        questions.checked(answer, "LaunchRunSuccess")


@pytest.mark.parametrize(
    "answer",
    [None, {}, {"__typename": "PythonError", "message": "oh"}, {"__typename": "SomethingNew"}],
)
def test_any_other_answer_is_a_failure(answer: object) -> None:
    """Never taken for what was wanted."""
    with pytest.raises(DagsterFailed):
        questions.checked(answer, "Runs")
