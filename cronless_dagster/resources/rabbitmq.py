"""The queue route's broker as a Dagster resource."""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg
from pydantic import Field

from cronless_dagster.rabbitmq.address import Broker
from cronless_dagster.settings import BROKER_CONNECT_SECONDS, BROKER_PUBLISH_SECONDS, Settings


class RabbitMQResource(dg.ConfigurableResource):  # type: ignore[type-arg]  # has no inner resource of its own
    """Which RabbitMQ carries the jobs of the queue route.

    It holds no connection: a tick opens one and closes it, so that none can die unnoticed between two ticks.
    """

    url: str = Field(
        default="",
        description=(
            "Address of RabbitMQ, such as amqps://user:password@host/virtual-host. Empty: CRONLESS_BROKER_URL, or the"
            " file named by CRONLESS_BROKER_URL_FILE; where those are unset too there is no broker, and every job"
            " type takes the run route. Dagster's UI shows what is written here, so give an EnvVar rather than a"
            " text with a password in it."
        ),
    )
    ca_file: str = Field(
        default="",
        description=(
            "File of the certificates (PEM) that may sign the broker's. Empty: CRONLESS_BROKER_CA_FILE, else the"
            " system's."
        ),
    )
    cert_file: str = Field(
        default="",
        description="File of this client's certificate (PEM). Empty: CRONLESS_BROKER_CERT_FILE, else none.",
    )
    key_file: str = Field(
        default="",
        description=(
            "File of that certificate's private key (PEM, without a password). Empty: CRONLESS_BROKER_KEY_FILE."
        ),
    )
    connection_name: str = Field(
        default="cronless-tick", description="How RabbitMQ's list of connections shows this one."
    )
    prefix: str = Field(
        default="",
        description=(
            "What the names of our queues and exchanges begin with. Empty: CRONLESS_BROKER_PREFIX, else 'cronless'."
        ),
    )
    connect_seconds: float = Field(
        default=BROKER_CONNECT_SECONDS, description="How long connecting may take, in seconds."
    )
    publish_seconds: float = Field(
        default=BROKER_PUBLISH_SECONDS,
        description="How long publishing what a tick claimed may take, in seconds.",
    )
    blocked_seconds: float = Field(
        default=Broker.blocked_seconds,
        description="How long the broker may refuse to take anything (its memory or disk alarm), in seconds.",
    )
    heartbeat_seconds: int = Field(
        default=Broker.heartbeat_seconds,
        description="After how many seconds without a sign of life the broker is given up.",
    )

    def broker(self) -> Broker | None:
        """Return the broker, or None where none is named: then every job type takes the run route.

        Raises:
            SettingsError: The environment's settings can't be used, or a tick with these limits could last longer
                than Dagster waits for a sensor.
            BrokerError: What is given here can't be used.
        """
        settings = Settings.from_env(os.environ)
        url = self.url or settings.broker_url
        if not url:
            return None
        settings.refuse_long_ticks(self.connect_seconds + self.publish_seconds)
        return Broker(
            url,
            ca_file=_path(self.ca_file) or settings.broker_ca_file,
            cert_file=_path(self.cert_file) or settings.broker_cert_file,
            key_file=_path(self.key_file) or settings.broker_key_file,
            connection_name=self.connection_name,
            prefix=self.prefix or settings.broker_prefix,
            connect_seconds=self.connect_seconds,
            heartbeat_seconds=self.heartbeat_seconds,
            blocked_seconds=self.blocked_seconds,
            publish_seconds=self.publish_seconds,
        )


def _path(text: str) -> Path | None:
    return Path(text).expanduser() if text else None
