"""Reading the jobs of a claim, a page at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cronless_dagster.store.rows import ClaimedJob, claimed_job, plain_rows
from cronless_dagster.store.statements import statement

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy import Connection

    from cronless_dagster.scheduling.models import RetryPolicy


def load_page(
    connection: Connection, claim_id: UUID, after: UUID, page_size: int, retry: RetryPolicy
) -> list[ClaimedJob]:
    """Return the claim's unfinished jobs with ids above `after`, at most `page_size`, by id."""
    rows = connection.execute(
        statement("load_claim"), {"claim_id": claim_id, "after_id": after, "page_size": page_size}
    )
    return [claimed_job(row, retry, claim_id) for row in plain_rows(rows)]
