"""The Retry-After header."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

LONGEST = timedelta(days=1)
"""However long a server asks to be left alone, it is asked again after so long."""


def retry_after(value: str, now: datetime) -> timedelta | None:
    """Return how long to wait, from nothing to a day, or None for what can't be read (RFC 9110, section 10.2.3).

    Args:
        value: Whole seconds, or one of the three forms of an HTTP date (section 5.6.7).
        now: An aware instant, from which a date counts.
    """
    text = value.strip()
    if text.isascii() and text.isdigit():
        wait = timedelta(seconds=min(int(text[:9]), LONGEST.total_seconds()))
    else:
        try:
            at = parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return None
        wait = (at if at.tzinfo else at.replace(tzinfo=UTC)) - now
    return min(max(wait, timedelta()), LONGEST)
