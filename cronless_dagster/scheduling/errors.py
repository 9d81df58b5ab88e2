"""The exceptions of the scheduling core, and the base of every exception this package raises."""

from __future__ import annotations


class CronlessError(Exception):
    """Base of all errors raised here: its message is one sentence a person can act on."""


class ScheduleError(CronlessError):
    """A schedule that can't be read, or that is refused because it could never be served as written."""


class TimezoneError(CronlessError):
    """A zone that isn't in the IANA data shipped with this release, or an instant without a zone."""


_SHOWN = 60


def shown(text: object) -> str:
    """Return `text` quoted for an error message: plain ASCII, on one line, at most about 60 characters.

    Schedules come from tables and command lines, so a message never carries their control
    characters or their whole length.
    """
    raw = text if isinstance(text, str) else repr(text)
    return ascii(raw) if len(raw) <= _SHOWN else ascii(raw[: _SHOWN - 3]) + "..."
