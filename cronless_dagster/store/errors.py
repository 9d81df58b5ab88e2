"""What can go wrong with the database, each in one sentence that says what to do."""

from __future__ import annotations

from cronless_dagster.scheduling.errors import CronlessError


class StoreError(CronlessError):
    """The database can't be used as it is."""


class DatabaseUnavailable(StoreError):
    """No connection: the server is down, the address or the password is wrong."""


class DatabaseNotMigrated(StoreError):
    """The schema is missing or older than this code."""


class DatabaseNewer(StoreError):
    """The schema is of a newer version than this code knows."""


class ClockError(StoreError):
    """`now` was given to a database that runs on real time."""


class JobError(CronlessError):
    """A scheduled job can't be written as asked: unknown, claimed, or with a value that can't be used."""


class PayloadError(JobError):
    """A payload that is no JSON object or is over its size limit."""


class ClaimLost(StoreError):
    """The holder no longer owns what it holds: the fencing token or the execution id isn't the current one."""
