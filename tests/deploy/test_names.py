"""What ``deploy/`` calls by name is what the code has: settings, commands, ports, time limits."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import click
import pytest
import yaml

from tests.deploy.files import (
    DEPLOY,
    ROOT,
    compose,
    container_of,
    name_of,
    pod_of,
    settings_env,
    texts,
    workloads,
)


def _commands() -> dict[str, list[str]]:
    ours = {
        f"compose/{name}": one["command"]
        for name, one in compose()["services"].items()
        if one["image"].startswith("cronless-dagster:")
    }
    for one in workloads():
        container = container_of(one)
        if container["image"].startswith("cronless-dagster:"):
            ours[name_of(one)] = container["args"]
    return ours


COMMANDS = _commands()


def _parsed(words: list[str]) -> click.Context:
    """Parse a command's words down to the command that would run, without running it."""
    from cronless_dagster.cli.app import cli

    command, name, context = cli, "cronless", None
    while True:
        context = command.make_context(name, list(words), parent=context)
        if not isinstance(command, click.Group):
            return context
        rest = [*context._protected_args, *context.args]
        _, found, words = command.resolve_command(context, rest)
        assert found is not None
        command, name = found, rest[0]


def test_every_setting_is_one() -> None:
    """Each variable of ours that is written anywhere in here is one that something reads."""
    from cronless_dagster.client.credentials import SECRETS as CLIENT_SECRETS
    from cronless_dagster.client.handlers import CONFIG_VARIABLE
    from cronless_dagster.client.running import SELF_VARIABLE
    from cronless_dagster.settings import _SECRETS, Settings, variable_of

    known = {variable_of(item.name) for item in fields(Settings)}
    known |= {f"{variable_of(name)}_FILE" for name in _SECRETS}
    known |= {CONFIG_VARIABLE, SELF_VARIABLE}
    known |= {f"CRONLESS_CLIENT_{name.upper()}{end}" for name in CLIENT_SECRETS for end in ("", "_FILE")}
    written = {
        (file, name)
        for file, text in texts().items()
        for name in re.findall(r"\bCRONLESS_[A-Z_]*[A-Z]\b", text)
    }
    assert {one for one in written if one[1] not in known} <= {
        # Of which the function's code puts together the names.
        ("deploy/terraform/aws/client/function.py", "CRONLESS_CLIENT")
    }
    assert len(written) > 20


@pytest.mark.parametrize("where", [one for one, words in COMMANDS.items() if words[0] == "cronless"])
def test_each_command_of_ours_is_one(where: str) -> None:
    """The command line takes the command with these options."""
    assert _parsed(COMMANDS[where][1:]).command.name


@pytest.mark.dagster
@pytest.mark.parametrize(
    "where", [one for one, words in COMMANDS.items() if one[:8] == "compose/" and words[0] != "cronless"]
)
def test_each_command_of_dagster_is_one(where: str) -> None:
    """Dagster's command lines take theirs; those in Kubernetes are the same."""
    program, *words = COMMANDS[where]
    command: Any
    if program == "dagster":
        from dagster._cli import create_dagster_cli

        command = create_dagster_cli()
    elif program == "dagster-daemon":
        from dagster._daemon.cli import create_dagster_daemon_cli

        command = create_dagster_daemon_cli()
    else:
        assert program == "dagster-webserver"
        from dagster_webserver.cli import dagster_webserver

        command = dagster_webserver
    while isinstance(command, click.Group):
        command, words = command.commands[words[0]], words[1:]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_the_roles_are_all_there() -> None:
    """Both ways to deploy have the same parts."""
    roles = {"api", "worker", "client", "code-location", "dagster-webserver", "dagster-daemon"}
    services = {re.sub(r"-\d$", "", name) for name in compose()["services"]}
    assert {*roles, "postgres", "rabbitmq", "migrate", "migrate-dagster"} <= services
    names = {one["metadata"]["name"] for one in workloads()}
    assert {*roles, "postgres", "rabbitmq", "migrate", "migrate-dagster"} == names


