"""The private broker: on loopback, kept over restarts, shared by its holders, and gone with the last of them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from ipaddress import ip_address
from typing import TYPE_CHECKING

import pika
import psutil
import pytest

from cronless_dagster.rabbitmq import private_files
from cronless_dagster.rabbitmq.errors import BrokerError, BrokerMissing
from cronless_dagster.rabbitmq.private import MEMORY, PrivateBroker
from cronless_dagster.rabbitmq.private_files import BrokerFiles, Ports

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.processes import Spawner

pytestmark = pytest.mark.slow

HOLD = """
import sys, time
from pathlib import Path
from cronless_dagster.rabbitmq.private import PrivateBroker

with PrivateBroker(Path(sys.argv[1])) as broker:
    print(broker.pid, flush=True)
    time.sleep(600)
"""
QUORUM = {"x-queue-type": "quorum"}


def _wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.05)


def _processes(directory: Path) -> list[psutil.Process]:
    """Every living process of the broker in a directory: all inherit where its log lies."""
    found = []
    for process in psutil.process_iter():
        try:
            theirs = process.environ().get("RABBITMQ_LOG_BASE") == str(directory)
            if theirs and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def _connect(url: str) -> pika.BlockingConnection:
    parameters = pika.URLParameters(url)
    parameters.blocked_connection_timeout = 60
    return pika.BlockingConnection(parameters)


def _waiting(url: str) -> int:
    connection = _connect(url)
    waiting = connection.channel().queue_declare("kept", passive=True).method.message_count
    connection.close()
    return int(waiting)


def _hold(spawn: Spawner, directory: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Hold the broker of a directory in another process; returns it and the server's process id."""
    holder = spawn(sys.executable, "-c", HOLD, str(directory), stdout=subprocess.PIPE)
    assert holder.stdout is not None
    return holder, int(holder.stdout.readline())


@pytest.mark.crash
def test_messages_and_address_survive_stop_and_kill(own_broker: PrivateBroker) -> None:
    """A confirmed message of a quorum queue is there after each, at the same address, in another process."""
    connection = _connect(own_broker.url)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("kept", durable=True, arguments=QUORUM)
    channel.basic_publish("", "kept", b"1", pika.BasicProperties(delivery_mode=2), mandatory=True)
    connection.close()

    url, pids = own_broker.url, [own_broker.pid]
    for end in (own_broker.stop, own_broker.kill):
        end()
        assert own_broker.pid is None
        assert not _processes(own_broker.directory)
        own_broker.start()
        _wait_until(lambda: _waiting(url) == 1)
        pids.append(own_broker.pid)
    assert own_broker.url == url
    assert len(set(pids)) == 3


def test_it_listens_on_loopback_only_and_a_failed_command_says_why(own_broker: PrivateBroker) -> None:
    """Server, distribution and port mapper are closed to other machines; an error holds rabbitmqctl's words."""
    listening = [
        ip_address(connection.laddr.ip)
        for process in _processes(own_broker.directory)
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 3
    assert all(address.is_loopback for address in listening)
    with pytest.raises(BrokerError, match="rabbitmqctl delete_queue failed: Error: Queue not found"):
        own_broker.control("delete_queue", "nothing-here")


@pytest.mark.crash
def test_an_alarm_blocks_until_it_is_lifted_and_a_frozen_server_can_be_stopped(
    own_broker: PrivateBroker,
) -> None:
    """Publishers are told of both; a stop ends a server that no longer reacts."""
    connection = _connect(own_broker.url)
    told: list[str] = []
    connection.add_on_connection_blocked_callback(lambda *_: told.append("blocked"))
    connection.add_on_connection_unblocked_callback(lambda *_: told.append("free"))
    channel = connection.channel()

    def heard(count: int) -> bool:
        connection.process_data_events(time_limit=0.1)
        return len(told) == count

    own_broker.control("set_vm_memory_high_watermark", "absolute", "1")
    channel.basic_publish("", "nowhere", b"a broker tells only whoever publishes")
    _wait_until(lambda: heard(1))
    own_broker.control("set_vm_memory_high_watermark", "absolute", MEMORY)
    _wait_until(lambda: heard(2))
    assert told == ["blocked", "free"]
    connection.close()

    assert own_broker.pid is not None
    os.kill(own_broker.pid, signal.SIGSTOP)
    own_broker.stop()
    assert not _processes(own_broker.directory)


@pytest.mark.crash
def test_it_is_shared_and_ends_with_its_last_holder(broker_directory: Path, spawn: Spawner) -> None:
    """Who comes joins, whoever is killed or leaves takes nothing from the others, and the last takes all."""
    first, pid = _hold(spawn, broker_directory)
    with PrivateBroker(broker_directory) as joined:
        assert joined.pid == pid
        first.kill()
        first.wait()
        last, seen = _hold(spawn, broker_directory)
        assert seen == pid
    assert joined.pid == pid
    assert joined.control("list_queues").strip() == ""
    last.kill()
    _wait_until(lambda: not _processes(broker_directory))
    assert joined.pid is None


def test_a_taken_port_is_given_up_for_another(
    broker_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody was quicker between our look and the server's: it starts on other ports."""
    choose, chosen = Ports.choose, []

    def unlucky() -> Ports:
        ports = choose()
        chosen.append(ports if chosen else replace(ports, distribution=taken))
        return chosen[-1]

    monkeypatch.setattr(Ports, "choose", unlucky)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with PrivateBroker(broker_directory) as broker:
            assert len(chosen) == 2
            assert f":{chosen[1].amqp}/" in broker.url


def test_a_setting_it_does_not_know_is_named(broker_directory: Path) -> None:
    """The error holds what the server said, once, and nothing stays behind."""
    with (
        pytest.raises(BrokerError, match=r"ended: You've tried to set nonsense.*broker\.log"),
        PrivateBroker(broker_directory, config="nonsense = 1"),
    ):
        pytest.fail("it started with a setting that doesn't exist")
    assert not _processes(broker_directory)


def test_without_rabbitmq_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, and before anything is written."""
    monkeypatch.setattr(private_files, "_PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(BrokerMissing, match=r"^RabbitMQ .*'apt-get install rabbitmq-server'.*\.$"),
        PrivateBroker(tmp_path / "broker"),
    ):
        pytest.fail("it started without a server")
    assert not (tmp_path / "broker").exists()


def test_the_users_own_settings_do_not_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that leads elsewhere, for the server or for Erlang, is not passed on."""
    monkeypatch.setenv("RABBITMQ_NODENAME", "rabbit@elsewhere")
    monkeypatch.setenv("RABBITMQ_DEFAULT_PASS", "other")
    monkeypatch.setenv("ERL_FLAGS", "-name elsewhere")
    environment = BrokerFiles(tmp_path).environment()
    assert environment["RABBITMQ_NODENAME"] == private_files.NODE
    assert not {"RABBITMQ_DEFAULT_PASS", "ERL_FLAGS"} & environment.keys()


def test_it_has_no_address_before_its_first_start(tmp_path: Path) -> None:
    """Asking for one is an error that says what to do; it runs no process either."""
    broker = PrivateBroker(tmp_path)
    assert broker.pid is None
    with pytest.raises(BrokerError, match="start it first"):
        _ = broker.url
