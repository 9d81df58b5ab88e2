"""Calls made up from the API's own description, against the real application and a real database: no 500."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from cronless_dagster.checks.built_in import built_in
from cronless_dagster.checks.declaring import Asked
from tests.api.support import ALL, CREDENTIALS, PATH, access_of, api_of
from tests.engine.support import add_many, types_of

if TYPE_CHECKING:
    from schemathesis import APIOperation, BaseSchema
    from sqlalchemy import Engine

    from cronless_dagster.api.app import CheckApi
    from cronless_dagster.api.calls import Call

EXAMPLES = 25
HEADERS = {name.decode(): value.decode() for name, value in CREDENTIALS}
CONFORMS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)


@pytest.fixture
def api(virtual_engine: Engine) -> CheckApi:
    """An API over a database with some jobs, whose clock its caller may set."""
    add_many(virtual_engine, 20)
    types = types_of()

    def asked(call: Call) -> Asked:
        return Asked(engine=virtual_engine, ids=call.ids, now=call.now, job_types=types)

    return api_of(built_in(), access_of(replace(ALL, now=True)), asked, calls_per_second=1e6)


@pytest.fixture
def schema(api: CheckApi) -> BaseSchema:
    """What the API says of itself."""
    return schemathesis.openapi.from_asgi(f"/{PATH}/openapi.json", api, headers=HEADERS)


@pytest.mark.parametrize("mode", GenerationMode)
def test_no_call_is_a_fault_of_ours(schema: BaseSchema, mode: GenerationMode) -> None:
    """Whether it keeps to the description or not, each answer is one that the description tells of."""
    statuses: Counter[int] = Counter()
    operations = [found.ok() for found in schema.get_all_operations()]
    for operation in operations:
        _try(operation, mode, statuses)
    assert len(operations) == len(built_in())
    assert set(statuses) <= {200, 400, 404}
    assert statuses[200 if mode is GenerationMode.POSITIVE else 400] > EXAMPLES


def _name_ids_once(case: schemathesis.Case) -> None:
    """Keep to the one rule that a description can't hold: a prefix or a range."""
    if "range" in case.query:
        case.query.pop("prefix", None)
    else:
        case.query.setdefault("prefix", "b")


def _try(operation: APIOperation, mode: GenerationMode, statuses: Counter[int]) -> None:
    @seed(20_260_302)
    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def each(case: schemathesis.Case) -> None:
        if mode is GenerationMode.POSITIVE:
            _name_ids_once(case)
        # Its own address is relative to where the description lies.
        answer = case.call(headers=HEADERS, base_url=f"http://testserver/{PATH}")
        statuses[answer.status_code] += 1
        case.validate_response(answer, headers=HEADERS, checks=CONFORMS)

    each()
