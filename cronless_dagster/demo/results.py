"""What the demo's jobs came to, as its last words have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Engine, text

from cronless_dagster.demo.screen import near
from cronless_dagster.store.database import transaction

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_RESEARCH = text(
    "SELECT count(DISTINCT tenant_id) AS tenants, count(*) AS accounts, coalesce(sum(items), 0) AS items"
    " FROM cronless_assets.account_summary JOIN cronless_assets.account ON account.id = account_id"
)
_WEBHOOKS = text(
    "SELECT count(*) AS there, count(*) FILTER (WHERE expires_at > cronless.clock_now()) AS active"
    " FROM cronless_assets.subscription"
)


def results(engine: Engine, maildir: Path) -> Iterator[str]:
    """Yield a sentence for each of the demo's job types, over all demos on the same data."""
    with transaction(engine) as connection:
        research = connection.execute(_RESEARCH).one()
        webhooks = connection.execute(_WEBHOOKS).one()
    yield (
        f"research: {research.items:,} made-up items of {research.accounts:,} accounts,"
        f" whose {research.tenants:,} tenants are partitions of the asset account_research"
    )
    mails = sum(1 for folder in ("new", "cur") for _ in maildir.glob(f"{folder}/*"))
    if mails:
        yield f"digests: {mails:,} made-up mails in {near(maildir)}, a Maildir for any mail reader; none was sent"
    else:
        yield "digests: no mails yet, since nobody who had one due had news"
    yield f"webhooks: {webhooks.active:,} of {webhooks.there:,} are active"
