"""The product whose schedules the browser's tests look at: tenants, feeds, a reader of digests, all made up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from cronless_dagster.assets.digests import users
from cronless_dagster.assets.research.accounts import Source, schedule_account
from tests.assets.web import Reply
from tests.dagster.site import eventually
from tests.dagster.support import add_due
from tests.engine.support import far_away

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from uuid import UUID

    from sqlalchemy import Engine

    from tests.assets.web import Request, WebServer

TENANTS = ("alder", "birch", "cedar", "dogwood", "elm")
READER = "reader@example.org"
FIRST_ITEMS = 12
# A day's schedules as they are where everybody chooses the full hour: jobs due in each of the next 24 hours.
WAVES = (
    90,
    60,
    40,
    30,
    40,
    120,
    460,
    840,
    910,
    430,
    160,
    90,
    120,
    210,
    140,
    70,
    60,
    190,
    240,
    130,
    60,
    40,
    30,
    20,
)
ADD_WAVE = text("""
    INSERT INTO cronless.scheduled_job (tenant_id, job_type, name, schedule, next_run_at)
    SELECT 'made-up-' || number % 40,
        CASE number % 4 WHEN 0 THEN 'inbox_sync' ELSE 'usage_report' END,
        'hour ' || :hour || ', ' || number,
        '@every 24h',
        date_trunc('hour', now()) + make_interval(
            hours => :hour, mins => CASE number % 4 WHEN 0 THEN number % 60 WHEN 1 THEN 30 ELSE 0 END)
    FROM generate_series(1, :jobs) AS number
""")


class Product:
    """Its feeds on a web server, its rows in a database, its mails in a directory."""

    def __init__(self, engine: Engine, web: WebServer, maildir: Path) -> None:
        self.engine, self._web, self._maildir = engine, web, maildir
        self._items = dict.fromkeys(TENANTS, FIRST_ITEMS)
        self._began = datetime.now(UTC)
        web.routes["*"] = self._feed

    def publish(self, number: int) -> None:
        """Let each feed have so many more items."""
        for tenant in self._items:
            self._items[tenant] += number

    def start(self) -> None:
        """Add the accounts, due at once, with a reader of one of them; wait for the refreshes."""
        now = datetime.now(UTC)
        with self.engine.begin() as connection:
            for tenant in TENANTS:
                schedule_account(
                    connection,
                    tenant_id=tenant,
                    name="News",
                    sources=[Source("feed", self._web.url(f"/{tenant}.xml"))],
                    schedule=far_away(now),
                    next_run_at=now - timedelta(seconds=2),
                )
            account = connection.scalar(
                text("SELECT id FROM cronless_assets.account WHERE tenant_id = :tenant"),
                {"tenant": TENANTS[0]},
            )
            reader = users.add_user(connection, tenant_id=TENANTS[0], email=READER, name="A made-up reader")
            users.follow(connection, reader, account)
        self.wait_for("account_research", len(TENANTS))
        with self.engine.begin() as connection:
            now = datetime.now(UTC)
            job = users.schedule_digest(connection, reader, next_run_at=now - timedelta(seconds=2))
            # Its next occurrence isn't one of this test's.
            connection.execute(
                text(
                    "UPDATE cronless.scheduled_job SET schedule = :schedule, next_run_at = :at WHERE id = :id"
                ),
                {"schedule": far_away(now), "at": now - timedelta(seconds=2), "id": job},
            )
        self.wait_for("email_digest", 1)

    def wait_for(self, job_type: str, jobs: int) -> None:
        """Wait until so many jobs of a type have ended, and see that all succeeded."""

        def ended() -> dict[str, int]:
            counts = self.select(
                "SELECT outcome, count(*) FROM cronless.job_execution WHERE job_type = :job_type GROUP BY outcome",
                job_type=job_type,
            )
            found = {row[0]: row[1] for row in counts}
            return found if sum(found.values()) >= jobs else {}

        assert eventually(ended, f"the end of {jobs} jobs of {job_type}") == {"success": jobs}

    def add_waves(self) -> None:
        """Add the jobs of many more tenants, as due in the next 24 hours: most at full hours, some spread."""
        with self.engine.begin() as connection:
            for hour, jobs in enumerate(WAVES, start=1):
                connection.execute(ADD_WAVE, {"hour": hour, "jobs": jobs})

    def work(self, jobs: int) -> None:
        """Add so many jobs that are due, and wait until they are done."""
        before = self.select("SELECT count(*) FROM cronless.job_execution WHERE job_type = 'usage_report'")[
            0
        ][0]
        add_due(self.engine, "usage_report", jobs)
        self.wait_for("usage_report", before + jobs)

    def add_unreadable(self) -> UUID:
        """Add a job whose schedule nobody can read, past all checks, and wait until a tick met it; returns its id."""
        with self.engine.begin() as connection:
            job: UUID = connection.execute(
                text(
                    "INSERT INTO cronless.scheduled_job (tenant_id, job_type, name, schedule)"
                    " VALUES (:tenant, 'usage_report', 'unreadable', 'now and then') RETURNING id"
                ),
                {"tenant": TENANTS[-1]},
            ).scalar_one()
        eventually(
            lambda: self.select(
                "SELECT 1 FROM cronless.scheduled_job WHERE id = :id AND status = 'INVALID'", id=job
            ),
            "a tick that finds the schedule unreadable",
        )
        return job

    def plans(self) -> Sequence[Any]:
        """Return all that the schedules of research say, row by row."""
        return self.select(
            "SELECT * FROM cronless.scheduled_job WHERE job_type = 'account_research' ORDER BY tenant_id"
        )

    def items(self) -> dict[str, int]:
        """Count the stored items of each tenant."""
        rows = self.select(
            "SELECT account.tenant_id, count(item.id) FROM cronless_assets.account AS account"
            " LEFT JOIN cronless_assets.item AS item ON item.account_id = account.id GROUP BY 1"
        )
        return {row[0]: row[1] for row in rows}

    def mails(self) -> list[str]:
        """Return all mails that were sent."""
        return [mail.read_text() for mail in sorted((self._maildir / "new").glob("*"))]

    def select(self, query: str, **values: Any) -> Sequence[Any]:
        """Return the rows of a query."""
        with self.engine.connect() as connection:
            return connection.execute(text(query), values).all()

    def _feed(self, request: Request) -> Reply:
        tenant = request.path.strip("/").removesuffix(".xml")
        if tenant not in self._items:
            return Reply(404)
        items = "".join(
            f"<item><guid>{tenant}-{number}</guid><title>Made-up item {number} of {tenant}</title>"
            f"<pubDate>{format_datetime(self._began - timedelta(days=3 * number))}</pubDate></item>"
            for number in range(self._items[tenant])
        )
        body = f'<rss version="2.0"><channel><title>Made-up news of {tenant}</title>{items}</channel></rss>'
        return Reply(body=body.encode(), headers={"Content-Type": "application/rss+xml"})
