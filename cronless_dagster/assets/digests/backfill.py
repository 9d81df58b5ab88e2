"""The digests of past and coming dates, as a person's backfill looks at them: composed and shown, seldom sent.

Which occurrences there are is told by the ledger and, where it has no row, by the schedules of the digests' jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from sqlalchemy import select

from cronless_dagster.assets.digests.errors import DigestError
from cronless_dagster.assets.digests.ledger import of_dates
from cronless_dagster.assets.digests.news import new_items
from cronless_dagster.assets.digests.tally import outcome_of
from cronless_dagster.assets.digests.users import DigestUser, find_user, find_users
from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.scheduling.models import RetryPolicy
from cronless_dagster.scheduling.occurrences import Occurrences
from cronless_dagster.scheduling.zones import zone
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction
from cronless_dagster.store.rows import planned_job
from cronless_dagster.store.tables import scheduled_job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Engine, Row

    from cronless_dagster.assets.digests.composing import Digest
    from cronless_dagster.assets.digests.mailers import Mailer
    from cronless_dagster.assets.digests.sending import Digests

MAX_SHOWN_USERS = 100
# Clocks are at most 14 hours ahead of UTC and 12 behind it.
_AHEAD, _BEHIND = timedelta(hours=15), timedelta(hours=13)


@dataclass(frozen=True, slots=True)
class Shown:
    """A digest of a date.

    Attributes:
        status: As in the ledger, "sending" called "uncertain"; without a row "missing" or, of an instant that lies
            ahead, "planned"; "unusable": the user or the schedule can't be used, and `error` says why.
        occurrence: The nominal instant, aware UTC; None of a schedule that can't be read.
        items: What it lists or would list, the newest first; None: not looked at.
        digest: As it was or would be; None: not composed, or there is nothing new.
    """

    local_date: date
    tenant_id: str
    user: str
    status: str
    occurrence: datetime | None
    items: tuple[int, ...] | None = None
    digest: Digest | None = None
    error: str | None = None


def digests_of(engine: Engine, digests: Digests, job_type: str, dates: Sequence[date]) -> list[Shown]:
    """Return the digests of these local dates by date, tenant and user; the first hundred of a date are composed."""
    with transaction(engine) as connection:
        now = current_time(connection)
        found = list(_of_ledger(connection, list(dates)))
        known = {(one.user, one.occurrence) for one in found}
        expected = (one for one in _expected(connection, job_type, dates, now))
        found += [one for one in expected if (one.user, one.occurrence) not in known]
        found.sort(key=lambda one: (one.local_date, one.tenant_id, one.user, one.occurrence or now))
        composed: dict[date, int] = {}
        for place, one in enumerate(found):
            composed[one.local_date] = composed.get(one.local_date, 0) + 1
            if composed[one.local_date] <= MAX_SHOWN_USERS:
                found[place] = _composed(connection, digests, one, now)
    return found


def send_missing(
    engine: Engine, digests: Digests, mailer: Mailer, shown: Sequence[Shown], run_id: str
) -> list[Shown]:
    """Send those that are missing or were refused, through the same ledger; return all, with their new status."""
    return [
        _sent(engine, digests, mailer, one, run_id) if one.status in ("missing", "refused") else one
        for one in shown
    ]


def _sent(engine: Engine, digests: Digests, mailer: Mailer, one: Shown, run_id: str) -> Shown:
    if one.occurrence is None:
        return one
    try:
        delivered = digests.deliver(
            engine,
            mailer,
            tenant_id=one.tenant_id,
            user_id=UUID(one.user),
            occurrence=one.occurrence,
            execution=f"{run_id}/{uuid4().hex[:12]}",
        )
    except Exception as error:  # noqa: BLE001 - one user's failure is theirs alone
        return replace(one, status=outcome_of(error), error=str(error))
    return replace(one, status=delivered.status, error=None)


def _of_ledger(connection: Connection, dates: list[date]) -> Iterator[Shown]:
    for row in of_dates(connection, dates):
        yield Shown(
            local_date=row.local_date,
            tenant_id=row.tenant_id,
            user=str(row.user_id),
            status="uncertain" if row.status == "sending" else row.status,
            occurrence=row.occurrence,
            items=row.items,
            error=row.error,
        )


def _expected(connection: Connection, job_type: str, dates: Sequence[date], now: datetime) -> Iterator[Shown]:
    rows = connection.execute(
        select(scheduled_job).where(
            scheduled_job.c.job_type == job_type,
            scheduled_job.c.removed_at.is_(None),
            scheduled_job.c.paused_at.is_(None),
        )
    ).all()
    users = find_users(connection, [_user_in(row) for row in rows])
    for row in rows:
        name = _user_in(row)
        user = users.get(name)
        try:
            if user is None or user.tenant_id != row.tenant_id:
                raise DigestError(f"tenant {row.tenant_id!r} has no user {name}: correct the job's payload")
            if user.unsubscribed_at is None:
                yield from _on_dates(row, user, dates, now)
        except CronlessError as error:
            for day in dates:
                yield Shown(day, row.tenant_id, name, "unusable", None, error=str(error))


def _user_in(row: Row[Any]) -> str:
    named = row.payload.get("user") if isinstance(row.payload, Mapping) else None
    return str(named or row.name)


def _on_dates(row: Row[Any], user: DigestUser, dates: Sequence[date], now: datetime) -> Iterator[Shown]:
    occurrences, tz = Occurrences.of(planned_job(row, RetryPolicy())), zone(user.timezone)
    for day in dates:
        midnight = datetime.combine(day, time(), UTC)
        end = midnight + timedelta(days=1) + _BEHIND
        # What lies before the job was made was nobody's.
        at = occurrences.after(max(midnight - _AHEAD, row.created_at))
        while at is not None and at < end:
            if at.astimezone(tz).date() == day:
                status = "missing" if at <= now else "planned"
                yield Shown(day, row.tenant_id, str(user.id), status, at)
            at = occurrences.after(at)


def _composed(connection: Connection, digests: Digests, one: Shown, now: datetime) -> Shown:
    if one.occurrence is None or one.status == "nothing_new":
        return one
    try:
        user = find_user(connection, UUID(one.user))
        items = one.items if one.status in ("sent", "uncertain") else None
        if items is None:
            found = new_items(connection, user, one.occurrence, until=now, overlap=digests.overlap)
            items = tuple(found)
        digest = digests.compose_for(connection, user, items, one.occurrence) if items else None
    except CronlessError as error:
        return replace(one, error=one.error or str(error))
    return replace(one, items=items, digest=digest)
