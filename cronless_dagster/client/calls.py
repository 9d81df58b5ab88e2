"""The calls of a minute: a function of the configuration and the minute, and of nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from .config import Config
    from .parts import Part


@dataclass(frozen=True, slots=True)
class Call:
    """One call to make.

    Attributes:
        target: The target's name in the configuration.
        check: The check's name.
        part: The ids that are asked about.
    """

    target: str
    check: str
    part: Part

    @property
    def parameter(self) -> tuple[str, str]:
        """`("prefix", "b")` or `("range", "0-7")`."""
        return self.part.parameter()

    @property
    def query(self) -> str:
        """The call's query: `prefix=b` or `range=0-7`."""
        return "=".join(self.parameter)


def calls_of(config: Config, minute: datetime) -> tuple[Call, ...]:
    """Return the calls of a minute: each group of each check whose turn it is, at each target.

    Args:
        config: As it was read.
        minute: Any instant of the minute, aware.

    Raises:
        ClientError: The instant says no offset.
    """
    return tuple(
        Call(target.name, check.name, part)
        for check in config.checks
        for part in check.window.groups_at(minute)
        for target in config.called
    )
