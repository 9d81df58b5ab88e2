"""Saying in one sentence what pika's exceptions mean, and whether waiting may help."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from pika.adapters.utils.connection_workflow import AMQPConnectionWorkflowFailed, AMQPConnectorStackTimeout
from pika.exceptions import (
    AMQPHeartbeatTimeout,
    ChannelClosed,
    ConnectionBlockedTimeout,
    ConnectionClosed,
    ConnectionOpenAborted,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
    StreamLostError,
)

from cronless_dagster.rabbitmq.errors import BrokerError, BrokerRefused, BrokerUnavailable

if TYPE_CHECKING:
    from cronless_dagster.rabbitmq.address import Broker

_LONGEST = 300


def explain(error: BaseException, broker: Broker) -> BrokerError:
    """Turn what ended a connection, or kept one from opening, into an error of ours; to be raised by the caller.

    Returns:
        `BrokerRefused` where trying again changes nothing (login, virtual host, certificate), else
        `BrokerUnavailable`. An error of ours is returned as it is.
    """
    if isinstance(error, BrokerError):
        return error
    cause = _innermost(error)
    text = reason(cause)
    if isinstance(cause, ssl.SSLError) or "SSL" in text:
        # A broker that doesn't accept our certificate says so in an alert, which its hanging up may overtake.
        final = isinstance(cause, ssl.SSLCertVerificationError) or "alert" in text.lower()
        return (BrokerRefused if final else BrokerUnavailable)(
            f"No secure connection to RabbitMQ at {broker.shown} ({text}): check the authority's certificate, and"
            " the client's certificate and key if the broker asks for them."
        )
    if _is_refusal(cause, text):
        return BrokerRefused(
            f"RabbitMQ at {broker.shown} refused the connection ({text}): check the user name, the password, the"
            " virtual host and the user's permissions on it."
        )
    return BrokerUnavailable(
        f"RabbitMQ at {broker.shown} can't be used at the moment ({text}): check that it runs, that its address is"
        " right, and its alarms."
    )


def reason(error: BaseException) -> str:
    """Say on one line, of at most some 300 characters, why a connection or a channel is closed."""
    cause = _innermost(error)
    if isinstance(cause, (ConnectionClosed, ChannelClosed)):
        text = f"{cause.reply_code} {cause.reply_text}"
    elif isinstance(cause, ConnectionBlockedTimeout):
        text = "blocked by an alarm of the broker for too long"
    elif isinstance(cause, AMQPHeartbeatTimeout):
        text = "no heartbeat from the broker"
    elif isinstance(cause, (TimeoutError, AMQPConnectorStackTimeout, ConnectionOpenAborted)):
        # While a connection opens, only pika's own time limit aborts it.
        text = "no answer in time"
    elif isinstance(cause, StreamLostError):
        text = f"connection lost: {cause}"
    elif isinstance(cause, OSError) and cause.strerror:
        text = cause.strerror
    else:
        text = str(cause) or type(cause).__name__
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _innermost(error: BaseException) -> BaseException:
    """Unwrap what pika wraps several times over."""
    while True:
        inner = error.exceptions[-1] if isinstance(error, AMQPConnectionWorkflowFailed) else None
        inner = inner or getattr(error, "exception", None) or next(iter(error.args), None)
        if not isinstance(inner, BaseException):
            return error
        error = inner


def _is_refusal(cause: BaseException, text: str) -> bool:
    """Tell a refusal from a broker that died, or is starting, in the middle of the login.

    pika calls every connection that ends in that phase a probable refusal; only the broker's own closing is one.
    A limit on connections passes, and so does a virtual host that is down while the broker starts.
    """
    passing = "limit" in text or "is down" in text
    if isinstance(cause, (ProbableAuthenticationError, ProbableAccessDeniedError)):
        return "ConnectionClosedByBroker: (403)" in text or (
            "ConnectionClosedByBroker: (530)" in text and not passing
        )
    if isinstance(cause, (ConnectionClosed, ChannelClosed)):
        return cause.reply_code == 403 or (cause.reply_code == 530 and not passing)
    return False
