"""`python -m cronless_dagster.cli`: the same as `cronless`, where no script is installed."""

from __future__ import annotations

from cronless_dagster.cli import main

main()
