"""What a run's refreshes came to, tenant by tenant."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cronless_dagster.assets.research.refreshing import Refreshed

if TYPE_CHECKING:
    from cronless_dagster.store.rows import ClaimedJob

MAX_SHOWN_FAILURES = 50


@dataclass(frozen=True, slots=True)
class Failure:
    """A source that could not be read, or an account that could not be used; then there is no source."""

    account: str
    source: str
    error: str


@dataclass(slots=True)
class TenantTally:
    """The refreshes of one tenant.

    Attributes:
        refreshed: Accounts of which some source was read.
        failed: Accounts of which none was.
        lateness: Seconds from due to start, of each scheduled job.
        failures: The first fifty.
    """

    refreshed: int = 0
    failed: int = 0
    new: int = 0
    changed: int = 0
    unchanged_sources: int = 0
    failed_sources: int = 0
    lateness: list[float] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


class Tally:
    """Counts refreshes; any thread may add."""

    def __init__(self) -> None:
        self.tenants: dict[str, TenantTally] = {}
        self._lock = threading.Lock()

    def of_job(self, job: ClaimedJob, what: Refreshed | str) -> None:
        """Count the refresh of a scheduled job, or the reason why there was none."""
        late = (what.started_at - job.due_at).total_seconds() if isinstance(what, Refreshed) else None
        self.add(job.tenant_id, job.name, what, late)

    def add(self, tenant_id: str, account: str, what: Refreshed | str, late: float | None = None) -> None:
        """Count a refresh, or the reason why there was none."""
        with self._lock:
            tenant = self.tenants.setdefault(tenant_id, TenantTally())
            if late is not None:
                tenant.lateness.append(max(late, 0.0))
            if isinstance(what, str):
                tenant.failed += 1
                failures = [Failure(account, "", what)]
            else:
                failures = [Failure(what.account, one.source.location, one.error) for one in what.failures]
                read = len(failures) < what.sources
                tenant.refreshed += read
                tenant.failed += not read
                tenant.new += what.new
                tenant.changed += what.changed
                tenant.unchanged_sources += what.unchanged_sources
                tenant.failed_sources += len(failures)
            tenant.failures += failures[: MAX_SHOWN_FAILURES - len(tenant.failures)]
