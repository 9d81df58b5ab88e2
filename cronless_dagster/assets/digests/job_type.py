"""The job type of e-mail digests. It imports no Dagster, so workers of the queue route needn't either."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from cronless_dagster.assets.digests.sending import MAILER_KEY, Digests
from cronless_dagster.assets.digests.users import JOB_TYPE
from cronless_dagster.engine.job_types import JobType
from cronless_dagster.scheduling.models import RetryPolicy

if TYPE_CHECKING:
    from pathlib import Path

    from cronless_dagster.assets.digests.mailers import Mailer

FIRST_DATE = "2026-01-01"
# Servers that put an unknown sender off do it for some minutes.
RETRY = RetryPolicy(max_attempts=5, delay=timedelta(minutes=2), max_delay=timedelta(minutes=30))


def email_digest(
    route: Literal["run", "queue"] = "run",
    *,
    name: str = JOB_TYPE,
    mailer: Mailer | None = None,
    public_url: str | None = None,
    max_shown: int = 50,
    overlap: timedelta = timedelta(minutes=10),
    templates: Path | None = None,
    first_date: str = FIRST_DATE,
    fresh_within: timedelta | None = timedelta(hours=26),
    **options: Any,
) -> JobType:
    """Return the job type of digests; its scheduled jobs are made by `users.schedule_digest`.

    Args:
        route: "run" or "queue".
        name: Of the job type and of its asset.
        mailer: Who hands mails over; None: the resource `mailer` in a Dagster run, and otherwise as the settings say,
            CRONLESS_SMTP_URL or a Maildir in CRONLESS_HOME.
        public_url: Where mail readers reach `cronless callbacks`; None: CRONLESS_PUBLIC_URL.
        max_shown: The most items of one digest; the others are counted.
        overlap: How much later than an item's `first_seen_at` its refresh may have committed.
        templates: A directory whose `digest.html.j2` and `digest.txt.j2` are used in place of ours.
        first_date: The asset's first partition, as YYYY-MM-DD.
        fresh_within: The asset is stale when it wasn't materialized for so long; None: it is never said to be.
        options: Of `JobType`: `batch_size`, `concurrency`, `retry`, `limits`, ….

    Raises:
        JobTypeError: An option can't be used.
    """
    digests = Digests(
        mailer=mailer,
        public_url=public_url,
        max_shown=max_shown,
        overlap=overlap,
        templates=templates,
    )

    def asset(job_type: JobType) -> Any:
        from cronless_dagster.assets.digests.asset import build_digest_asset

        return build_digest_asset(job_type, digests, first_date=first_date, fresh_within=fresh_within)

    options = {
        "retry": RETRY,
        "description": "What is new for each user since their last digest, by e-mail.",
        **options,
    }
    return JobType(
        name=name,
        handler=digests.handle,
        takes="job",
        route=route,
        resources={} if mailer is not None else {MAILER_KEY: _mailer_resource},
        asset=asset,
        **options,
    )


def _mailer_resource() -> Any:
    from cronless_dagster.assets.digests.resource import MailerResource

    return MailerResource()
