# ruff: noqa: INP001 - a module of its own, on PYTHONPATH in the image
"""The job types of this deployment, named by CRONLESS_JOB_TYPES: put your own here.

One of each route: research runs in Dagster, digests go through RabbitMQ to the workers.
"""

from __future__ import annotations

from cronless_dagster import JobTypes
from cronless_dagster.assets.digests import email_digest
from cronless_dagster.assets.research import account_research

job_types = JobTypes((account_research(), email_digest(route="queue")))
