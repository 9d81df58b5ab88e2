"""TLS to a real broker that asks for a client's certificate: whom it lets in, and whom we believe."""

from __future__ import annotations

import os
import pty
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.rabbitmq.address import Broker
from cronless_dagster.rabbitmq.errors import BrokerError, BrokerRefused, BrokerUnavailable
from cronless_dagster.rabbitmq.publisher import Publisher
from tests.brokers import DIRECTORY_VARIABLE, running

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.rabbitmq

CONFIG = """\
listeners.ssl.1 = 127.0.0.1:{port}
ssl_options.cacertfile = {authority}
ssl_options.certfile = {certificate}
ssl_options.keyfile = {key}
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
"""


@dataclass(frozen=True)
class Pair:
    """A certificate and its key."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Site:
    """A broker with TLS, and certificates of all kinds."""

    broker: Broker
    plain: Broker
    port: int
    stranger: Pair
    strange_authority: Path
    locked: Pair


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _authority(directory: Path, name: str) -> Pair:
    made = Pair(directory / f"{name}.pem", directory / f"{name}.key")
    request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    _openssl(*request, *usage, "-keyout", made.key, "-out", made.certificate)
    return made


def _signed(directory: Path, name: str, authority: Pair, *, password: str = "") -> Pair:
    """Make a certificate for a name of DNS, good for servers and clients."""
    made = Pair(
        directory / f"{name}-by-{authority.key.stem}.pem", directory / f"{name}-by-{authority.key.stem}.key"
    )
    extensions, request = directory / "extensions", directory / "request"
    extensions.write_text(f"subjectAltName=DNS:{name}\nextendedKeyUsage=serverAuth,clientAuth\n")
    protection = ["-passout", f"pass:{password}"] if password else ["-nodes"]
    _openssl(
        "req",
        "-newkey",
        "rsa:2048",
        *protection,
        "-subj",
        f"/CN={name}",
        "-keyout",
        made.key,
        "-out",
        request,
    )
    signer = ["-CA", authority.certificate, "-CAkey", authority.key, "-CAcreateserial"]
    _openssl(
        "x509",
        "-req",
        "-in",
        request,
        *signer,
        "-days",
        "2",
        "-extfile",
        extensions,
        "-out",
        made.certificate,
    )
    return made


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A broker of this module's own, with one listener for TLS and one without."""
    if shutil.which("openssl") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(
            "install openssl, which makes the certificates"
        )
    directory = Path(tempfile.mkdtemp(prefix="tls-broker-", dir=os.environ[DIRECTORY_VARIABLE]))
    ours, theirs = _authority(directory, "ours"), _authority(directory, "theirs")
    server, client = _signed(directory, "localhost", ours), _signed(directory, "worker.example", ours)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = CONFIG.format(
        port=port, authority=ours.certificate, certificate=server.certificate, key=server.key
    )
    with running(directory / "broker", config=config) as private:
        yield Site(
            broker=Broker(
                f"amqps://guest:guest@localhost:{port}",
                ca_file=ours.certificate,
                cert_file=client.certificate,
                key_file=client.key,
            ),
            plain=Broker(private.url),
            port=port,
            stranger=_signed(directory, "worker.example", theirs),
            strange_authority=theirs.certificate,
            locked=_signed(directory, "locked.example", ours, password="s3cr3t"),
        )
    shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _refusal(
    kind: type[BrokerError], match: str, *, or_kind: type[BrokerError] | None = None
) -> Iterator[None]:
    """Expect an error of one line, which names the address without the login."""
    with pytest.raises(BrokerError, match=match) as caught:
        yield
    assert type(caught.value) in (kind, or_kind)
    assert "\n" not in str(caught.value)
    assert "guest" not in str(caught.value)


def test_both_sides_are_satisfied(site: Site) -> None:
    """A client's certificate of the right authority, and a server's for this name."""
    with Publisher(site.broker) as publisher:
        assert publisher.depths([]) == {}


@pytest.mark.parametrize("authority", ["another", "the system's"])
def test_an_unknown_authority_isnt_believed(site: Site, authority: str) -> None:
    """Somebody else might answer in the broker's place, and would be told the password."""
    broker = replace(site.broker, ca_file=site.strange_authority if authority == "another" else None)
    with _refusal(BrokerRefused, "certificate verify failed.*check the authority"), Publisher(broker):
        pass


def test_a_certificate_for_another_host_isnt_believed(site: Site) -> None:
    """Though its authority is the right one."""
    broker = replace(site.broker, url=f"amqps://guest:guest@127.0.0.1:{site.port}")
    with _refusal(BrokerRefused, r"not valid for '127\.0\.0\.1'"), Publisher(broker):
        pass


def test_the_broker_asks_for_a_certificate(site: Site) -> None:
    """Without one there is no way in, and the error says so."""
    broker = replace(site.broker, cert_file=None, key_file=None)
    # The broker's hanging up may overtake its reason, and then it isn't known to be final.
    with _refusal(BrokerRefused, "the client's certificate", or_kind=BrokerUnavailable), Publisher(broker):
        pass


def test_the_broker_doesnt_believe_a_stranger(site: Site) -> None:
    """A certificate of another authority is as good as none."""
    broker = replace(site.broker, cert_file=site.stranger.certificate, key_file=site.stranger.key)
    # The broker's hanging up may overtake its reason, and then it isn't known to be final.
    with _refusal(BrokerRefused, "the client's certificate", or_kind=BrokerUnavailable), Publisher(broker):
        pass


def test_a_protected_key_is_refused_and_nobody_is_asked(site: Site) -> None:
    """OpenSSL would wait for its password at the terminal, if there is one: so there is one here."""
    program = (
        "import sys; from pathlib import Path; from cronless_dagster.rabbitmq.address import Broker;"
        "Broker('amqps://mq', cert_file=Path(sys.argv[1]), key_file=Path(sys.argv[2])).parameters()"
    )
    command = [sys.executable, "-c", program, str(site.locked.certificate), str(site.locked.key)]
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, command)  # noqa: S606 - our own interpreter
    said = b""
    with (
        suppress(OSError),
        os.fdopen(terminal, "rb", buffering=0) as screen,
    ):  # an error is Linux's end of file
        while b"phrase" not in said and (more := screen.read(1_024)):
            said += more
    os.waitpid(child, 0)
    assert b"the key without a password" in said


def test_a_key_of_another_certificate_is_refused(site: Site) -> None:
    """A mistake of every renewal."""
    broker = replace(site.broker, key_file=site.stranger.key)
    with _refusal(BrokerError, "that belong together"), Publisher(broker):
        pass


@pytest.mark.parametrize("asked", ["TLS of the other port", "no TLS of the port with TLS"])
def test_ports_that_are_mixed_up_end_in_one_line(site: Site, asked: str) -> None:
    """It isn't known whose fault it is, but it is over soon."""
    plain = site.plain.parameters().port
    if asked.startswith("TLS"):
        broker = replace(site.broker, url=f"amqps://guest:guest@localhost:{plain}")
    else:
        broker = Broker(f"amqp://guest:guest@localhost:{site.port}")
    with _refusal(BrokerUnavailable, f"amqps?://localhost:{broker.parameters().port}/%2F"), Publisher(broker):
        pass
