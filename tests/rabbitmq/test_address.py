"""The broker's address: what it means to pika, what is refused, and that nobody sees its password."""

from __future__ import annotations

import logging
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest

from cronless_dagster.rabbitmq.address import Broker
from cronless_dagster.rabbitmq.errors import BrokerError
from cronless_dagster.settings import Settings, SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

PASSWORD = "s3cr3t/#?@:%+"
ENCODED = "s3cr3t%2F%23%3F%40%3A%25%2B"
URL = f"amqp://app:{ENCODED}@mq.example:5673/jobs"
CERTIFICATE = {"cert_file": Path("cert.pem"), "key_file": Path("key.pem")}


class TestMeaning:
    """What pika is told."""

    def test_every_part_is_decoded(self) -> None:
        """Passwords and virtual hosts hold characters that mean something in an address."""
        parameters = Broker(f"amqp://ap%40p:{ENCODED}@mq.example:5673/a%2Fb").parameters()
        assert (parameters.host, parameters.port) == ("mq.example", 5673)
        assert parameters.credentials == pika.PlainCredentials("ap@p", PASSWORD)
        assert parameters.virtual_host == "a/b"
        assert parameters.ssl_options is None

    @pytest.mark.parametrize("path", ["", "/", "/%2F", "/%2f"])
    def test_the_default_virtual_host_is_a_slash(self, path: str) -> None:
        """However it is written."""
        broker = Broker(f"amqp://mq.example{path}")
        assert broker.parameters().virtual_host == "/"
        assert broker.shown == "amqp://mq.example:5672/%2F"

    def test_what_is_left_out_is_amqps_usual(self) -> None:
        """Ports by the scheme, and the login that RabbitMQ gives to loopback only."""
        assert Broker("amqp://localhost").parameters().port == 5672
        assert Broker("amqps://localhost").parameters().port == 5671
        assert Broker("amqp://localhost").parameters().credentials == pika.PlainCredentials("guest", "guest")

    def test_a_host_may_be_an_ipv6_address(self) -> None:
        """In brackets, as everywhere."""
        broker = Broker("amqp://u:p@[::1]:5673/jobs")
        assert (broker.parameters().host, broker.parameters().port) == ("::1", 5673)
        assert broker.shown == "amqp://[::1]:5673/jobs"
        assert Broker("amqps://[::1]").shown == "amqps://[::1]:5671/%2F"

    def test_no_wait_is_without_limit(self) -> None:
        """Two of the defaults of pika wait for ever."""
        broker = Broker(
            URL, connection_name="tick", connect_seconds=2.5, blocked_seconds=7, heartbeat_seconds=9
        )
        parameters = broker.parameters()
        assert parameters.socket_timeout == parameters.stack_timeout == 2.5
        assert parameters.blocked_connection_timeout == 7
        assert parameters.heartbeat == 9
        assert parameters.connection_attempts == 1
        assert parameters.client_properties == {"connection_name": "tick"}


class TestRefusals:
    """What could never work is refused before anything is connected."""

    @pytest.mark.parametrize(
        ("url", "message"),
        [
            ("", "doesn't begin with amqp://"),
            ("mq.example:5672", "doesn't begin with amqp://"),
            ("http://mq.example", "doesn't begin with amqp://"),
            ("AMQP://mq.example", "doesn't begin with amqp://"),
            ("amqp://", "names no host"),
            ("amqp://:5672/jobs", "names no host"),
            ("amqp://mq.example:0", "the port 0"),
            ("amqp://mq.example:99999", "can't be read"),
            ("amqp://[mq.example", "can't be read"),
            ("amqp://u:p@mq.example/a/b", "%2F"),
            ("amqp://mq.example//", "%2F"),
            ("amqp://mq.example/?heartbeat=0", "their own settings"),
            ("amqps://mq.example/?ssl_options={'verify_mode':0}", "their own settings"),
            ("amqp://u@mq.example", "a user without a password"),
            ("amqp://u:@mq.example", "a user without a password"),
            ("amqp://:p@mq.example", "a password without a user"),
            ("amqp://u:p w@mq.example", "percent-encoded"),
            ("amqp://u:p\nw@mq.example", "percent-encoded"),
            ("amqp://u:pä@mq.example", "percent-encoded"),
        ],
    )
    def test_a_bad_address_says_what_to_write(self, url: str, message: str) -> None:
        """In one line."""
        with pytest.raises(BrokerError, match=message) as caught:
            Broker(url)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ({"prefix": ""}, "prefix ''"),
            ({"prefix": "amq.jobs"}, "prefix 'amq.jobs'"),
            ({"prefix": "a/b"}, "prefix 'a/b'"),
            ({"prefix": "a" * 101}, "at most 100"),
            ({"connect_seconds": 0}, "connect_seconds is 0"),
            ({"publish_seconds": float("nan")}, "publish_seconds is nan"),
            ({"publish_seconds": float("inf")}, "publish_seconds is inf"),
            ({"blocked_seconds": -1.0}, "blocked_seconds is -1"),
            ({"heartbeat_seconds": 0}, "heartbeat_seconds is 0"),
            ({"heartbeat_seconds": 0.5}, "heartbeat_seconds is 0.5"),
            ({"cert_file": Path("c.pem")}, "a cert_file without a key_file"),
            ({"key_file": Path("k.pem")}, "a key_file without a cert_file"),
            ({"ca_file": Path("ca.pem")}, "write amqps://"),
            (CERTIFICATE, "write amqps://"),
        ],
    )
    def test_a_bad_value_is_named(self, values: dict[str, object], message: str) -> None:
        """With its name, in one line."""
        with pytest.raises(BrokerError, match=message) as caught:
            Broker("amqp://mq.example", **values)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("content", [None, "no certificate"])
    def test_files_that_cant_be_used_are_named(self, content: str | None, tmp_path: Path) -> None:
        """Whether they are missing or hold something else."""
        file = tmp_path / "file.pem"
        if content:
            file.write_text(content)
        authority = Broker("amqps://mq.example", ca_file=file)
        client = Broker("amqps://mq.example", cert_file=file, key_file=tmp_path / "key.pem")
        for broker in (authority, client):
            with pytest.raises(BrokerError, match=r"file\.pem.* can't be used") as caught:
                broker.parameters()
            assert "\n" not in str(caught.value)