def test_both_have_the_same_commands() -> None:
    """A role does the same under compose and in Kubernetes, but for how it logs and where files lie."""

    def plain(words: list[str]) -> list[str]:
        return [
            word.replace("/opt/dagster/workspace/", "/opt/dagster/") for word in words if word != "--json"
        ]

    for where, words in COMMANDS.items():
        kind, name = where.split("/")
        if kind in ("Deployment", "Job"):
            theirs = COMMANDS[f"compose/{'api-1' if name == 'api' else name}"]
            assert plain(words) == plain(theirs), where


def test_ports_are_those_of_the_settings() -> None:
    """What listens, what is exposed, probed and published agree, with each other and with the defaults."""
    from cronless_dagster.settings import Settings

    shared, usual = settings_env(), Settings.from_env({})
    assert shared["CRONLESS_API_BIND"].rpartition(":")[2] == usual.api_bind.rpartition(":")[2]
    assert shared["CRONLESS_API_PRIVATE_BIND"].rpartition(":")[2] == usual.api_private_bind.rpartition(":")[2]
    ports = {
        (one["metadata"]["name"], port["name"]): str(port["containerPort"])
        for one in workloads()
        for port in container_of(one).get("ports", [])
    }
    assert ports["api", "checks"] == shared["CRONLESS_API_BIND"].rpartition(":")[2]
    assert ports["api", "private"] == shared["CRONLESS_API_PRIVATE_BIND"].rpartition(":")[2]
    for role in ("code-location", "worker"):
        assert ports[role, "metrics"] == shared["CRONLESS_METRICS_BIND"].rpartition(":")[2]
    workspace = yaml.safe_load((DEPLOY / "config" / "workspace.yaml").read_text())
    (served,) = workspace["load_from"]
    assert served["grpc_server"]["host"] == "code-location"
    assert str(served["grpc_server"]["port"]) == ports["code-location", "grpc"]
    assert served["grpc_server"]["location_name"] == shared["CRONLESS_DAGSTER_LOCATION"]
    address = f"http://dagster-webserver:{ports['dagster-webserver', 'http']}"
    assert shared["CRONLESS_DAGSTER_API_URL"] == address
    for where in ("code-location", "dagster-webserver"):
        words = COMMANDS[f"Deployment/{where}"]
        assert words[words.index("--port") + 1] in {
            port for (name, _), port in ports.items() if name == where
        }


def test_probed_paths_are_served() -> None:
    """The API's probes ask for paths that its private application has."""
    from cronless_dagster.api.private import private_app

    served = {route.path for route in private_app(None).routes}  # type: ignore[arg-type,attr-defined]
    (api,) = [one for one in workloads() if one["metadata"]["name"] == "api"]
    container = container_of(api)
    probes = {
        name: container[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")
    }
    assert {one["path"] for one in probes.values()} <= served
    assert {one["port"] for one in probes.values()} == {"private"}
    assert probes["readinessProbe"]["path"] == "/readyz"
    assert probes["livenessProbe"]["path"] == "/healthz"


@pytest.mark.parametrize(("role", "options"), [("api", ("linger", "drain")), ("worker", ("drain",))])
def test_there_is_time_to_end_in_order(role: str, options: tuple[str, ...]) -> None:
    """Whoever stops a container waits for longer than what runs in it may take to end."""
    where = f"Deployment/{role}"
    parsed = _parsed(COMMANDS[where][1:]).params
    needed = sum(parsed[option] for option in options)
    (deployed,) = [one for one in workloads() if name_of(one) == where]
    assert pod_of(deployed)["spec"]["terminationGracePeriodSeconds"] > needed
    for name, service in compose()["services"].items():
        if re.fullmatch(rf"{role}(-\d)?", name):
            assert int(service["stop_grace_period"].removesuffix("s")) > needed


def test_dagsters_settings_are_those_of_this_repository() -> None:
    """The copy that Kubernetes and compose mount is the file whose effect is tested elsewhere."""
    assert (DEPLOY / "config" / "dagster.yaml").read_text() == (ROOT / "dagster.yaml").read_text()


@pytest.mark.parametrize("file", sorted(DEPLOY.rglob("checks.toml")), ids=lambda file: file.parent.name)
def test_clients_call_checks_that_are_there(file: Any) -> None:
    """Each configuration can be read, and calls every built-in check and nothing else."""
    from cronless_dagster.checks.built_in import built_in
    from cronless_dagster.client.config import load_config

    assert {one.name for one in load_config(file).checks} == set(built_in())
