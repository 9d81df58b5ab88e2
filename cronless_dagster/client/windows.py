"""Windows: in which minutes a check is called, and for which groups. Functions of the minute, without a clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from .errors import ClientError
from .parts import FULL, Part

EVERY_MINUTE = frozenset(range(60))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """When a check is called, and for which groups of ids.

    Attributes:
        minutes: The minutes of each hour (UTC, 0 to 59) in which it is called at all.
        spread: The number of minutes over which the ids are spread: in each of them another share has its turn, so
            that each id has its turn once in so many minutes. Counted from 1970, not from the hour. 1: all of them
            each time.
        groups: Into how many groups the ids of a minute are cut.
        prefix_length: In place of `groups`: the groups are the prefixes of so many hexadecimal digits; where they
            are spread, each minute has its share of them.
    """

    minutes: frozenset[int] = EVERY_MINUTE
    spread: int = 1
    groups: int = 1
    prefix_length: int | None = None

    def groups_at(self, minute: datetime) -> tuple[Part, ...]:
        """Return the groups whose turn is in this minute, in order; none where it isn't one of the minutes.

        Args:
            minute: Any instant of the minute, aware.

        Raises:
            ClientError: The instant says no offset.
        """
        count = minutes_since_1970(minute)
        # Every offset from UTC in use since 1972 is one of whole minutes, so a minute of UTC is one everywhere.
        if count % 60 not in self.minutes:
            return ()
        turn = count % self.spread
        if self.prefix_length is None:
            return FULL.piece(turn, self.spread).cut(self.groups)
        prefixes = 16**self.prefix_length
        # Rounded up, so that one minute ends where the next begins.
        first, after = (-(-i * prefixes // self.spread) for i in (turn, turn + 1))
        return tuple(FULL.piece(i, prefixes) for i in range(first, after))


def minutes_since_1970(instant: datetime) -> int:
    """Return how many full minutes have passed since 1970 in UTC. Raises ClientError for one without an offset."""
    _require_offset(instant)
    return int((instant - _EPOCH).total_seconds() // 60)


def minute_of(instant: datetime) -> datetime:
    """Return the beginning of the minute of an instant, in UTC. Raises ClientError for one without an offset."""
    _require_offset(instant)
    return instant.astimezone(UTC).replace(second=0, microsecond=0)


def _require_offset(instant: datetime) -> None:
    if instant.tzinfo is None:
        raise ClientError(
            f"the instant {instant.isoformat()} has no offset: write it in UTC, such as {_EXAMPLE}"
        )


def read_minute(text: str) -> datetime:
    """Return the beginning of the minute of an ISO 8601 text, in UTC.

    Raises:
        ClientError: It is no instant, or says no offset.
    """
    try:
        return minute_of(datetime.fromisoformat(text))
    except (ValueError, OverflowError) as error:
        raise ClientError(f"{ascii(text)[:60]} is no instant: write it in UTC, such as {_EXAMPLE}") from error


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXAMPLE = "2026-12-01T09:00Z"
