"""Loading the real schedules of `examples/schedules.csv` as jobs of made-up tenants.

Each row becomes what an application would set up: an account that is watched, a user who gets digests, a webhook.
"""

from __future__ import annotations

import csv
from collections import Counter
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, text

from cronless_dagster.assets.digests.users import add_user, follow
from cronless_dagster.assets.research.accounts import Source, watch
from cronless_dagster.assets.webhooks.subscriptions import subscribe
from cronless_dagster.demo.feeds import HUB_PATH, Feed
from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.scheduling.hashing import stable_hash
from cronless_dagster.store import jobs
from cronless_dagster.store.database import transaction

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from uuid import UUID

_COLUMNS = {"tenant", "job_type", "name", "expr", "timezone", "source_repo", "source_path"}
_MOVED = """
UPDATE cronless_assets.source SET location = regexp_replace(location, :before, :server)
WHERE location ~ (:before || '/feeds/');
UPDATE cronless_assets.subscription
SET topic = regexp_replace(topic, :before, :server), hub = regexp_replace(hub, :before, :server)
WHERE hub ~ (:before || '/hub$');
UPDATE cronless.scheduled_job SET name = regexp_replace(name, :before, :server)
WHERE job_type = 'webhook_renewal' AND name ~ (:before || '/feeds/');
"""
_SERVER = r"^http://127\.0\.0\.1:[0-9]+"


class DemoError(CronlessError):
    """The demo can't be shown; the message says what to do."""


def load_schedules(engine: Engine, path: Path, server: str) -> tuple[int, int]:
    """Set up each row, unless the table already has jobs. Returns (jobs added, jobs there).

    All rows or none: one transaction. Jobs that are there are left alone, but for where their feeds and their hub are
    to be found, since the demo's web server has another port each time.

    Args:
        engine: On a database with the tables of the ready-made assets.
        path: A CSV as `examples/README.md` describes it.
        server: The web server that the rows are to name, such as `http://127.0.0.1:8000`.

    Raises:
        DemoError: The file is missing or has no such columns.
    """
    with transaction(engine) as connection:
        there = connection.execute(text("SELECT count(*) FROM cronless.scheduled_job")).scalar_one()
        if there:
            for statement in _MOVED.split(";")[:-1]:
                connection.execute(text(statement), {"before": _SERVER, "server": server})
            return 0, there
        loading = _Loading(connection, server)
        # Users follow the accounts that are there.
        rows = sorted(_rows(path), key=lambda row: row["job_type"] != "account_research")
        for row in rows:
            loading.add(row)
    return len(rows), len(rows)


class _Loading:
    def __init__(self, connection: Connection, server: str) -> None:
        self._connection, self._server = connection, server
        self._accounts: dict[str, list[UUID]] = {}
        self._users: Counter[str] = Counter()

    def add(self, row: Mapping[str, str]) -> None:
        if row["job_type"] == "webhook_renewal":
            # Not by the row's own schedule: when to renew is the hub's to say.
            subscribe(
                self._connection,
                tenant_id=row["tenant"],
                topic=Feed(self._server, row["tenant"], row["name"]).address,
                hub=f"{self._server}{HUB_PATH}",
            )
        elif row["job_type"] == "account_research":
            self._watch(row)
            # As an application does for a new account: its first refresh is now, whatever its schedule says.
            jobs.trigger(self._connection, self._schedule(row, account=row["name"]))
        elif row["job_type"] == "email_digest":
            self._schedule(row, user=str(self._add_user(row)))
        else:
            self._schedule(row)

    def _watch(self, row: Mapping[str, str]) -> None:
        tenant, name = row["tenant"], row["name"]
        feeds = [Feed(self._server, tenant, name)]
        if stable_hash("feeds", tenant, name) % 2:
            feeds.append(Feed(self._server, tenant, f"{name}-blog"))
        sources = [Source("feed", one.address) for one in feeds]
        account = watch(self._connection, tenant_id=tenant, name=name, sources=sources)
        self._accounts.setdefault(tenant, []).append(account)

    def _add_user(self, row: Mapping[str, str]) -> UUID:
        tenant = row["tenant"]
        self._users[tenant] += 1
        user = add_user(
            self._connection,
            tenant_id=tenant,
            email=f"reader-{self._users[tenant]}.{tenant}@example.com",
            name=f"Made-up reader of {tenant}",
            timezone=row["timezone"] or "UTC",
        )
        for account in self._accounts.get(tenant, ()):
            follow(self._connection, user, account)
        return user

    def _schedule(self, row: Mapping[str, str], **payload: Any) -> UUID:
        return jobs.add(
            self._connection,
            tenant_id=row["tenant"],
            job_type=row["job_type"],
            name=row["name"],
            schedule=row["expr"],
            timezone=row["timezone"] or "UTC",
            payload={
                **payload,
                "schedule_from": f"{row['source_repo']}/{row['source_path']}",
                "made_up": "everything but the schedule",
            },
        )


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = _COLUMNS - set(reader.fieldnames or ())
            if missing:
                raise DemoError(f"{path} has no column {', '.join(sorted(missing))}: see examples/README.md")
            return list(reader)
    except FileNotFoundError as error:
        raise DemoError(
            f"the schedules {path} are missing: run the demo from a clone, or name them with --schedules"
        ) from error