class TestSettings:
    """From the environment."""

    def test_without_an_address_there_is_no_broker(self) -> None:
        """Then every job type takes the run route."""
        assert Broker.from_settings(Settings()) is None

    def test_every_setting_reaches_the_broker(self) -> None:
        """And the connection's name is the caller's."""
        settings = Settings(
            broker_url="amqps://mq.example",
            broker_ca_file=Path("ca.pem"),
            broker_cert_file=Path("cert.pem"),
            broker_key_file=Path("key.pem"),
            broker_prefix="staging",
        )
        assert Broker.from_settings(settings, connection_name="worker") == Broker(
            "amqps://mq.example",
            ca_file=Path("ca.pem"),
            **CERTIFICATE,
            connection_name="worker",
            prefix="staging",
        )

    def test_settings_that_contradict_each_other_are_the_settings_fault(self) -> None:
        """So the error is one of settings."""
        settings = Settings(broker_url="amqp://u:s3cr3t@mq.example", broker_ca_file=Path("ca.pem"))
        with pytest.raises(SettingsError, match=r"CRONLESS_BROKER.*write amqps://") as caught:
            Broker.from_settings(settings)
        assert "s3cr3t" not in _everything(caught.value)


class TestSecrets:
    """An address holds a password, and everything is logged somewhere."""

    def test_no_representation_shows_the_login(self) -> None:
        """What is needed to know which broker is meant stays readable."""
        broker = Broker(URL)
        for shown in (repr(broker), str(broker), f"{broker}", broker.shown, repr([broker])):
            assert "s3cr3t" not in shown
            assert "app" not in shown
            assert "amqp://mq.example:5673/jobs" in shown

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda url: url.replace("amqp:", "amqpx:"),
            lambda url: url.replace(":5673", ":567x"),
            lambda url: url.replace(":5673", ":99999"),
            lambda url: url.replace(ENCODED, "s3cr3t/more"),
            lambda url: url.replace(ENCODED, "1/s3cr3t"),
            lambda url: url.replace(ENCODED, "s3cr3t#more"),
            lambda url: url.replace(ENCODED, "1?s3cr3t"),
            lambda url: url.replace(ENCODED, "s3cr3t[more"),
            lambda url: url.replace(ENCODED, "s3cr3t\u2100"),
            lambda url: url.replace("/jobs", "/jobs/more"),
            lambda url: url.replace("app:", ":"),
        ],
    )
    def test_no_refusal_shows_the_password(self, spoil: Callable[[str], str]) -> None:
        """Nor a part of it that was taken for a port or a host, in the message or in what caused it."""
        with pytest.raises(BrokerError) as caught:
            Broker(spoil(URL))
        assert "s3cr3t" not in _everything(caught.value)

    def test_pika_logs_no_password(self, broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
        """At its most talkative, with a login that works and with one that doesn't."""
        caplog.set_level(logging.DEBUG, logger="pika")
        login = broker.parameters().credentials
        user, password = f"{login.username}", "s3cr3t-of-nobody"
        pika.BlockingConnection(broker.parameters()).close()
        refused = replace(broker, url=broker.url.replace(f"{user}:{login.password}@", f"{user}:{password}@"))
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(refused.parameters())
        assert {"DEBUG", "ERROR"} <= {record.levelname for record in caplog.records}
        assert password not in caplog.text
        assert broker.url not in caplog.text
        assert f"{user}:{login.password}" not in caplog.text


def _everything(error: BaseException) -> str:
    chain = "".join(traceback.format_exception(error))
    return "\n".join(line for line in chain.splitlines() if not line.startswith("    "))
