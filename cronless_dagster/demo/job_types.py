"""The demo's job types: the ready-made ones, as they are.

Two of them take the queue route where there is a broker, and else the run route as the third does, whose tenants are
partitions of its asset.
"""

from __future__ import annotations

from cronless_dagster.assets.digests import email_digest
from cronless_dagster.assets.research import account_research
from cronless_dagster.assets.webhooks import webhook_renewal
from cronless_dagster.engine.job_types import JobTypes

job_types = JobTypes((account_research(), email_digest(route="queue"), webhook_renewal(route="queue")))
