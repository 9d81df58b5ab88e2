"""What can go wrong with the broker, each in one sentence that says what to do; never with credentials in it."""

from __future__ import annotations

from cronless_dagster.scheduling.errors import CronlessError


class BrokerError(CronlessError):
    """The broker can't be used as asked."""


class BrokerUnavailable(BrokerError):
    """Down, unreachable, blocked by an alarm, or too slow: it may pass, so trying again later makes sense."""


class BrokerRefused(BrokerError):
    """The user, the password, the virtual host or a permission is wrong: trying again changes nothing."""


class TopologyMismatch(BrokerError):
    """A queue or an exchange of our name exists with other properties; nothing was deleted."""


class PoisonMessage(BrokerError):
    """A message that can't be read as a job: to be kept among the dead letters, never to be tried again."""


class BrokerMissing(BrokerError):
    """RabbitMQ isn't installed on this machine, so no broker of one's own can be started."""
