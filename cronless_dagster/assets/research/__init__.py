"""Account research: what tenants watch, refreshed by scheduled jobs and by people's backfills.

A plain core (`accounts`, `reading`, `storing`, `refreshing`) that knows no Dagster, and a thin file that does
(`asset`). The names below are loaded when first used: whoever adds accounts needs no Dagster for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cronless_dagster.assets.research.accounts import (
        AccountError,
        Source,
        schedule_account,
        unwatch,
        watch,
    )
    from cronless_dagster.assets.research.job_type import account_research
    from cronless_dagster.assets.research.refreshing import Refreshed, refresh

_HOME_OF = {
    "AccountError": "accounts",
    "Refreshed": "refreshing",
    "Source": "accounts",
    "account_research": "job_type",
    "refresh": "refreshing",
    "schedule_account": "accounts",
    "unwatch": "accounts",
    "watch": "accounts",
}

__all__ = [
    "AccountError",
    "Refreshed",
    "Source",
    "account_research",
    "refresh",
    "schedule_account",
    "unwatch",
    "watch",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module (PEP 562).

    Raises:
        AttributeError: The package has no such public name.
    """
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
