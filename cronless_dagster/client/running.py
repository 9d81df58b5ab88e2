"""One minute's calls, or each minute's: the only place where the client asks what time it is."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from .calls import calls_of
from .config import load_config
from .credentials import read_credentials
from .sending import send
from .windows import minute_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .config import Config
    from .credentials import Credentials
    from .outcomes import Summary

SELF_VARIABLE = "CRONLESS_CLIENT_SELF"
"""The name of this region's target, in place of `self` in the file: so that one file serves all regions."""
UNANSWERED = 3
"""The exit status where calls failed."""


def read_config(path: str, environ: Mapping[str, str]) -> Config:
    """Read the configuration as this region has it. Raises ClientError where it can't be used."""
    config = load_config(path)
    own = environ.get(SELF_VARIABLE, "").strip()
    return config.seen_from(own) if own else config


class Client:
    """A configuration and who calls: what is needed to make the calls of any minute."""

    def __init__(self, config: Config, credentials: Credentials) -> None:
        """Take both."""
        self.config, self._credentials = config, credentials

    @classmethod
    def from_file(cls, path: str, environ: Mapping[str, str]) -> Client:
        """Read both. Raises ClientError where something can't be used."""
        config = read_config(path, environ)
        return cls(config, read_credentials(config.secrets, environ))

    def call(self, minute: datetime, *, missed: int = 0, seconds: float | None = None) -> Summary:
        """Make the calls of a minute.

        Args:
            minute: Any instant of it, aware.
            missed: How many minutes before it were passed over.
            seconds: How long they may take in all, where that is less than the configuration says.

        Raises:
            ClientError: The instant says no offset, or the configured certificates can't be read.
        """
        calls = calls_of(self.config, minute)
        return send(self.config, self._credentials, minute_of(minute), calls, seconds=seconds, missed=missed)

    def summaries(self) -> Iterator[Summary]:
        """Make the calls of each minute from now on, and give what became of them."""
        for minute, missed in minutes(now, time.sleep):
            yield self.call(minute, missed=missed)


def now() -> datetime:
    """Return the time of this machine's clock, in UTC."""
    return datetime.now(UTC)


def minutes(clock: Callable[[], datetime], wait: Callable[[float], object]) -> Iterator[tuple[datetime, int]]:
    """Give each minute when it has begun, the running one first, and how many were passed over before it.

    A minute that is over isn't made up for: a check looks at the state as it is. Where the clock is set back, minutes
    come again, and calls too many do nothing.

    Args:
        clock: What time it is, aware.
        wait: Passes so many seconds.
    """
    last: datetime | None = None
    while True:
        at = clock()
        minute = minute_of(at)
        if minute == last:
            # In small steps: the clock may be set, or the machine sleep.
            wait(min(1.0, (minute + _MINUTE - at).total_seconds()))
            continue
        yield minute, 0 if last is None else max(0, (minute - last) // _MINUTE - 1)
        last = minute


_MINUTE = timedelta(minutes=1)
