"""What can go wrong with job types and with runs of claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cronless_dagster.scheduling.errors import CronlessError

if TYPE_CHECKING:
    from datetime import timedelta


class JobTypeError(CronlessError):
    """A job type that can't be declared as asked, or a module that declares none."""


class UnknownJobType(CronlessError):
    """No running code declares this job type."""


class PermanentFailure(Exception):
    """Raised by a handler: this occurrence failed and another try is known to be useless."""


class RetryLater(Exception):
    """Raised by a handler: this try failed, and the next may come no sooner than `after` from now."""

    def __init__(self, message: str, after: timedelta) -> None:
        super().__init__(message)
        self.after = after
