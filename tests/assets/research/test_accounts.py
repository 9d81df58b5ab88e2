"""What is watched: checked when it is said, and the same twice is once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cronless_dagster.assets.partitions import TenantError
from cronless_dagster.assets.research import AccountError, Source, schedule_account, unwatch, watch
from cronless_dagster.scheduling.errors import ScheduleError
from tests.assets.research.support import add_account, rows

if TYPE_CHECKING:
    from sqlalchemy import Engine

FEED = Source("feed", "https://news.example/feed")


def sources(engine: Engine) -> dict[str, Any]:
    """Return all sources by location."""
    return {row.location: row for row in rows(engine, "SELECT * FROM cronless_assets.source")}


@pytest.mark.parametrize(
    ("kind", "location"),
    [
        ("feed", "file:///etc/passwd"),
        ("feed", "ftp://x.example/"),
        ("feed", "https://user:password@x.example/"),
        ("feed", "https://"),
        ("feed", "https://x.example/\n"),
        ("feed", "https://x.example/a b"),
        ("feed", "https://[x/"),
        ("feed", "https://x.example/" + "x" * 2_000),
        ("page", "x.example"),
        ("csv", "/etc/passwd"),
        ("csv", "../x.csv"),
        ("parquet", ""),
        ("gopher", "https://x.example/"),
    ],
)
def test_a_source_that_could_never_be_read_is_refused(kind: Any, location: str) -> None:
    """When it is said, not at its first refresh; a password isn't repeated."""
    with pytest.raises(AccountError):
        Source(kind, location)


def test_watching_twice_is_once(assets_engine: Engine) -> None:
    """The same account, its sources beside those that it has."""
    first = add_account(assets_engine, "https://a.example/")
    assert add_account(assets_engine, "https://a.example/", "https://b.example/") == first
    assert set(sources(assets_engine)) == {"https://a.example/", "https://b.example/"}


def test_another_kind_forgets_what_was_known(assets_engine: Engine) -> None:
    """An ETag of the page as a feed says nothing of it as a page."""
    add_account(assets_engine, "https://a.example/")
    with assets_engine.begin() as connection:
        connection.exec_driver_sql("UPDATE cronless_assets.source SET etag = 'e', content_hash = 'h'")
    add_account(assets_engine, "https://a.example/")
    assert sources(assets_engine)["https://a.example/"].etag == "e"
    add_account(assets_engine, "https://a.example/", kind="page")
    [row] = sources(assets_engine).values()
    assert (row.kind, row.etag, row.content_hash) == ("page", None, None)


@pytest.mark.parametrize("tenant", ["../x", "a|b", "", " x", "a\nb", "...", "x" * 201])
def test_a_tenant_that_can_be_no_partition_is_refused(assets_engine: Engine, tenant: str) -> None:
    """Nothing is written."""
    with assets_engine.begin() as connection, pytest.raises(TenantError):
        watch(connection, tenant_id=tenant, name="globex", sources=[FEED])
    assert rows(assets_engine, "SELECT * FROM cronless_assets.account") == []


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 201])
def test_a_name_that_nobody_could_read_is_refused(assets_engine: Engine, name: str) -> None:
    """Neither empty, nor of two lines, nor endless."""
    with assets_engine.begin() as connection, pytest.raises(AccountError, match="account name"):
        watch(connection, tenant_id="acme", name=name, sources=[FEED])


def test_a_scheduled_account_has_a_job_of_its_name(assets_engine: Engine) -> None:
    """Once in six hours unless said otherwise; said otherwise, the same job is changed."""
    with assets_engine.begin() as connection:
        first = schedule_account(connection, tenant_id="acme", name="globex", sources=[FEED])
        again = schedule_account(connection, tenant_id="acme", name="globex", schedule="0 7 * * *")
    assert first == again
    [job] = rows(assets_engine, "SELECT * FROM cronless.scheduled_job")
    assert (job.job_type, job.name, job.schedule, job.payload) == (
        "account_research",
        "globex",
        "0 7 * * *",
        {"account": "globex"},
    )


def test_a_bad_schedule_is_the_callers_to_roll_back(assets_engine: Engine) -> None:
    """Account and job are one transaction, which is the caller's."""
    with pytest.raises(ScheduleError), assets_engine.begin() as connection:
        schedule_account(connection, tenant_id="acme", name="globex", sources=[FEED], schedule="never")
    assert rows(assets_engine, "SELECT * FROM cronless_assets.account") == []


def test_a_source_or_a_whole_account_is_forgotten(assets_engine: Engine) -> None:
    """What isn't there is said."""
    add_account(assets_engine, "https://a.example/", "https://b.example/")
    with assets_engine.begin() as connection:
        unwatch(connection, tenant_id="acme", name="globex", location="https://a.example/")
    assert set(sources(assets_engine)) == {"https://b.example/"}
    with (
        assets_engine.begin() as connection,
        pytest.raises(AccountError, match=r"with the source 'https://a\."),
    ):
        unwatch(connection, tenant_id="acme", name="globex", location="https://a.example/")
    with assets_engine.begin() as connection:
        unwatch(connection, tenant_id="acme", name="globex")
    assert sources(assets_engine) == {}
    with (
        assets_engine.begin() as connection,
        pytest.raises(AccountError, match="has no account 'globex': nothing"),
    ):
        unwatch(connection, tenant_id="acme", name="globex")
