"""The demo's job types over its real parts, but for Dagster: web server, hub, callbacks, Maildir."""

from __future__ import annotations

import contextlib
import mailbox
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from cronless_dagster.assets.migrate import upgrade_assets
from cronless_dagster.demo.job_types import job_types
from cronless_dagster.demo.load import load_schedules
from cronless_dagster.demo.results import results
from cronless_dagster.demo.surroundings import Surroundings
from cronless_dagster.engine.local import tick_and_run
from tests.worker.support import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Engine

pytestmark = pytest.mark.postgres


@pytest.fixture
def surroundings(pg_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Surroundings]:
    """The demo's web server and callbacks, with their settings in this process too."""
    upgrade_assets(pg_url)
    made = Surroundings()
    environment = {**made.environment(tmp_path / "home"), "CRONLESS_DATABASE_URL": pg_url}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with made.start(tmp_path / "logs", environment):
        yield made


def test_all_three_do_their_work(engine: Engine, tmp_path: Path, surroundings: Surroundings) -> None:
    """Accounts are refreshed, whoever follows one gets a mail, webhooks become active, and the last words say so.

    A reader whose tenant watches nothing gets none.
    """
    schedules = tmp_path / "schedules.csv"
    schedules.write_text(
        "tenant,job_type,name,expr,timezone,system,source_repo,source_path\n"
        "one,email_digest,digest,0 9 * * *,Pacific/Kiritimati,x,x,x\n"
        "one,account_research,acme,0 3 * * *,,x,x,x\n"
        "one,webhook_renewal,hook,0 4 * * *,,x,x,x\n"
        "two,email_digest,digest,0 9 * * *,,x,x,x\n"
    )
    maildir = tmp_path / "home" / "maildir"
    load_schedules(engine, schedules, surroundings.web)
    assert any("no mails yet" in said for said in results(engine, maildir))
    report, ran = tick_and_run(engine, job_types)
    assert sorted(one.job_type for one in report.hand_over) == ["account_research", "webhook_renewal"]
    assert [one.failed for one in ran] == [0, 0]

    with engine.begin() as connection:
        connection.execute(
            text("UPDATE cronless.scheduled_job SET next_run_at = now() WHERE job_type = 'email_digest'")
        )
    _, [digests] = tick_and_run(engine, job_types)
    assert (digests.finished, digests.failed) == (2, 0)
    [mail] = mailbox.Maildir(maildir)
    assert "<reader-1.one@example.com>" in mail["To"]
    assert mail["List-Unsubscribe"].startswith(f"<{surroundings.callbacks}/unsubscribe/")
    assert "Made-up news" in str(mail)

    until(lambda: active(engine), "the hub has verified")
    said = list(results(engine, maildir))
    assert "of 1 accounts, whose 1 tenants" in said[0]
    assert said[1].startswith("digests: 1 made-up mails in ")
    assert said[2] == "webhooks: 1 of 1 are active"


def active(engine: Engine) -> bool:
    """Tell whether the webhook's lease was granted."""
    with contextlib.closing(engine.connect()) as connection:
        found = connection.execute(text("SELECT status FROM cronless_assets.subscription")).scalar_one()
    return bool(found == "active")
