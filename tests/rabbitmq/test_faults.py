"""What pika's exceptions become: refused or unavailable, in one line without a password."""

from __future__ import annotations

import ssl

import pytest
from pika.adapters.utils.connection_workflow import (
    AMQPConnectionWorkflowFailed,
    AMQPConnectorSocketConnectError,
    AMQPConnectorStackTimeout,
    AMQPConnectorTransportSetupError,
)
from pika.exceptions import (
    AMQPConnectionError,
    AMQPHeartbeatTimeout,
    ChannelClosedByBroker,
    ConnectionBlockedTimeout,
    ConnectionClosedByBroker,
    ConnectionOpenAborted,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
    StreamLostError,
)

from cronless_dagster.rabbitmq.address import Broker
from cronless_dagster.rabbitmq.errors import BrokerRefused, BrokerUnavailable, TopologyMismatch
from cronless_dagster.rabbitmq.faults import explain, reason

BROKER = Broker("amqp://somebody:secret@mq.example:5673/%2F")


def failed(error: BaseException) -> AMQPConnectionError:
    """Wrap an error as pika wraps it."""
    return AMQPConnectionError(AMQPConnectionWorkflowFailed([OSError("the first address"), error]))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ProbableAuthenticationError(repr(ConnectionClosedByBroker(403, "ACCESS_REFUSED - no"))),
            "ACCESS_REFUSED",
        ),
        (ProbableAccessDeniedError(repr(ConnectionClosedByBroker(530, "NOT_ALLOWED - vhost x"))), "vhost x"),
        (ConnectionClosedByBroker(403, "ACCESS_REFUSED - expired"), "403 ACCESS_REFUSED - expired"),
        (
            failed(AMQPConnectorTransportSetupError(ssl.SSLCertVerificationError("self-signed"))),
            "self-signed",
        ),
        (StreamLostError("SSLError: TLSV13_ALERT_CERTIFICATE_REQUIRED"), "CERTIFICATE_REQUIRED"),
    ],
)
def test_what_trying_again_does_not_mend(error: BaseException, said: str) -> None:
    """The broker, or the certificate, said no."""
    explained = explain(error, BROKER)
    assert type(explained) is BrokerRefused
    assert said in str(explained)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            failed(AMQPConnectorSocketConnectError(ConnectionRefusedError(111, "Connection refused"))),
            "refused",
        ),
        (failed(AMQPConnectorSocketConnectError(AMQPConnectorStackTimeout("Timeout"))), "no answer in time"),
        (ConnectionOpenAborted("Connection.close() called before connection finished"), "no answer in time"),
        (ProbableAuthenticationError(repr(StreamLostError("Transport indicated EOF"))), "EOF"),
        (ProbableAccessDeniedError(repr(ConnectionClosedByBroker(541, "vhost '/' is down"))), "down"),
        (
            ProbableAccessDeniedError(
                repr(ConnectionClosedByBroker(530, "NOT_ALLOWED - connection limit (1)"))
            ),
            "limit",
        ),
        (ConnectionClosedByBroker(320, "CONNECTION_FORCED - shut down"), "320 CONNECTION_FORCED - shut down"),
        (StreamLostError("Stream connection lost: SSLEOFError(8, 'EOF')"), "the client's certificate"),
        (ConnectionBlockedTimeout("Blocked connection timeout expired."), "alarm"),
        (AMQPHeartbeatTimeout("No activity"), "no heartbeat"),
        (StreamLostError("Transport\nindicated EOF"), "connection lost: Transport indicated EOF"),
        (ValueError(), "ValueError"),
    ],
)
def test_what_may_pass(error: BaseException, said: str) -> None:
    """A broker that is down, starting, full, blocked or silent is none that refuses."""
    explained = explain(error, BROKER)
    assert type(explained) is BrokerUnavailable
    assert said in str(explained)
    assert "mq.example:5673" in str(explained)
    assert "secret" not in str(explained)
    assert "\n" not in str(explained)


def test_ours_stay_as_they_are() -> None:
    """An error that was explained isn't explained again."""
    ours = TopologyMismatch("as it was")
    assert explain(ours, BROKER) is ours


def test_a_reason_is_short() -> None:
    """Whatever a broker writes, it is cut."""
    said = reason(ChannelClosedByBroker(406, "PRECONDITION_FAILED " + "x" * 5_000))
    assert said.startswith("406 PRECONDITION_FAILED x")
    assert len(said) == 300
