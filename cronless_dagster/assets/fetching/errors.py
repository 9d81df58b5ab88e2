"""How a fetch can end without a result; whoever asked decides by the class whether to try again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cronless_dagster.scheduling.errors import CronlessError

if TYPE_CHECKING:
    from datetime import timedelta


class FetchError(CronlessError):
    """A fetch without a result. No message holds a login or the query of an address."""


class FetchFailed(FetchError):
    """It may pass: a time-out, a broken connection, an answer of 5xx."""


class FetchLater(FetchError):
    """The server asked for a pause (429 or 503 with Retry-After), `after` from now."""

    def __init__(self, message: str, after: timedelta) -> None:
        super().__init__(message)
        self.after = after


class FetchRefused(FetchError):
    """It stays so until somebody changes the address, the limits or the server: asking again is useless."""
