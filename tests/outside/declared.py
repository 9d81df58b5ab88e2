"""The job types that the nodes in processes of their own declare."""

from __future__ import annotations

from tests.outside.support import queue_types

job_types = queue_types("work", "mail", "report")
