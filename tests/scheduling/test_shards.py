from __future__ import annotations

from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.scheduling.shards import FULL, IdRange, ShardError, from_prefix, shard

LAST = UUID("ffffffff-ffff-ffff-ffff-ffffffffffff")


class TestFromPrefix:
    def test_one_digit(self) -> None:
        """One digit is a sixteenth of all ids, both ends included."""
        assert from_prefix("b") == IdRange(
            UUID("b0000000-0000-0000-0000-000000000000"), UUID("bfffffff-ffff-ffff-ffff-ffffffffffff")
        )

    @given(st.uuids(), st.integers(1, 32))
    def test_every_length_agrees_with_the_text(self, some: UUID, length: int) -> None:
        """A range holds exactly the ids whose text begins with the prefix."""
        part = from_prefix(some.hex[:length])
        assert part.contains(some)
        assert part.low.hex == some.hex[:length].ljust(32, "0")
        assert part.high.hex == some.hex[:length].ljust(32, "f")

    def test_a_whole_id_with_dashes(self) -> None:
        """A whole id in its usual form, in either case, is a part of one."""
        one = UUID("b7a3c1d2-0000-4000-8000-00000000000f")
        assert from_prefix(str(one)) == from_prefix(str(one).upper()) == IdRange(one, one)

    @pytest.mark.parametrize("prefix", ["", "-", "g", "0x1", "1_0", " b", "b\n", "٣", "f" * 33, "é" * 5000])
    def test_anything_else_is_refused(self, prefix: str) -> None:
        """What is no prefix is refused with a short message."""
        with pytest.raises(ShardError, match="hexadecimal") as caught:
            from_prefix(prefix)
        assert len(str(caught.value)) < 200


class TestShard:
    @pytest.mark.parametrize("n", [1, 2, 3, 7, 16, 60, 1000])
    def test_parts_cover_everything_once(self, n: int) -> None:
        """Parts follow each other without a hole or an overlap, from the first id to the last."""
        parts = [shard(i, n) for i in range(n)]
        assert (parts[0].low, parts[-1].high) == (FULL.low, FULL.high)
        assert all(left.high.int + 1 == right.low.int for left, right in pairwise(parts))

    @pytest.mark.parametrize("n", [3, 7, 1000])
    def test_parts_are_equal(self, n: int) -> None:
        """Sizes differ by at most one id."""
        sizes = {part.high.int - part.low.int for part in (shard(i, n) for i in range(n))}
        assert max(sizes) - min(sizes) <= 1

    def test_sixteen_parts_are_the_prefixes(self) -> None:
        """Cutting in sixteen gives the same parts as the sixteen digits."""
        assert [shard(i, 16) for i in range(16)] == [from_prefix(digit) for digit in "0123456789abcdef"]

    @pytest.mark.parametrize(("i", "n"), [(0, 0), (0, -1), (-1, 4), (4, 4), (0, 2**128 + 1)])
    def test_parts_that_do_not_exist(self, i: int, n: int) -> None:
        """A part outside the cut is refused."""
        with pytest.raises(ShardError):
            shard(i, n)

    def test_as_many_parts_as_ids(self) -> None:
        """The finest cut has one id in each part."""
        assert shard(2**128 - 1, 2**128) == IdRange(LAST, LAST)


class TestIdRange:
    def test_ends_are_included(self) -> None:
        """Both ends belong to the part, their neighbours don't."""
        part = from_prefix("b")
        assert part.contains(part.low)
        assert part.contains(part.high)
        assert not part.contains(UUID(int=part.low.int - 1))
        assert not part.contains(UUID(int=part.high.int + 1))

    def test_empty_is_refused(self) -> None:
        """A part that could hold no id is a mistake."""
        with pytest.raises(ShardError, match="empty"):
            IdRange(LAST, FULL.low)
        assert issubclass(ShardError, CronlessError)
