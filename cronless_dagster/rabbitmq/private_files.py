"""What a private broker needs of the machine: RabbitMQ's programs, free ports, its files and its environment."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

from cronless_dagster.rabbitmq.errors import BrokerError, BrokerMissing

MEMORY = "768MB"
"""Above it the broker blocks publishers; ``control("set_vm_memory_high_watermark", "absolute", "1")`` makes a
memory alarm, and the same with this value lifts it."""

NODE = "cronless@localhost"
"""Its name among Erlang's nodes; a port mapper of its own keeps it apart from others of that name."""

_PLACES = ("/usr/lib/rabbitmq/bin", "/opt/homebrew/opt/rabbitmq/sbin", "/usr/local/opt/rabbitmq/sbin")
_CONFIG = """\
listeners.tcp.1 = 127.0.0.1:{port}
vm_memory_high_watermark.absolute = {memory}
disk_free_limit.absolute = 20MB
# Quorum queues write ahead; the default of 512 MB a file is for servers.
raft.wal_max_size_bytes = 33554432
"""
# Few threads leave the cores to what is being tested; the distribution stays on loopback.
_SERVER_ARGUMENTS = "-noinput +S 2:2 +A 4 -kernel inet_dist_use_interface {127,0,0,1}"
_CONTROL_ARGUMENTS = "+S 1:1 +A 1"


@dataclass(frozen=True, slots=True)
class Ports:
    """TCP ports on 127.0.0.1: AMQP, Erlang's distribution, its port mapper."""

    amqp: int
    distribution: int
    mapper: int

    @classmethod
    def choose(cls) -> Ports:
        """Choose ports that nobody listens on, below those that systems give to outgoing connections.

        A port of that range might be taken by a connection while the server is down for a restart.

        Raises:
            BrokerError: there are none.
        """
        candidates = random.SystemRandom().sample(range(20_000, 32_000), 200)
        free = [port for port in candidates if _is_free(port)][:3]
        if len(free) < 3:
            raise BrokerError(
                "No three free ports were found on 127.0.0.1 between 20000 and 32000: free some."
            )
        return cls(*free)

    def are_free(self) -> bool:
        """Tell whether a server could listen on all of them."""
        return all(map(_is_free, astuple(self)))


@dataclass(frozen=True, slots=True)
class BrokerFiles:
    """The files of a private broker, below one directory."""

    directory: Path

    @property
    def log(self) -> Path:
        """What the server of the latest start, its port mapper and its keeper said."""
        return self.directory / "broker.log"

    @property
    def holders(self) -> Path:
        """The lock that whoever uses the broker holds shared."""
        return self.directory / "holders.lock"

    @property
    def start(self) -> Path:
        """The lock of whoever is starting the broker or letting go of it."""
        return self.directory / "start.lock"

    @property
    def keeper_pid(self) -> Path:
        """Holds the keeper's process id."""
        return self.directory / "keeper.pid"

    @property
    def ports(self) -> Path:
        """Holds the ports, so that they stay the same over restarts."""
        return self.directory / "ports.json"

    def read_ports(self) -> Ports | None:
        """Return the ports of the last start that succeeded or is going on; None before the first."""
        try:
            return Ports(**json.loads(self.ports.read_text(encoding="ascii")))
        except FileNotFoundError:
            return None

    def write(self, ports: Ports, config: str) -> None:
        """Write what a start needs, with further lines for ``rabbitmq.conf``; the last log is kept beside."""
        (self.directory / "home").mkdir(mode=0o700, exist_ok=True)
        self.ports.write_text(json.dumps(asdict(ports)), encoding="ascii")
        settings = _CONFIG.format(port=ports.amqp, memory=MEMORY)
        (self.directory / "rabbitmq.conf").write_text(f"{settings}{config}\n", encoding="utf-8")
        (self.directory / "plugins").write_text("[].\n", encoding="ascii")
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".log.1"))

    def environment(self) -> dict[str, str]:
        """Ours without what would lead to another broker, and with all that makes this one private.

        Source: https://www.rabbitmq.com/docs/configure#supported-environment-variables
        """
        ports = self.read_ports() or Ports(0, 0, 0)
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))
        }
        return inherited | {
            "HOME": str(self.directory / "home"),  # Erlang keeps its cookie there
            "LC_ALL": "C.UTF-8",
            "ERL_CRASH_DUMP_SECONDS": "0",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(ports.mapper),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.directory / "advanced.config"),
            # Lets the server's script become the server instead of waiting beside it.
            "RABBITMQ_ALLOW_INPUT": "true",
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_CTL_ERL_ARGS": _CONTROL_ARGUMENTS,
            "RABBITMQ_DIST_PORT": str(ports.distribution),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "plugins"),
            "RABBITMQ_LOGS": str(self.log),
            "RABBITMQ_LOG_BASE": str(self.directory),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "data"),
            "RABBITMQ_NODENAME": NODE,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(ports.amqp),
            "RABBITMQ_PID_FILE": str(self.directory / "rabbitmq.pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _SERVER_ARGUMENTS,
        }


def programs() -> tuple[Path, str]:
    """Find the directory of RabbitMQ's scripts, and the program of Erlang's port mapper.

    Debian's own `rabbitmq-server` on the path changes to a system user, so the places of the scripts
    themselves come first.

    Raises:
        BrokerMissing: one of them isn't installed.
    """
    on_path = shutil.which("rabbitmq-server")
    places = [Path(place) for place in _PLACES] + ([Path(on_path).resolve().parent] if on_path else [])
    scripts = next((place for place in places if (place / "rabbitmq-server").is_file()), None)
    epmd = shutil.which("epmd")
    if scripts is None or epmd is None:
        raise BrokerMissing(
            f"RabbitMQ is not installed ({'epmd' if scripts else 'rabbitmq-server'} was not found): install it,"
            " on Debian and Ubuntu by 'apt-get install rabbitmq-server', on macOS by 'brew install rabbitmq'."
        )
    return scripts, epmd


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Closed connections of a killed server linger for a minute; as for the server, they don't count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
