"""What a tick says of itself, whoever called it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tests.engine.support import NOON, add, after, nothing, tick, types_of

if TYPE_CHECKING:
    import pytest
    from sqlalchemy import Engine


def test_a_tick_is_one_line(virtual_engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """What it did at level INFO; a tick that found nothing is none but for who looks for it, at level DEBUG."""
    types = types_of(nothing)
    add(virtual_engine)
    with caplog.at_level(logging.DEBUG, "cronless_dagster.engine.observing"):
        tick(virtual_engine, types, now=NOON, route="local")
        tick(virtual_engine, types, now=after(minutes=1), route="local")
    idle, busy = [one for one in caplog.records if one.name == "cronless_dagster.engine.observing"]
    assert (idle.levelno, busy.levelno) == (logging.DEBUG, logging.INFO)
    assert busy.getMessage().startswith(
        "tick.done claimed=1 handed_over=1 published=0 misfired=0 errors=0 seconds="
    )
