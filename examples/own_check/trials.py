"""A check of one's own over integer ids: a reminder a day to each customer whose trial is about to end."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text

from cronless_dagster.checks.declaring import Action, Checks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from cronless_dagster.scheduling.shards import IdRange

Trial = tuple[int, "datetime"]

checks = Checks()

_ON_TRIAL = text(
    "SELECT id, trial_ends_at FROM shop.customer"
    " WHERE trial_ends_at > :now AND cronless.place_of(id::text) BETWEEN :low AND :high"
)
_REMIND = text("INSERT INTO shop.mail (customer_id, about) VALUES (:customer, :about)")


def on_trial(connection: Connection, ids: IdRange, now: datetime) -> Sequence[Trial]:
    """Read the customers on a trial in this part of the id space."""
    return [
        (row.id, row.trial_ends_at)
        for row in connection.execute(_ON_TRIAL, {"now": now, "low": ids.low, "high": ids.high})
    ]


def remind(connection: Connection, action: Action) -> None:
    """Put the reminder where the product's mailer finds it, in the transaction that notes the customer as done."""
    connection.execute(_REMIND, {"customer": action.entity, "about": action.payload})


@checks.register("trial-reminders", ids="customers", load=on_trial, carry_out=remind, every=timedelta(days=1))
def trial_reminders(now: datetime, _ids: IdRange, state: Sequence[Trial]) -> Iterator[Action]:
    """Remind those whose trial ends within three days: a function of its arguments, tested by calling it."""
    for customer, ends_at in state:
        if now < ends_at <= now + timedelta(days=3):
            yield Action(customer, window=None, payload=f"your trial ends on {ends_at.date().isoformat()}")
