from __future__ import annotations

import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest

from cronless_dagster.scheduling.errors import TimezoneError
from cronless_dagster.scheduling.hashing import stable_hash

ID = UUID("6f1c0f5e-2a4b-4a57-9a52-0d4e0a3f9b11")
INSTANT = datetime(2026, 12, 1, 9, tzinfo=UTC)


def test_value_is_fixed_for_ever() -> None:
    """Jobs keep their minute from release to release, so the value is written down here."""
    assert stable_hash(ID) == 12_510_907_732_506_569_884
    assert stable_hash(ID, INSTANT, "x", b"y") == 6_503_067_271_005_491_809


def test_other_processes_agree() -> None:
    """A process with another hash seed gets the same number, which the built-in hash() would not give."""
    code = f"from cronless_dagster.scheduling.hashing import stable_hash; print(stable_hash({str(ID)!r}))"
    for seed in ("1", "2"):
        answer = subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        )
        assert int(answer.stdout) == stable_hash(str(ID))


def test_parts_are_kept_apart() -> None:
    """The border between two parts counts, and so does their order."""
    assert (
        len({stable_hash("ab", "c"), stable_hash("a", "bc"), stable_hash("c", "ab"), stable_hash("abc")}) == 4
    )


def test_an_instant_counts_not_its_zone() -> None:
    """One instant hashes alike in every zone; a naive one is refused."""
    assert stable_hash(INSTANT) == stable_hash(INSTANT.astimezone(timezone(timedelta(hours=5))))
    with pytest.raises(TimezoneError, match="has no zone"):
        stable_hash(datetime(2026, 12, 1, 9))


def test_spreads_evenly_over_sixty_minutes() -> None:
    """60,000 ids fall on all 60 minutes, none far from its share of 1,000."""
    minutes = Counter(stable_hash(UUID(int=n)) % 60 for n in range(60_000))
    assert len(minutes) == 60
    assert min(minutes.values()) > 850
    assert max(minutes.values()) < 1150
