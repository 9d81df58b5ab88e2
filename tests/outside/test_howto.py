"""What the how-to shows can be used as it stands."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from cronless_dagster.checks.built_in import built_in
from cronless_dagster.client.calls import calls_of
from cronless_dagster.client.config import parse_config
from examples.own_check.trials import checks as trial_checks

HOWTO = Path(__file__).parents[2] / "docs" / "howto_checks.md"


def test_the_clients_configuration() -> None:
    """Its two parts are read by the client, and name checks that are there, in both regions."""
    first, second = (
        block
        for block in re.findall(r"```toml\n(.*?)```", HOWTO.read_text(), re.DOTALL)
        if "[[check]]" in block
    )
    config = parse_config(first + second)
    assert [one.name for one in config.checks] == [*built_in(), *trial_checks]
    calls = calls_of(config, datetime(2026, 12, 1, 9, 15, tzinfo=UTC))
    assert {one.target for one in calls} == {"eu", "us"}
    assert {one.check for one in calls} == {*built_in(), *trial_checks}
