"""The broker's resource: where it finds its address, its limits, and when there is no broker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from cronless_dagster.rabbitmq.address import Broker
from cronless_dagster.rabbitmq.errors import BrokerError
from cronless_dagster.resources.rabbitmq import RabbitMQResource
from cronless_dagster.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

URL = "amqps://app:s3cr3t@mq.example/jobs"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker of whoever runs the tests is not the tests' affair."""
    for name in [name for name in os.environ if name.startswith("CRONLESS_BROKER_")]:
        monkeypatch.delenv(name)


def _set(monkeypatch: pytest.MonkeyPatch, values: Mapping[str, str]) -> None:
    for name, value in values.items():
        monkeypatch.setenv(f"CRONLESS_BROKER_{name}", value)


def test_no_address_is_no_broker() -> None:
    """Every job type takes the run route then."""
    assert RabbitMQResource().broker() is None


def test_the_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it, read when it is needed."""
    resource = RabbitMQResource()
    _set(
        monkeypatch,
        {"URL": URL, "CA_FILE": "ca.pem", "CERT_FILE": "c.pem", "KEY_FILE": "k.pem", "PREFIX": "staging"},
    )
    assert resource.broker() == Broker(
        URL,
        ca_file=Path("ca.pem"),
        cert_file=Path("c.pem"),
        key_file=Path("k.pem"),
        connection_name="cronless-tick",
        prefix="staging",
    )


def test_what_is_given_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the environment, each value for itself."""
    _set(monkeypatch, {"URL": "amqp://other", "CA_FILE": "other.pem", "PREFIX": "other"})
    resource = RabbitMQResource(
        url=URL,
        ca_file="ca.pem",
        cert_file="c.pem",
        key_file="k.pem",
        connection_name="evening",
        prefix="mine",
        connect_seconds=2.0,
        publish_seconds=3.0,
        blocked_seconds=4.0,
        heartbeat_seconds=6,
    )
    assert resource.broker() == Broker(
        URL,
        ca_file=Path("ca.pem"),
        cert_file=Path("c.pem"),
        key_file=Path("k.pem"),
        connection_name="evening",
        prefix="mine",
        connect_seconds=2.0,
        publish_seconds=3.0,
        blocked_seconds=4.0,
        heartbeat_seconds=6,
    )


def test_an_env_var_is_resolved_by_dagster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster's own way of naming a variable keeps the address out of the UI."""
    monkeypatch.setenv("JOBS_BROKER", URL)
    resource = RabbitMQResource(url=dg.EnvVar("JOBS_BROKER")).process_config_and_initialize()
    assert resource.broker() == Broker(URL, connection_name="cronless-tick")


def test_a_secret_in_a_file_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Secrets are often mounted as files."""
    (tmp_path / "url").write_text(f"{URL}\n", encoding="utf-8")
    monkeypatch.setenv("CRONLESS_BROKER_URL_FILE", str(tmp_path / "url"))
    assert RabbitMQResource().broker() == Broker(URL, connection_name="cronless-tick")


def test_every_value_is_described_in_the_ui() -> None:
    """Somebody reads them there."""
    fields = RabbitMQResource.to_config_schema().as_field().config_type.fields
    assert fields.keys() == Broker.__dataclass_fields__.keys()
    for name, field in fields.items():
        assert field.description, name
    assert "EnvVar" in fields["url"].description


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"url": "http://app:s3cr3t@mq"}, "amqp://"),
        ({"url": "amqp://app:s3cr3t@mq", "ca_file": "ca.pem"}, "amqps://"),
        ({"url": URL, "prefix": "amq.x"}, "prefix 'amq.x'"),
        ({"url": URL, "blocked_seconds": 0.0}, "blocked_seconds"),
    ],
)
def test_what_cant_be_used_is_refused_without_the_password(values: dict[str, str], message: str) -> None:
    """In one line, when the broker is asked for."""
    with pytest.raises(BrokerError, match=message) as caught:
        RabbitMQResource(**values).broker()  # type: ignore[arg-type]
    assert "s3cr3t" not in str(caught.value)


def test_a_tick_with_these_limits_must_end_before_dagster_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 60 seconds a tick takes 20, a statement 15, connecting 5; so 20 are left for publishing."""
    assert RabbitMQResource(url=URL, publish_seconds=20.0).broker()
    with pytest.raises(SettingsError, match=r"A tick can last 60\.5 s .* 25\.5 s to hand over to the broker"):
        RabbitMQResource(url=URL, publish_seconds=20.5).broker()
    monkeypatch.setenv("DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS", "61")
    assert RabbitMQResource(url=URL, publish_seconds=20.5).broker()
