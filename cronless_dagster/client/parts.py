"""Parts of the id space: the 128-bit numbers from `low` to `high`, cut, and written into a call.

The same parts as `cronless_dagster.scheduling.shards` makes; written anew here, since this folder is deployed alone.
"""

from __future__ import annotations

from dataclasses import dataclass

DIGITS = 32
SPACE = 1 << 4 * DIGITS


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """The ids from `low` to `high`, both included, as the numbers that UUIDs are."""

    low: int
    high: int

    def piece(self, i: int, pieces: int) -> Part:
        """Return piece `i` (from 0) of so many; together they hold each id exactly once.

        Their sizes differ by at most one id.
        """
        size = self.high - self.low + 1
        return Part(self.low + i * size // pieces, self.low + (i + 1) * size // pieces - 1)

    def cut(self, pieces: int) -> tuple[Part, ...]:
        """Return all pieces, in order."""
        return tuple(self.piece(i, pieces) for i in range(pieces))

    def parameter(self) -> tuple[str, str]:
        """Return the parameter of a call that names this part, in as few hexadecimal digits as it can be said.

        `("prefix", "b")` where all ids with this beginning are meant, else `("range", "0-7")`: the API fills up
        the first number with zeros and the second with fs.
        """
        low, high = f"{self.low:0{DIGITS}x}", f"{self.high:0{DIGITS}x}"
        first, last = low.rstrip("0"), high.rstrip("f")
        beginning = max(first, last, key=len)
        if beginning and low == beginning.ljust(DIGITS, "0") and high == beginning.ljust(DIGITS, "f"):
            return "prefix", beginning
        return "range", f"{first or '0'}-{last or 'f'}"


FULL = Part(0, SPACE - 1)
"""All ids."""
