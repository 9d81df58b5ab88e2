"""What is said about requests that weren't authorised: how many, not what they tried."""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING

from cronless_dagster.telemetry.events import event

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Scope

logger = logging.getLogger(__name__)

_EVERY_SECONDS = 10.0


class Refusals:
    """Counts refused requests, and logs them at most once in ten seconds: a scan must not fill the log.

    Neither a path nor a header is kept: whoever mistypes a secret would find it in the log.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Start at nothing; `clock` returns seconds and never goes back."""
        self._clock = clock
        self._count = 0
        self._said = float("-inf")

    def note(self, scope: Scope) -> None:
        """Count one request."""
        self._count += 1
        now = self._clock()
        if now - self._said >= _EVERY_SECONDS:
            latest = scope["client"][0] if scope.get("client") else None
            event(logger, "check.refused", logging.WARNING, count=self._count, latest_from=latest)
            self._count, self._said = 0, now
