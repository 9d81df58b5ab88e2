"""A Dagster component: job types, routes, limits and the tick sensor, declared in `defs.yaml`."""

from __future__ import annotations
