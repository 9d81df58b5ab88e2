"""What the tests of the ready-made assets share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sqlalchemy import Engine


@pytest.fixture
def assets_engine(engine: Engine, pg_url: str) -> Engine:
    """An engine on a fresh database that has the ready-made assets' tables too."""
    from cronless_dagster.assets.migrate import upgrade_assets

    upgrade_assets(pg_url)
    return engine


@pytest.fixture
def virtual_assets_engine(assets_engine: Engine) -> Engine:
    """The same, with a clock that stands still at ``VIRTUAL_NOW``."""
    from cronless_dagster.store.clock import make_virtual
    from tests.conftest import VIRTUAL_NOW

    make_virtual(assets_engine, VIRTUAL_NOW)
    return assets_engine
