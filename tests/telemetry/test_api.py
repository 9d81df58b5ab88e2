"""The check API's metrics and traces, and what is in neither."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from cronless_dagster.checks.declaring import Answer
from cronless_dagster.store.errors import DatabaseUnavailable
from cronless_dagster.telemetry import metrics, tracing
from tests.api.support import KEY, PATH, TOKEN, Asks, api_of, ask, checks_of

if TYPE_CHECKING:
    from tests.telemetry.conftest import Collector


def away(_: Any) -> Answer:
    """Answer as a check whose database is away."""
    raise DatabaseUnavailable("the database at postgresql://me@host/jobs can't be reached: start it")


def test_calls_are_counted_and_only_failed_ones_leave(collector: Collector) -> None:
    """A call that finds nothing to do is counted and stays; one that fails leaves with the check below it."""
    metrics.begin()
    tracing.set_up("cronless-serve", slow_ms=3_600_000)
    api = api_of(checks_of(dispatch=Asks(), busy=Asks(lambda _: Answer(2, {}, ())), broken=Asks(away)))

    async def calls() -> list[int]:
        paths = [*("dispatch", "busy", "broken", "unknown"), "../secret"]
        return [(await ask(api, f"/{PATH}/checks/{name}")).status for name in paths]

    assert asyncio.run(calls()) == [200, 200, 503, 404, 404]
    provider = tracing._provider
    assert provider is not None
    provider.force_flush()
    assert collector.names == ["api.call", "check"]
    assert (tracing.counts().let_out, tracing.counts().held_back) == (1, 2)
    shown = metrics.render()[0].decode()
    for line in (
        'cronless_check_calls_total{check="dispatch",outcome="nothing"} 1.0',
        'cronless_check_calls_total{check="busy",outcome="acted"} 1.0',
        'cronless_check_calls_total{check="broken",outcome="unavailable"} 1.0',
        'cronless_check_actions_total{check="busy"} 2.0',
        "cronless_api_refused_total 2.0",
    ):
        assert line in shown
    assert "unknown" not in shown
    for secret in (PATH, TOKEN, KEY):
        assert secret not in shown
        assert secret not in str(collector.requests)
