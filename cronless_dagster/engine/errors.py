"""What can go wrong with job types and with runs of claims."""

from __future__ import annotations

from cronless_dagster.scheduling.errors import CronlessError


class JobTypeError(CronlessError):
    """A job type that can't be declared as asked, or a module that declares none."""


class UnknownJobType(CronlessError):
    """No running code declares this job type."""


class PermanentFailure(Exception):
    """Raised by a handler: this occurrence failed and another try is known to be useless."""
