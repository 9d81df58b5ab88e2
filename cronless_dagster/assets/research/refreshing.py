"""Refreshing an account: read its sources, write what is new. The same for a scheduled job and for a backfill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cronless_dagster.assets.research.accounts import load_account
from cronless_dagster.assets.research.reading import Read, Unread
from cronless_dagster.assets.research.storing import store
from cronless_dagster.assets.research.summaries import WEEKS
from cronless_dagster.engine.errors import PermanentFailure, RetryLater
from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.store.database import transaction

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Engine

    from cronless_dagster.assets.research.reading import Reader

_SHOWN = 3


class NothingRead(CronlessError):
    """No source of an account could be read, and another try may find some better."""


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What a refresh came to.

    Attributes:
        started_at: Aware UTC, by the database's clock.
        new: Items that were not there before.
        changed: Items that tell something else than before.
        items: All that the account has.
        unchanged_sources: Those that had nothing to tell.
        failures: The sources that could not be read.
    """

    tenant_id: str
    account: str
    started_at: datetime
    new: int
    changed: int
    items: int
    sources: int
    unchanged_sources: int
    failures: Sequence[Unread]

    def raise_if_nothing_was_read(self) -> None:
        """Raise where every source failed; some are no failure, the others were refreshed.

        Raises:
            RetryLater: All that may pass asked to be left alone for a while.
            NothingRead: Some may be better at the next try.
            PermanentFailure: None will.
        """
        if len(self.failures) < self.sources:
            return
        message = self.failures_text()
        passing = [one for one in self.failures if one.may_pass]
        if not passing:
            raise PermanentFailure(message)
        waits = [one.after for one in passing if one.after is not None]
        if len(waits) == len(passing):
            raise RetryLater(message, after=min(waits))
        raise NothingRead(message)

    def failures_text(self) -> str:
        """Say in a sentence which sources failed and why."""
        shown = "; ".join(one.error for one in self.failures[:_SHOWN])
        more = len(self.failures) - _SHOWN
        others = f"; and {more} more" if more > 0 else ""
        return f"{len(self.failures)} of {self.sources} sources failed: {shown}{others}"


def refresh(engine: Engine, reader: Reader, tenant_id: str, name: str, *, weeks: int = WEEKS) -> Refreshed:
    """Refresh an account and its summary.

    Sources are read outside of any transaction; what they hold is written in one short one, together with what the next
    conditional requests say: after a crash in between, the next refresh finds all of it again. Repeated, it changes
    nothing.

    Args:
        engine: The store's engine, whose clock tells the time.
        reader: What sources are read with.
        tenant_id: Whose account.
        name: Which account.
        weeks: How many ISO weeks its summary counts, the present one included.

    Raises:
        AccountError: There is no such account, or it has no source.
    """
    with transaction(engine) as connection:
        account = load_account(connection, tenant_id, name)
    answers = [reader.read(source, account.read_at) for source in account.sources]
    with transaction(engine) as connection:
        new, changed, items = store(connection, account, answers, weeks)
    return Refreshed(
        tenant_id=tenant_id,
        account=name,
        started_at=account.read_at,
        new=new,
        changed=changed,
        items=items,
        sources=len(account.sources),
        unchanged_sources=sum(isinstance(one, Read) and one.items is None for one in answers),
        failures=[one for one in answers if isinstance(one, Unread)],
    )
