"""Leases that hubs grant: how long, and when to ask for the next one."""

from __future__ import annotations

from datetime import timedelta

LONGEST = timedelta(days=3_653)
RENEWED_AT = 0.8
"""The part of a lease after which it is renewed."""
MARGIN = timedelta(minutes=1)
"""A lease is renewed so long before its end at the latest, and never sooner than so long after it was granted."""


def granted_lease(text: str | None) -> timedelta | None:
    """Return the lease of `hub.lease_seconds` (WebSub 5.3), at most ten years; None where it is no positive integer."""
    if text is None or not text.isascii() or not text.isdigit():
        return None
    # Compared by its length first: Python refuses to read a number of thousands of digits.
    digits = text.lstrip("0")
    if not digits:
        return None
    if len(digits) > 10:
        return LONGEST
    return min(timedelta(seconds=int(digits)), LONGEST)


def renewed_after(lease: timedelta, part: float = RENEWED_AT) -> timedelta:
    """Return how long after it was granted a lease is to be renewed.

    A lease of less than two minutes can't be renewed in time: the tick that would do it comes once a minute, and a
    hub must not make us ask without end.
    """
    return max(min(lease * part, lease - MARGIN), MARGIN)
