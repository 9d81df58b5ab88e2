"""What can go wrong with digests. What is raised by a handler becomes its job's failure, and nobody else's."""

from __future__ import annotations

from cronless_dagster.engine.errors import PermanentFailure
from cronless_dagster.scheduling.errors import CronlessError


class DigestError(CronlessError):
    """A user, an address or a digest that can't be used as asked."""


class AddressError(DigestError):
    """An e-mail address or the name beside it can't stand in a mail's header."""


class MailerError(CronlessError):
    """Mail can't be handed over as configured."""


class NotSent(MailerError):
    """The mail was not accepted, and it is known that it wasn't.

    Attributes:
        temporary: Whether another try may help.
    """

    def __init__(self, message: str, *, temporary: bool) -> None:
        super().__init__(message)
        self.temporary = temporary


class MaybeSent(MailerError):
    """The mail was handed over, and whether it was accepted is not known."""


class Uncertain(PermanentFailure):
    """The digest may have been mailed, so it isn't mailed again until somebody settles it."""


class Refused(PermanentFailure):
    """The mail server refused the digest for good."""
