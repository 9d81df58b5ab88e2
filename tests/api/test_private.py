"""The private address: alive, ready, and what is counted."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from sqlalchemy import text

from cronless_dagster.api import private as subject
from cronless_dagster.api.private import Readiness, private_app
from cronless_dagster.store.database import create_store_engine

if TYPE_CHECKING:
    from sqlalchemy import Engine


def got(readiness: Readiness, path: str, times: int = 1) -> httpx.Response:
    """Ask the application, so many times at once; returns the last answer."""

    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(private_app(readiness))
        async with httpx.AsyncClient(transport=transport, base_url="http://private.test") as client:
            return (await asyncio.gather(*(client.get(path) for _ in range(times))))[-1]

    try:
        return asyncio.run(run())
    finally:
        readiness.close()


def test_it_is_ready(engine: Engine) -> None:
    """With a database that is there and current."""
    answer = got(Readiness(engine), "/readyz", times=10)
    assert (answer.status_code, answer.json()) == (200, {"ready": True, "reasons": []})


def test_a_node_that_ends_is_not_ready(engine: Engine) -> None:
    """So that load balancers leave it before it takes no more calls; it lives all the same."""
    readiness = Readiness(engine)
    readiness.draining = True
    answer = got(readiness, "/readyz")
    assert (answer.status_code, answer.json()["reasons"]) == (503, ["the node is draining"])
    assert got(readiness, "/healthz").status_code == 200


@pytest.mark.parametrize(
    ("version", "words"),
    [("0001", "cronless db upgrade"), ("9999", "newer release"), (None, "no current schema")],
)
def test_a_schema_of_another_release_is_not_ready(engine: Engine, version: str | None, words: str) -> None:
    """Older, newer, or none."""
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE cronless.alembic_version SET version_num = :v"), {"v": version or "x"}
        )
        if version is None:
            connection.execute(text("DROP SCHEMA cronless CASCADE"))
    answer = got(Readiness(engine), "/readyz")
    assert answer.status_code == 503
    assert words in answer.json()["reasons"][0]


def test_a_database_that_is_away_is_named_without_its_address() -> None:
    """And the process lives."""
    away = create_store_engine("postgresql://nobody:made-up@127.0.0.1:1/nothing")
    answer = got(Readiness(away), "/readyz")
    assert answer.status_code == 503
    assert answer.json()["reasons"] == ["the database can't be used (DatabaseUnavailable)"]
    assert got(Readiness(away), "/healthz").text == "ok\n"


def test_a_database_that_hangs_is_asked_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often somebody wants to know meanwhile."""
    asked: list[Any] = []

    def hangs(_: Any) -> None:
        asked.append(_)
        time.sleep(0.2)

    monkeypatch.setattr(subject, "require_current", hangs)
    monkeypatch.setattr(subject, "_PATIENCE_SECONDS", 0.05)
    answer = got(Readiness(engine), "/readyz", times=5)
    assert answer.json()["reasons"] == ["the database doesn't answer within 0.05 s"]
    assert len(asked) == 1


def test_connections_at_work_do_not_make_a_node_unready(pg_url: str) -> None:
    """It is asked by a connection of its own."""
    busy = create_store_engine(pg_url, pool_size=1)
    held = [busy.connect() for _ in range(6)]  # all there are
    assert got(Readiness(busy), "/readyz").status_code == 200
    for connection in held:
        connection.close()
    busy.dispose()


def test_metrics_are_shown(engine: Engine) -> None:
    """In Prometheus' format."""
    answer = got(Readiness(engine), "/metrics")
    assert answer.status_code == 200
    assert "cronless_check_calls_total" in answer.text
    assert answer.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("path", ["/", "/checks/dispatch", "/docs", "/openapi.json"])
def test_there_is_nothing_else(engine: Engine, path: str) -> None:
    """Checks are the public address's."""
    assert got(Readiness(engine), path).status_code == 404
