"""How often one caller may call: a token bucket."""

from __future__ import annotations

import math
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

BURST_SECONDS = 10
"""A client's calls come all at once, at the full minute: a bucket holds what so many seconds refill."""


# Whoever has waited as long as told is not to be sent away by the last digit of a sum.
_ROUNDING = 1e-6


class Rate:
    """Lets so many calls a second through on average, and ten seconds' worth at once.

    It belongs to one event loop, and to one node: two nodes let twice as many through.
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = monotonic) -> None:
        """Start with a full bucket; `clock` returns seconds and never goes back."""
        self._per_second = per_second
        self._most = max(1.0, per_second * BURST_SECONDS)
        self._left = self._most
        self._clock = clock
        self._at = clock()

    def wait(self) -> int:
        """Take one call: 0, or the whole seconds after which there is room for it, and nothing was taken."""
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left >= 1 - _ROUNDING:
            self._left = max(0.0, self._left - 1)
            return 0
        return math.ceil((1 - self._left) / self._per_second)
