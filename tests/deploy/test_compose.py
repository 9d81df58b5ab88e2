"""``compose.yaml``: valid, hardened, complete."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.files import DEPLOY, compose, is_pinned, settings_env

SERVICES: dict[str, dict[str, Any]] = compose()["services"]

every_service = pytest.mark.parametrize("name", SERVICES)


def test_it_follows_the_specification() -> None:
    """The schema of the Compose Specification knows every key."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "check_jsonschema",
            "--builtin-schema",
            "vendor.compose-spec",
            DEPLOY / "compose.yaml",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@every_service
def test_each_service_is_hardened(name: str) -> None:
    """No root, no rights to gain, no writable image, and limits to what it can take from the machine."""
    service = SERVICES[name]
    assert int(service["user"].partition(":")[0]) > 0
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}


@every_service
def test_each_image_is_pinned(name: str) -> None:
    """By a version in its tag."""
    assert is_pinned(SERVICES[name]["image"])


@every_service
def test_each_port_is_on_loopback(name: str) -> None:
    """Nothing is published to the network, and the private addresses not at all."""
    private = {
        settings_env()[f"CRONLESS_{bind}_BIND"].rpartition(":")[2] for bind in ("API_PRIVATE", "METRICS")
    }
    for port in SERVICES[name].get("ports", []):
        address, _, inner = port.split(":")
        assert address == "127.0.0.1"
        assert inner not in private


@every_service
def test_each_service_says_how_it_is(name: str) -> None:
    """By a health check of its own or of the image; those that end, and the client, say so by their status."""
    service = SERVICES[name]
    if service.get("healthcheck", {}).get("disable"):
        assert name in ("client", "migrate", "migrate-dagster")
    elif "healthcheck" not in service:
        assert service["command"] == ["cronless", "serve"]
    else:
        assert service["healthcheck"]["test"][0] == "CMD"


@every_service
def test_what_each_waits_for_can_come(name: str) -> None:
    """The services it depends on are there, and can get as far as it waits for."""
    for other, state in SERVICES[name].get("depends_on", {}).items():
        if state["condition"] == "service_healthy":
            assert not SERVICES[other].get("healthcheck", {}).get("disable"), other
        else:
            assert SERVICES[other]["restart"] == "no", other


@every_service
def test_each_has_the_secrets_that_it_names(name: str) -> None:
    """A file that a variable names is one that is mounted, and every mounted one is declared."""
    service = SERVICES[name]
    mounted = {one if isinstance(one, str) else one["source"] for one in service.get("secrets", [])}
    assert mounted <= set(compose()["secrets"])
    named = {
        Path(path).name
        for path in service.get("environment", {}).values()
        if path.startswith("/run/secrets/")
    }
    if service.get("env_file"):
        named.add("database_url")
    assert named <= mounted
    if name.startswith(("api", "worker", "code")):
        assert "broker_url" in mounted


def test_secrets_go_to_those_who_need_them() -> None:
    """Only the client has the client's, and only the API the file of who may call what."""
    holders = {
        secret: {name for name, one in SERVICES.items() if secret in one.get("secrets", [])}
        for secret in compose()["secrets"]
    }
    assert holders["client_path"] == holders["client_token"] == holders["client_key"] == {"client"}
    assert holders["access.toml"] == {"api-1", "api-2"}
    assert holders["postgres_password"] == {"postgres"}


def test_every_mounted_file_is_there() -> None:
    """What is mounted from this folder lies in it."""
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in compose()["volumes"], (
                source
            )


def test_nothing_inside_leads_outside() -> None:
    """The database, the broker and the daemon have no way out, and nobody is on a network that isn't declared."""
    networks = compose()["networks"]
    assert networks["inside"]["internal"] is True
    for name, service in SERVICES.items():
        assert set(service["networks"]) <= set(networks)
        if name in ("postgres", "rabbitmq", "dagster-daemon", "client", "migrate", "migrate-dagster"):
            assert set(service["networks"]) == {"inside"}
        if "ports" in service:
            assert "outside" in service["networks"]


def test_the_client_calls_both_nodes() -> None:
    """Its targets are the services that serve the API, at the port where they listen."""
    from cronless_dagster.client.config import load_config

    targets = load_config(DEPLOY / "compose" / "checks.toml").called
    nodes = {name for name, one in SERVICES.items() if one.get("command") == ["cronless", "serve"]}
    assert {one.host for one in targets} == nodes
    assert len(nodes) == 2
    assert {str(one.port) for one in targets} == {settings_env()["CRONLESS_API_BIND"].rpartition(":")[2]}


def test_prometheus_asks_services_that_are_there() -> None:
    """Each name in its configuration is that of a service, at the port where that one shows its metrics."""
    read = yaml.safe_load((DEPLOY / "prometheus" / "scrape.yaml").read_text())
    asked = [one for job in read["scrape_configs"] for one in job["dns_sd_configs"]]
    assert {name for one in asked for name in one["names"]} == {"api-1", "api-2", "worker", "code-location"}
    for one in asked:
        bind = "API_PRIVATE" if one["names"][0].startswith("api") else "METRICS"
        assert str(one["port"]) == settings_env()[f"CRONLESS_{bind}_BIND"].rpartition(":")[2]
