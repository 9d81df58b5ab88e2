"""What became of the calls of a minute."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime

    from .calls import Call
    from .parts import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one call.

    Attributes:
        call: The call.
        answered: The check was carried out, and said so.
        status: The last answer's HTTP status; None: there was none.
        acted: What the check did, as it counts.
        tries: How often the call was made.
        seconds: From the first try to the end of the last, waits included.
        problem: Why it isn't answered, in a few words; empty where it is.
    """

    call: Call
    answered: bool
    status: int | None = None
    acted: int = 0
    tries: int = 0
    seconds: float = 0.0
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return it for a log line."""
        name, value = self.call.parameter
        return {
            "target": self.call.target,
            "check": self.call.check,
            name: value,
            "status": self.status,
            "tries": self.tries,
            "seconds": round(self.seconds, 3),
            "problem": self.problem,
        }


@dataclass(frozen=True)
class Summary:
    """What became of a minute's calls.

    Attributes:
        minute: Its beginning, UTC.
        outcomes: In the order of the calls.
        seconds: How long they took together.
        missed: How many minutes before it were passed over, since the client slept or was busy. A check looks at
            the state as it is, so what was due in them is found at each group's next turn.
    """

    minute: datetime
    outcomes: tuple[Outcome, ...]
    seconds: float
    missed: int = 0

    @cached_property
    def failed(self) -> tuple[Outcome, ...]:
        """The calls that weren't answered."""
        return tuple(one for one in self.outcomes if not one.answered)

    @cached_property
    def lost(self) -> tuple[tuple[str, Part], ...]:
        """The checks and groups that no target answered."""
        answered = {(one.call.check, one.call.part) for one in self.outcomes if one.answered}
        asked = dict.fromkeys((one.call.check, one.call.part) for one in self.failed)
        return tuple(one for one in asked if one not in answered)

    @property
    def acted(self) -> int:
        """What the checks did, in all."""
        return sum(one.acted for one in self.outcomes)

    def as_dict(self) -> dict[str, Any]:
        """Return it for a log line: counts, and each call that failed."""
        return {
            "minute": self.minute.isoformat().replace("+00:00", "Z"),
            "calls": len(self.outcomes),
            "answered": len(self.outcomes) - len(self.failed),
            "failed": len(self.failed),
            "lost": len(self.lost),
            "acted": self.acted,
            "missed_minutes": self.missed,
            "seconds": round(self.seconds, 3),
            "failures": [one.as_dict() for one in self.failed],
        }
