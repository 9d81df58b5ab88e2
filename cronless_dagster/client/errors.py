"""What the client refuses, in one sentence."""

from __future__ import annotations


class ClientError(Exception):
    """A configuration, a secret or an instant that can't be used; the message says what to write instead.

    It is no `CronlessError`: this folder knows nothing of the package around it, so that it can be deployed alone.
    """


def shown(value: object) -> str:
    """Return a value for a message: plain ASCII, on one line, at most about 60 characters."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
