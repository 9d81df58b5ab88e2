"""The queue route of a tick: how the queues stand, and publishing what is claimed, a page at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from sqlalchemy.exc import SQLAlchemyError

from cronless_dagster.engine.queue_rescue import carry_out_queued, decide_queued, rescue_lapsed
from cronless_dagster.engine.report import first_line
from cronless_dagster.rabbitmq.confirms import Delivery
from cronless_dagster.rabbitmq.errors import BrokerError, BrokerUnavailable
from cronless_dagster.rabbitmq.messages import JobMessage
from cronless_dagster.rabbitmq.publisher import Published
from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.store import outbox
from cronless_dagster.store.claims import open_claims
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction
from cronless_dagster.store.declarations import forgotten_types
from cronless_dagster.store.errors import DatabaseNotMigrated, DatabaseUnavailable
from cronless_dagster.store.progress import read_one, write_progress
from cronless_dagster.telemetry.events import event
from cronless_dagster.telemetry.tracing import span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from sqlalchemy import Engine

    from cronless_dagster.engine.job_types import JobTypes
    from cronless_dagster.engine.report import TickReport
    from cronless_dagster.rabbitmq.topology import QueueDepth
    from cronless_dagster.scheduling.shards import IdRange
    from cronless_dagster.store.claims import Claim

logger = logging.getLogger(__name__)

PAGE_SIZE = 2_000
# A dispatcher that hasn't come further with a claim for so long has died; a page takes less.
HAND_OVER_PATIENCE = timedelta(seconds=30)
# The broker answers, and it is this queue that takes nothing: it is full, or gone.
_OF_ONE_QUEUE = (Delivery.NACKED, Delivery.UNROUTABLE)


class Publishing(Protocol):
    """An open connection to the broker, for the length of a tick."""

    def declare(self, job_types: Sequence[str]) -> None:
        """Make the queues of these job types, where they are missing."""

    def depths(self, job_types: Sequence[str]) -> Mapping[str, QueueDepth]:
        """Return how many messages wait in each queue, and how many consumers it has."""

    def publish(self, job_type: str, messages: Sequence[JobMessage]) -> Sequence[Published]:
        """Publish, and return what became of each message, in their order, within a bounded time."""


Queue = Callable[[], AbstractContextManager[Publishing]]
"""Connects to the broker; entering it raises BrokerError where it can't be reached."""


class QueueClaims:
    """Open claims of the queue route; without a look at the queues only those of types that have left it here."""

    def __init__(
        self,
        engine: Engine,
        job_types: JobTypes,
        report: TickReport,
        now: datetime | None,
        ids: IdRange,
        more: Callable[[], bool],
    ) -> None:
        """Prepare; `more` says whether the tick has time for another claim."""
        self._engine, self._job_types = engine, job_types
        self._report, self._now, self._ids, self._more = report, now, ids, more
        self._names = [one.name for one in job_types if one.route == "queue"]
        self._empty_since: dict[str, datetime] = {}
        self._looked = False

    def reconcile(self) -> None:
        """Rescue what was lost on its way to a worker, and what a worker died with."""
        with transaction(self._engine) as connection:
            at = current_time(connection, self._now)
            claims = {claim.id: claim for claim in self._mine(open_claims(connection))}
            held = outbox.queued_claims(connection, at) if claims else {}
            unknown = {claim.job_type for claim in claims.values() if claim.job_type not in self._job_types}
            forgotten = forgotten_types(connection, unknown, at)
        for claim_id, one in held.items():
            claim = claims.get(claim_id)
            if claim is None or (claim.job_type in unknown and claim.job_type not in forgotten):
                continue
            if claim.job_type in self._names and not self._looked:
                continue
            if not self._more():
                return
            try:
                self._rescue(claim, one, at)
            except (CronlessError, SQLAlchemyError) as error:
                # One claim that can't be mended must not keep the others from their rescue.
                event(logger, "claim.not_reconciled", logging.ERROR, exc_info=True, claim=claim_id)
                self._report.errors.append(f"claim {claim_id}: {first_line(error)}")

    def _rescue(self, claim: Claim, held: outbox.QueuedClaim, at: datetime) -> None:
        happened = []
        if held.lapsed:
            happened.append(rescue_lapsed(self._engine, claim, held.lapsed, self._now))
        served = claim.job_type in self._names
        action = decide_queued(claim, held, self._empty_since.get(claim.job_type), at, served=served)
        if action != "keep":
            happened.append(carry_out_queued(self._engine, claim, action, self._now))
        for what in happened:
            if what is not None:
                self._report.count(what)

    def _mine(self, claims: Sequence[Claim]) -> list[Claim]:
        return [claim for claim in claims if claim.route == "queue" and self._ids.contains(claim.id_low)]


