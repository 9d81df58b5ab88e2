"""Parts of the id space: by hexadecimal prefix, or cut into equal ranges."""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import UUID

from cronless_dagster.scheduling.errors import CronlessError

_SPACE = 1 << 128
_HEX = re.compile(r"[0-9a-fA-F]{1,32}")


class ShardError(CronlessError, ValueError):
    """A part of the id space that can't be read, or holds no id."""


@dataclass(frozen=True, slots=True)
class IdRange:
    """The ids from ``low`` to ``high``, both included, in PostgreSQL's order of uuids.

    Both orders are that of the 128-bit number, so the range can be used in SQL as it is.

    Raises:
        ShardError: ``low`` lies behind ``high``.
    """

    low: UUID
    high: UUID

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ShardError(f"The id range {self.low} to {self.high} is empty; give the lower id first.")

    def contains(self, id: UUID) -> bool:  # noqa: A002 - the parameter is the id
        """Tell whether the id lies in this part."""
        return self.low <= id <= self.high


FULL = IdRange(UUID(int=0), UUID(int=_SPACE - 1))
"""All ids."""


def from_prefix(prefix: str) -> IdRange:
    """Return the ids that begin with a hexadecimal prefix.

    Args:
        prefix: 1 to 32 hexadecimal digits, upper or lower case; dashes are passed over, so a whole id in
            its usual form is the part that holds this id alone.

    Raises:
        ShardError: No digits, more than 32, or anything but hexadecimal digits and dashes. An empty prefix
            is refused because it is more often a setting left blank than a wish for all ids.
    """
    digits = prefix.replace("-", "")
    if not _HEX.fullmatch(digits):
        shown = prefix if len(prefix) <= 40 else prefix[:40] + "..."
        raise ShardError(
            f"The id prefix {shown!r} is not 1 to 32 hexadecimal digits; give one such as 'b' or '3f'."
        )
    rest = 4 * (32 - len(digits))
    low = int(digits, 16) << rest
    return IdRange(UUID(int=low), UUID(int=low + (1 << rest) - 1))


def shard(i: int, n: int) -> IdRange:
    """Return part ``i`` (from 0) of ``n`` equal parts; together they hold each id exactly once.

    Sizes differ by at most one id.

    Raises:
        ShardError: ``n`` below 1, or ``i`` outside 0 to ``n - 1``.
    """
    if not 1 <= n <= _SPACE:
        raise ShardError(f"The id space can't be cut into {n} parts; give at least 1.")
    if not 0 <= i < n:
        raise ShardError(f"There is no part {i} of {n}; parts are numbered from 0 to {n - 1}.")
    return IdRange(UUID(int=i * _SPACE // n), UUID(int=(i + 1) * _SPACE // n - 1))
