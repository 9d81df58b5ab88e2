"""Whether the database answers, and when to ask it again."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import RETRY_SECONDS, may_pass, transaction
from cronless_dagster.store.errors import DatabaseUnavailable
from cronless_dagster.telemetry.events import event

if TYPE_CHECKING:
    from sqlalchemy import Engine

logger = logging.getLogger(__name__)


class Outage:
    """Of a database that no job can be started in; told of by the worker's loop, read by any thread."""

    def __init__(self) -> None:
        """Begin with a database that answers."""
        self._since: float | None = None
        self._ask_again_at = 0.0

    @property
    def lasts(self) -> bool:
        """Whether the last question had no answer."""
        return self._since is not None

    @property
    def may_ask(self) -> bool:
        """Whether it is time for a question."""
        return time.monotonic() >= self._ask_again_at

    def note(self, error: Exception) -> None:
        """Note a question without an answer; raises the error if waiting doesn't mend it."""
        if not may_pass(error):
            raise error
        now = time.monotonic()
        self._ask_again_at = now + RETRY_SECONDS
        if self._since is None:
            self._since = now
            event(logger, "database.away", logging.WARNING, error=error)

    def end(self) -> None:
        """Note an answer."""
        if self._since is not None:
            event(logger, "database.back", seconds=round(time.monotonic() - self._since, 1))
            self._since = None

    def ask(self, engine: Engine) -> None:
        """Ask for an answer, if it lasts and it is time to."""
        if not self.lasts or not self.may_ask:
            return
        try:
            with transaction(engine) as connection:
                current_time(connection)
        except (DatabaseUnavailable, SQLAlchemyError) as error:
            self.note(error)
        else:
            self.end()
