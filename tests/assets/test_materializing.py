"""Many materializations of one run: all of them, in few writes, and in the public way if Dagster changes."""

# No `from __future__ import annotations`: Dagster reads the annotations of a body as classes, not as texts.

import os
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from cronless_dagster.assets import materializing
from cronless_dagster.assets.materializing import BATCH_SIZE_VARIABLE, batched_event, log_materializations

KEY = dg.AssetKey("many")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A Dagster instance in memory."""
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def run(instance: dg.DagsterInstance, number: int) -> None:
    """Materialize that many partitions in one run."""

    @dg.multi_asset(
        specs=[dg.AssetSpec(KEY, skippable=True)],
        partitions_def=dg.DynamicPartitionsDefinition(name="tenants"),
    )
    def many(context: dg.AssetExecutionContext) -> Iterator[Any]:
        log_materializations(
            context,
            [
                dg.AssetMaterialization(KEY, partition=f"p{one}", metadata={"number": one})
                for one in range(number)
            ],
        )
        # A generator that yields nothing, or Dagster would add a materialization of its own.
        yield from ()

    assert dg.materialize([many], instance=instance, partition_key=None).success


def stored(instance: dg.DagsterInstance) -> dict[str | None, Any]:
    """Return the number that each partition was materialized with."""
    records = instance.fetch_materializations(KEY, limit=10_000).records
    found = {
        record.partition_key: record.asset_materialization.metadata["number"].value  # type: ignore[union-attr]
        for record in records
    }
    assert len(found) == len(records)
    return found


@pytest.fixture
def writes(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the events of each write that holds several."""
    sizes: list[int] = []
    storage = instance.event_log_storage
    whole = storage.store_event_batch

    def count(events: Any) -> None:
        sizes.append(len(events))
        whole(events)

    monkeypatch.setattr(storage, "store_event_batch", count)
    return sizes


def test_they_are_written_together(instance: dg.DagsterInstance, writes: list[int]) -> None:
    """Fails when Dagster's private way isn't as we know it any more: then it is to be looked at anew."""
    assert batched_event() is not None
    run(instance, 1_203)
    assert writes == [500, 500, 203]
    assert stored(instance) == {f"p{number}": number for number in range(1_203)}


def test_none_and_one(instance: dg.DagsterInstance, writes: list[int]) -> None:
    """The ends of the range."""
    run(instance, 0)
    assert instance.fetch_materializations(KEY, limit=1).records == []
    run(instance, 1)
    assert stored(instance) == {"p0": 0}


def test_without_the_private_way_they_are_written_one_by_one(
    instance: dg.DagsterInstance, writes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow, and right."""
    monkeypatch.setattr(materializing, "batched_event", lambda: None)
    run(instance, 7)
    assert writes == []
    assert len(stored(instance)) == 7


def test_another_signature_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is recorded by it."""
    from dagster._core.events import DagsterEvent

    monkeypatch.setattr(DagsterEvent, "asset_materialization", staticmethod(print))
    assert batched_event() is None


@pytest.mark.parametrize("before", [None, "0", "20"])
def test_the_environment_is_left_as_it_was(
    instance: dg.DagsterInstance, writes: list[int], monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    """A size that the deployment sets holds."""
    monkeypatch.delenv(BATCH_SIZE_VARIABLE, raising=False)
    if before is not None:
        monkeypatch.setenv(BATCH_SIZE_VARIABLE, before)
    run(instance, 40)
    assert os.environ.get(BATCH_SIZE_VARIABLE) == before
    assert writes == ([20, 20] if before == "20" else [40])
