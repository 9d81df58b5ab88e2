"""A node that is killed between taking a hand-over and asking for its run.

`python -m tests.graphql.dying_node WEB_SERVER`, the database from CRONLESS_DATABASE_URL
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from cronless_dagster.engine.tick import tick
from cronless_dagster.graphql.client import DagsterGraphQL
from cronless_dagster.store.database import create_store_engine
from tests.dagster.job_types import job_types

if TYPE_CHECKING:
    from cronless_dagster.engine.job_types import JobType
    from cronless_dagster.engine.runs import HandOver


class Dying(DagsterGraphQL):
    """Dies in place of asking."""

    def launch(self, one: HandOver, job_type: JobType) -> str:
        """Die as the kernel would have it."""
        os.kill(os.getpid(), signal.SIGKILL)
        return super().launch(one, job_type)


if __name__ == "__main__":
    tick(create_store_engine(os.environ["CRONLESS_DATABASE_URL"]), job_types, launcher=Dying(sys.argv[1]))
