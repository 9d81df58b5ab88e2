"""A hub, the served callbacks and the job type that brings them together."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from cronless_dagster.assets.callbacks import callback_app
from cronless_dagster.assets.fetching import Fetcher, FetchLimits
from cronless_dagster.assets.webhooks import subscribe, webhook_renewal
from cronless_dagster.engine.job_types import JobTypes
from cronless_dagster.engine.local import tick_and_run
from tests.assets.webhooks.hub import TOPIC, Hub, served
from tests.conftest import VIRTUAL_NOW

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from sqlalchemy import Engine, Row

    from cronless_dagster.assets.webhooks.content import Content
    from cronless_dagster.engine.running import ClaimReport


@dataclass
class Site:
    """A subscriber whose clock is virtual, and its hub.

    Attributes:
        heard: What `on_content` was called with.
    """

    engine: Engine
    hub: Hub
    public_url: str
    fetcher: Fetcher
    heard: list[Content]
    now: datetime = VIRTUAL_NOW
    options: dict[str, Any] = field(default_factory=dict)

    def job_types(self) -> JobTypes:
        """Return the job type, with this site's options."""
        made = webhook_renewal(fetcher=lambda: self.fetcher, public_url=self.public_url, **self.options)
        return JobTypes((made,))

    def subscribe(self, *, hub: str | None = None, tenant_id: str = "acme") -> UUID:
        """Subscribe to the topic; returns the id."""
        with self.engine.begin() as connection:
            return subscribe(connection, tenant_id=tenant_id, topic=TOPIC, hub=hub or self.hub.url)

    def tick(self, **later: float) -> list[ClaimReport]:
        """Move the clock on, tick and run what is due."""
        self.now += timedelta(**later)
        return tick_and_run(self.engine, self.job_types(), now=self.now)[1]

    def subscription(self) -> Row[Any]:
        """Return the one subscription's row."""
        with self.engine.connect() as connection:
            return connection.execute(text("SELECT * FROM cronless_assets.subscription")).one()

    def job(self) -> Row[Any] | None:
        """Return the one job's row; None where it is gone."""
        with self.engine.connect() as connection:
            return connection.execute(text("SELECT * FROM cronless.scheduled_job")).one_or_none()

    def callback(self) -> str:
        """Return the callback's address."""
        return f"{self.public_url}/websub/{self.subscription().id}"

    def hear(self, count: int) -> list[Content]:
        """Return what `on_content` was called with, once it was so often: it is after the hub has its answer."""
        hang_guard = time.monotonic() + 60
        while len(self.heard) < count and time.monotonic() < hang_guard:
            time.sleep(0.01)
        assert len(self.heard) == count
        return self.heard

    def error(self) -> str:
        """Return the job's last error."""
        job = self.job()
        assert job is not None
        assert job.last_error is not None
        return str(job.last_error)

    def due_in(self) -> timedelta:
        """Return how long it is until the job's next run."""
        job = self.job()
        assert job is not None
        assert job.status == "PENDING"
        return job.next_run_at - self.now  # type: ignore[no-any-return]


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub that grants ten days, when it is told to."""
    with Hub() as made:
        yield made


@pytest.fixture
def site(virtual_assets_engine: Engine, hub: Hub) -> Iterator[Site]:
    """A subscriber with its callbacks served."""
    heard: list[Content] = []
    app = callback_app(virtual_assets_engine, on_content=heard.append, most_bytes=100_000)
    with (
        served(app) as url,
        Fetcher(FetchLimits(networks=("127.0.0.0/8",), seconds=5.0)) as fetcher,
    ):
        yield Site(virtual_assets_engine, hub, url, fetcher, heard)
