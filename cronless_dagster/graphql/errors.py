"""What goes wrong between this process and Dagster's web server."""

from __future__ import annotations

from cronless_dagster.scheduling.errors import CronlessError


class DagsterUnavailable(CronlessError):
    """Dagster's web server gave no answer of its own.

    Attributes:
        sent: Whether the question may have reached it all the same.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class DagsterRefused(CronlessError):
    """Dagster says no, before it has done anything."""


class DagsterFailed(CronlessError):
    """Dagster's answer is an error, which says nothing of what was done before it."""