class QueueRoute(QueueClaims):
    """One tick's way to the queues.

    Attributes:
        usable: The broker answers, and the tick has time for more.
        doubtful: Job types whose messages had no answer at the last tick. They come last: a queue without a majority
            confirms nothing, and whoever waits for it in vain has no time left for the others.
    """

    def __init__(
        self,
        engine: Engine,
        job_types: JobTypes,
        publishing: Publishing,
        report: TickReport,
        now: datetime | None,
        ids: IdRange,
        more: Callable[[], bool],
        doubtful: Sequence[str] = (),
    ) -> None:
        """Prepare; `more` says whether the tick has time for another page."""
        super().__init__(engine, job_types, report, now, ids, more)
        self._publishing = publishing
        self._refusing: set[str] = set()
        self.doubtful = [name for name in doubtful if name in self._names]
        self._untried = list(self.doubtful)
        self.usable = False

    def look(self) -> None:
        """Declare the queues and see how they stand, before this tick adds to them.

        Since when a queue has been empty is kept between ticks, and written only when that changes.

        Raises:
            BrokerError: The broker can't say.
        """
        self._declare()
        depths = self._publishing.depths([name for name in self._names if name not in self._refusing])
        self._report.queues.update(depths)
        with transaction(self._engine) as connection:
            at = current_time(connection, self._now)
            for name in self._names:
                if name not in depths:
                    continue
                known = read_one(connection, _key(name))
                since = datetime.fromisoformat(known) if known is not None else None
                if (depths[name].messages == 0) != (since is not None):
                    since = at if depths[name].messages == 0 else None
                    write_progress(connection, _key(name), since and since.isoformat(), at)
                if since is not None:
                    self._empty_since[name] = since
        self._looked = self.usable = True

    def _declare(self) -> None:
        try:
            self._publishing.declare(self._names)
        except BrokerUnavailable:
            raise
        except BrokerError:
            if len(self._names) == 1:
                raise
            # One queue that can't be used must not keep the others from theirs.
            for name in self._names:
                try:
                    self._publishing.declare([name])
                except BrokerUnavailable:
                    raise
                except BrokerError as error:
                    self._refusing.add(name)
                    self._report.errors.append(f"{name}: {error}")

    def publish_waiting(self, more: Callable[[], bool], only: str | None = None) -> None:
        """Publish what earlier ticks claimed and didn't get confirmed, and what the rescue takes up again.

        For all job types but the doubtful ones, or for one; `more` says whether there is time for another claim.
        """
        with transaction(self._engine) as connection:
            claims = self._mine(open_claims(connection))
        names = [only] if only else [name for name in self._names if name not in self.doubtful]
        for claim in claims:
            if claim.state == "CLAIMED" and claim.job_type in names and self.takes(claim.job_type):
                if not more():
                    return
                self.publish(claim.id, claim.job_type, claim.dispatches, alone=claim.alone)

    def takes(self, job_type: str) -> bool:
        """Tell whether more may be claimed for a queue: all that this tick published to it is confirmed."""
        return self.usable and job_type not in self._refusing

    def publish(self, claim_id: UUID, job_type: str, dispatch: int = 0, *, alone: bool = False) -> None:
        """Publish the messages of a claim that aren't confirmed yet, while there is time and its queue takes them.

        Another dispatcher that is at the same claim is left to it. No transaction is open while messages are on
        their way. A claim that somebody has locked keeps no other from being published.
        """
        try:
            with span("publish", job_type=job_type):
                self._publish(claim_id, job_type, dispatch, alone=alone)
        except (DatabaseUnavailable, DatabaseNotMigrated):
            raise
        except (CronlessError, SQLAlchemyError) as error:
            event(logger, "claim.not_published", logging.ERROR, exc_info=True, claim=claim_id)
            self._report.errors.append(f"claim {claim_id}: {first_line(error)}")

    def _publish(self, claim_id: UUID, job_type: str, dispatch: int, *, alone: bool) -> None:
        with transaction(self._engine) as connection:
            at = current_time(connection, self._now)
            last = outbox.take_outgoing(connection, claim_id, dispatch, at, HAND_OVER_PATIENCE)
            page = [] if last is None else outbox.outgoing(connection, claim_id, last, PAGE_SIZE)
        if last is None:
            return
        while page:
            messages = [
                JobMessage(one.job_id, claim_id, job_type, one.tenant_id, one.scheduled_for, alone)
                for one in page
            ]
            self.usable = self.usable and self._more()
            if not self.usable or not self._confirmed(job_type, messages):
                with transaction(self._engine) as connection:
                    outbox.leave_outgoing(connection, claim_id, dispatch)
                return
            if len(page) < PAGE_SIZE:
                break
            last = page[-1].job_id
            with transaction(self._engine) as connection:
                at = current_time(connection, self._now)
                if not outbox.note_confirmed(connection, claim_id, dispatch, last, at):
                    return
                page = outbox.outgoing(connection, claim_id, last, PAGE_SIZE)
        with transaction(self._engine) as connection:
            outbox.mark_dispatched(connection, claim_id, dispatch, current_time(connection, self._now))

    def _confirmed(self, job_type: str, messages: Sequence[JobMessage]) -> bool:
        self._untried = [name for name in self._untried if name != job_type]
        published = list(self._publishing.publish(job_type, messages))
        lost = [one.message for one in published if one.delivery is Delivery.UNROUTABLE]
        if lost:
            # Just after a broker's restart, or once somebody deleted it, a queue that was declared is missing.
            published = [one for one in published if one.delivery is not Delivery.UNROUTABLE]
            published += self._once_more(job_type, lost)
        self._count(job_type, published)
        for one in published:
            if one.delivery is Delivery.INVALID:
                self._refuse(one)
        unsure = [one for one in published if one.delivery not in (Delivery.STORED, Delivery.INVALID)]
        if unsure:
            self._refusing.add(job_type)
            self.usable = all(one.delivery in _OF_ONE_QUEUE for one in unsure)
            if not self.usable:
                # In this order, so that each of them has its turn although others stay silent.
                self._report.unconfirmed = [*self._untried, job_type]
            self._report.errors.append(
                f"{job_type}: {len(unsure):,} of {len(published):,} messages are not confirmed and are published"
                f" again ({unsure[0].delivery}: {unsure[0].error})"
            )
        return not unsure

    def _once_more(self, job_type: str, lost: Sequence[JobMessage]) -> Sequence[Published]:
        try:
            self._publishing.declare([job_type])
        except BrokerError as error:
            what = Delivery.NOT_SENT if isinstance(error, BrokerUnavailable) else Delivery.UNROUTABLE
            return [Published(message, what, str(error)) for message in lost]
        return self._publishing.publish(job_type, lost)

    def _count(self, job_type: str, published: Sequence[Published]) -> None:
        stored = sum(one.delivery is Delivery.STORED for one in published)
        if stored:
            self._report.published[job_type] = self._report.published.get(job_type, 0) + stored

    def _refuse(self, one: Published) -> None:
        why = f"its message can't be written: {one.error}"
        with transaction(self._engine) as connection:
            outbox.refuse_outgoing(connection, one.message.token, one.message.job_id, why)


def _key(job_type: str) -> str:
    return f"queue:{job_type}"
