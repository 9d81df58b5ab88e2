"""Dagster's daemon, except that it looks for new backfills every second instead of every thirty.

A backfill takes two such looks, one that launches its run and one that sees it end: a minute of waiting for nothing.
"""

from __future__ import annotations

from dagster._daemon import controller
from dagster._daemon.cli import main

if __name__ == "__main__":
    controller.DEFAULT_DAEMON_INTERVAL_SECONDS = 1
    main()
