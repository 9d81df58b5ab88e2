"""Run one claim in a process of its own, which its jobs may kill.

`python -m tests.dagster.run_one CLAIM EXECUTION`, the database from CRONLESS_DATABASE_URL
"""

from __future__ import annotations

import os
import sys
from uuid import UUID

from cronless_dagster.engine.running import run_claim
from cronless_dagster.store.database import create_store_engine
from tests.dagster.job_types import job_types

if __name__ == "__main__":
    run_claim(
        create_store_engine(os.environ["CRONLESS_DATABASE_URL"]),
        job_types,
        UUID(sys.argv[1]),
        execution_id=UUID(sys.argv[2]),
        run_id=sys.argv[2],
    )
