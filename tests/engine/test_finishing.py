"""The finisher: one batch on its way, what waits, and the way out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import psycopg
import pytest
from sqlalchemy.exc import OperationalError

from cronless_dagster.engine import finishing
from cronless_dagster.engine.finishing import Finisher, Written
from cronless_dagster.store.errors import ClaimLost, DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from cronless_dagster.store.results import Result

AWAY = DatabaseUnavailable("the database can't be reached")
LOCKED = OperationalError("UPDATE", {}, psycopg.errors.LockNotAvailable("no lock in time"))
ODD = ValueError("a value that no column takes")


def result(number: int) -> Result:
    """Return a stand-in whose job's id is a number."""
    return cast("Result", SimpleNamespace(job=SimpleNamespace(id=number)))


class Table:
    """What was written, refused as the test says."""

    def __init__(self, patience: float = 60.0) -> None:
        """Begin empty, with nothing in the way."""
        self.written: list[int] = []
        self.discarded: list[int] = []
        self.odd: set[int] = set()
        self.held: set[int] = set()
        self.errors: list[BaseException] = []
        self.lost = False
        self.finisher = Finisher(
            self.write,
            self.accept,
            self.discard,
            lost=lambda: self.lost,
            batch_size=4,
            patience=patience,
        )

    def write(self, results: Sequence[Result]) -> Written:
        """Write a batch, or meet what is in the way."""
        ids = [cast("int", one.job.id) for one in results]
        if self.errors:
            raise self.errors.pop(0)
        if self.odd.intersection(ids):
            raise ODD
        held = [one for one in results if one.job.id in self.held]
        self.held.clear()
        return Written(cast("set[UUID]", set(ids) - {cast("int", one.job.id) for one in held}), held)

    def accept(self, results: Sequence[Result], accepted: set[UUID]) -> None:
        """Note what was accepted."""
        self.written += [cast("Any", one.job.id) for one in results if one.job.id in accepted]

    def discard(self, results: Sequence[Result]) -> ClaimLost:
        """Note what met a lost claim."""
        self.discarded += [cast("Any", one.job.id) for one in results]
        return ClaimLost("lost")

    def add(self, count: int) -> None:
        """Hand over results numbered from zero, and begin to write."""
        self.finisher.add([result(number) for number in range(count)])
        self.finisher.catch_up()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr(finishing, "RETRY_SECONDS", 0.01)


class TestKeeping:
    """Results that can't be written now."""

    @pytest.mark.parametrize("error", [AWAY, LOCKED])
    def test_what_passes_is_waited_for(self, error: BaseException) -> None:
        """Nothing is lost or raised while what is in the way may pass."""
        table = Table()
        table.errors = [error] * 3
        table.add(10)
        table.finisher.settle()
        assert sorted(table.written) == list(range(10))

    def test_a_lock_is_waited_for_longer_than_a_database(self) -> None:
        """Beyond the lease a database that is away is an error; locks are waited for while the claim is held."""
        table = Table(patience=0)
        table.errors = [LOCKED] * 5
        table.add(3)
        table.finisher.settle()
        assert sorted(table.written) == [0, 1, 2]
        table.errors = [AWAY] * 5
        table.add(3)
        with pytest.raises(DatabaseUnavailable):
            table.finisher.settle()

    def test_held_rows_follow_their_neighbours(self) -> None:
        """Only the result of the held row waits."""
        table = Table()
        table.held = {1}
        table.add(4)
        table.finisher.settle()
        assert table.written == [0, 2, 3, 1]

    def test_a_claim_that_is_known_to_be_lost_ends_the_waiting(self) -> None:
        """What waits for locks or a database is discarded once the claim is lost."""
        table = Table()
        table.errors = [AWAY] * 1_000
        table.add(6)
        table.lost = True
        with pytest.raises(ClaimLost):
            table.finisher.settle()
        assert sorted(table.discarded) == list(range(6))

    def test_a_refused_batch_discards_all_that_waits(self) -> None:
        """One refusal by the fence speaks for everything that is not yet written."""
        table = Table()
        table.errors = [ClaimLost("lost")]
        with pytest.raises(ClaimLost):
            table.add(9)
        assert sorted(table.discarded) == list(range(9))
        table.finisher.settle()
        assert table.written == []


class TestLeaving:
    """The way out after an error."""

    def test_one_bad_batch_keeps_no_other_from_being_written(self) -> None:
        """All is written but the one result that can't be."""
        table = Table()
        table.odd = {2}
        table.finisher.add([result(number) for number in range(11)])
        with pytest.raises(ValueError, match="no column"):
            table.finisher.settle()
        table.finisher.leave([result(11)])
        assert sorted(table.written) == [0, 1, *range(3, 12)]

    def test_a_batch_that_failed_once_is_tried_again(self) -> None:
        """A failure of the moment loses nothing, not even of a single result."""
        table = Table()
        table.errors = [ODD]
        table.finisher.add([result(0)])
        with pytest.raises(ValueError, match="no column"):
            table.finisher.settle()
        table.finisher.leave()
        assert table.written == [0]

    def test_it_ends_without_a_database(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A database that stays away doesn't hold up a canceled run for long, nor hides why it ended."""
        monkeypatch.setattr(finishing, "LEAVE_SECONDS", 0.2)
        table = Table()
        table.errors = [AWAY] * 10_000
        table.finisher.leave([result(0)])
        assert table.written == []

    def test_a_lost_claim_is_no_error_any_more(self) -> None:
        """What the fence refuses on the way out is counted and nothing else."""
        table = Table()
        table.errors = [ClaimLost("lost")]
        table.finisher.leave([result(0), result(1)])
        assert sorted(table.discarded) == [0, 1]


class TestApart:
    """Going on after a batch that could not be written."""

    def test_only_what_failed_alone_is_given_up(self) -> None:
        """The odd results are answered, their neighbours written, and what waits is written as ever."""
        table = Table()
        table.odd = {1, 2}
        table.finisher.add([result(number) for number in range(9)])
        with pytest.raises(ValueError, match="no column"):
            table.finisher.settle()
        assert sorted(one.job.id for one in table.finisher.apart()) == [1, 2]
        table.finisher.settle()
        assert sorted(table.written) == [0, *range(3, 9)]
        assert table.finisher.unwritten == 0

    def test_a_failure_of_the_moment_gives_nothing_up(self) -> None:
        """A batch is tried once more as it is, also one of a single result."""
        table = Table()
        table.errors = [ODD]
        table.finisher.add([result(number) for number in range(1)])
        with pytest.raises(ValueError, match="no column"):
            table.finisher.settle()
        assert table.finisher.apart() == []
        assert table.written == [0]

    def test_what_may_pass_waits(self) -> None:
        """A database that goes away meanwhile gives nothing up either."""
        table = Table()
        table.errors = [ODD, AWAY]
        table.finisher.add([result(number) for number in range(3)])
        with pytest.raises(ValueError, match="no column"):
            table.finisher.settle()
        assert table.finisher.apart() == []
        assert table.finisher.unwritten == 3
        table.finisher.settle()
        assert table.written == [0, 1, 2]
