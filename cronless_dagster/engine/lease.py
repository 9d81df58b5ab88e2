"""Keeping a claim while its jobs run: a thread that renews the lease at a third of it."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Self

from sqlalchemy.exc import SQLAlchemyError

from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.store.claims import hold_claim
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction
from cronless_dagster.store.errors import ClaimLost
from cronless_dagster.telemetry.events import event

if TYPE_CHECKING:
    from datetime import datetime
    from types import TracebackType
    from uuid import UUID

    from sqlalchemy import Engine

logger = logging.getLogger(__name__)


class Heartbeat:
    """Renews a claim's lease until the block ends; `lost` is set once another holder has taken over.

    A database that is away for a while is no reason to stop: the renewal is tried again, and the finish fence
    decides in the end.
    """

    def __init__(
        self, engine: Engine, claim_id: UUID, execution_id: UUID, lease_seconds: float, now: datetime | None
    ) -> None:
        """Prepare; the thread starts with the block."""
        self._engine, self._claim_id, self._execution_id, self._now = engine, claim_id, execution_id, now
        self._every, self._again = lease_seconds / 3, lease_seconds / 30
        self._stop = threading.Event()
        self.lost = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"lease {claim_id}", daemon=True)

    def __enter__(self) -> Self:
        """Start renewing."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop renewing."""
        self._stop.set()
        self._thread.join(timeout=10)

    def _renew(self) -> None:
        pause = self._every
        while not self._stop.wait(pause):
            pause = self._again
            try:
                with transaction(self._engine) as connection:
                    hold_claim(
                        connection, self._claim_id, self._execution_id, current_time(connection, self._now)
                    )
                pause = self._every
            except ClaimLost as error:
                event(logger, "claim.lost", logging.WARNING, claim=self._claim_id, error=error)
                self.lost.set()
                return
            except (CronlessError, SQLAlchemyError):
                event(logger, "lease.not_renewed", logging.ERROR, exc_info=True, claim=self._claim_id)
