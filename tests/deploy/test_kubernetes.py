"""The Kubernetes manifests: valid, hardened, and fitting together."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import kubernetes_validate.utils
import pytest

from tests.deploy.files import (
    KUBERNETES,
    ROOT,
    container_of,
    is_pinned,
    manifests,
    name_of,
    needs_kubectl,
    overlay_with,
    pod_of,
    rendered,
    settings_env,
    workloads,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# The oldest that still gets fixes at the time of writing knows all that is used here, and so does the newest.
VERSIONS = ("1.33", kubernetes_validate.latest_version())

ALL = manifests()
every_workload = pytest.mark.parametrize("workload", workloads(), ids=name_of)


def _of_kind(kind: str) -> list[dict[str, Any]]:
    return [one for one in ALL if one["kind"] == kind]


def _selects(labels: dict[str, str], selector: dict[str, Any]) -> bool:
    for one in selector.get("matchExpressions", []):
        assert one["operator"] == "In"
        if labels.get(one["key"]) not in one["values"]:
            return False
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def _selected(selector: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in workloads() if _selects(pod_of(one)["metadata"]["labels"], selector)]


@pytest.fixture(scope="module", autouse=True)
def _schemas_are_read_once() -> Iterator[None]:
    """Else each object costs another reading of all definitions."""
    with pytest.MonkeyPatch.context() as patching:
        read = kubernetes_validate.utils.schema_contents
        patching.setattr(kubernetes_validate.utils, "schema_contents", functools.cache(read))
        yield


@pytest.mark.parametrize("version", VERSIONS)
def test_each_object_follows_the_schema(version: str) -> None:
    """Kubernetes' own schemas know every field, and no required one is missing."""
    for one in ALL:
        kubernetes_validate.validate(one, version, strict=True)


@every_workload
def test_each_pod_is_hardened(workload: dict[str, Any]) -> None:
    """As the level `restricted` of Kubernetes' pod security standards asks, and with an image nobody can write to."""
    pod, container = pod_of(workload)["spec"], container_of(workload)
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(pod)


@every_workload
def test_each_container_has_its_share(workload: dict[str, Any]) -> None:
    """Requests and limits, of processor and memory; what it may write is limited too."""
    resources = container_of(workload)["resources"]
    for kind in ("requests", "limits"):
        assert set(resources[kind]) == {"cpu", "memory"}
    for volume in pod_of(workload)["spec"]["volumes"]:
        if "emptyDir" in volume:
            assert "sizeLimit" in volume["emptyDir"]


@every_workload
def test_each_image_is_pinned(workload: dict[str, Any]) -> None:
    """By a version in its tag."""
    assert is_pinned(container_of(workload)["image"])


@every_workload
def test_each_long_running_container_is_probed(workload: dict[str, Any]) -> None:
    """But for the client, which serves nothing; and a worker is never killed for a broker that is away."""
    name, container = workload["metadata"]["name"], container_of(workload)
    probes = {one for one in ("startupProbe", "readinessProbe", "livenessProbe") if one in container}
    expected = {
        "client": set(),
        "migrate": set(),
        "migrate-dagster": set(),
        "worker": {"readinessProbe"},
        "dagster-daemon": {"livenessProbe"},
    }
    assert probes == expected.get(name, {"startupProbe", "readinessProbe", "livenessProbe"})
    named = {port["name"] for port in container.get("ports", [])}
    for one in probes:
        for way in ("httpGet", "tcpSocket"):
            if way in container[one]:
                assert container[one][way]["port"] in named


@every_workload
def test_each_mount_has_its_volume(workload: dict[str, Any]) -> None:
    """And each volume a mount."""
    spec = workload["spec"]
    volumes = {one["name"] for one in pod_of(workload)["spec"]["volumes"]}
    volumes |= {one["metadata"]["name"] for one in spec.get("volumeClaimTemplates", [])}
    assert {one["name"] for one in container_of(workload)["volumeMounts"]} == volumes


def test_secrets_are_those_that_the_guide_makes() -> None:
    """Each secret that a pod mounts is made by a command of the guide, from files that `make-secrets` writes."""
    guide = (ROOT / "docs" / "deploy.md").read_text()
    mounted = set()
    for one in workloads():
        for volume in pod_of(one)["spec"]["volumes"]:
            mounted |= {source["secret"]["name"] for source in volume.get("projected", {}).get("sources", [])}
            mounted |= {volume["secret"]["secretName"]} if "secret" in volume else set()
    assert mounted == {"database", "broker", "access", "client", "postgres", "rabbitmq"}
    for name in mounted:
        assert f"secret generic {name} --from-file=" in guide
    for path in settings_env().values():
        if path.startswith("/run/secrets/"):
            assert f"--from-file=deploy/secrets/{Path(path).name}" in guide


def test_secrets_go_to_those_who_need_them() -> None:
    """Only the client has the client's, only the API the access file; the web server and the daemon need no broker."""
    holders: dict[str, set[str]] = {}
    for one in workloads():
        for volume in pod_of(one)["spec"]["volumes"]:
            for source in volume.get("projected", {}).get("sources", []):
                holders.setdefault(source["secret"]["name"], set()).add(one["metadata"]["name"])
    assert holders["client"] == {"client"}
    assert holders["access"] == {"api"}
    assert holders["postgres"] == {"postgres"}
    assert holders["broker"] == {"api", "worker", "code-location"}
    assert "client" not in holders["database"]


@pytest.mark.parametrize("service", _of_kind("Service"), ids=name_of)
def test_each_service_leads_to_pods(service: dict[str, Any]) -> None:
    """Its selector selects one workload, and its target is a port that this one names."""
    (workload,) = _selected({"matchLabels": service["spec"]["selector"]})
    named = {port["name"] for port in container_of(workload)["ports"]}
    assert {one["targetPort"] for one in service["spec"]["ports"]} <= named


@pytest.mark.parametrize("workload", [one for one in workloads() if "Job" not in one["kind"]], ids=name_of)
def test_each_workload_finds_its_pods(workload: dict[str, Any]) -> None:
    """Its selector is that of its template."""
    assert _selects(pod_of(workload)["metadata"]["labels"], workload["spec"]["selector"])


def test_what_has_more_than_one_pod_keeps_some() -> None:
    """A drained machine takes one pod at a time; what has a single one has no budget, which would block the drain."""
    guarded = {one["metadata"]["name"] for one in _of_kind("PodDisruptionBudget")}
    scaled = {one["spec"]["scaleTargetRef"]["name"] for one in _of_kind("HorizontalPodAutoscaler")}
    several = {
        one["metadata"]["name"] for one in _of_kind("Deployment") if one["spec"].get("replicas", 1) > 1
    }
    assert guarded == several | scaled
    for one in _of_kind("PodDisruptionBudget"):
        assert len(_selected(one["spec"]["selector"])) == 1
    for one in _of_kind("Deployment"):
        if one["metadata"]["name"] in scaled:
            # Else each `kubectl apply` would undo what the autoscaler did.
            assert "replicas" not in one["spec"]


class TestNetwork:
    def test_nothing_is_allowed_by_default(self) -> None:
        """One policy selects every pod and allows nothing."""
        assert {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]} in [
            one["spec"] for one in _of_kind("NetworkPolicy")
        ]

    @pytest.mark.parametrize("policy", _of_kind("NetworkPolicy"), ids=name_of)
    def test_each_policy_names_what_is_there(self, policy: dict[str, Any]) -> None:
        """Its pods exist, those who come in exist, and so do the ports by name."""
        spec = policy["spec"]
        targets = _selected(spec["podSelector"])
        assert targets
        for rule in spec.get("ingress", []):
            for peer in rule["from"]:
                assert "namespaceSelector" in peer or _selected(peer["podSelector"])
            for one in targets:
                named = {port["name"] for port in container_of(one)["ports"]}
                assert {port["port"] for port in rule["ports"]} <= named
        for rule in spec.get("egress", []):
            for peer in rule.get("to", []):
                assert "ipBlock" in peer or _selected(peer["podSelector"])

    def test_the_private_address_is_for_prometheus_alone(self) -> None:
        """Neither an Ingress nor another pod gets to health and metrics of the API."""
        for policy in _of_kind("NetworkPolicy"):
            for rule in policy["spec"].get("ingress", []):
                if {"port": "private", "protocol": "TCP"} in rule["ports"]:
                    (peer,) = rule["from"]
                    assert peer["namespaceSelector"]["matchLabels"] == {
                        "kubernetes.io/metadata.name": "monitoring"
                    }
        (ingress,) = _of_kind("Ingress")
        backends = [path["backend"]["service"] for path in ingress["spec"]["rules"][0]["http"]["paths"]]
        assert backends == [{"name": "api", "port": {"name": "checks"}}]


@pytest.fixture(scope="module", params=["trial", "production", "cronjob"])
def overlay(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The objects of an overlay: the two that are shipped, and one with the CronJob in place of the loop."""
    if request.param != "cronjob":
        return rendered(KUBERNETES / request.param)
    return rendered(overlay_with(tmp_path_factory.mktemp("overlay"), "client-cronjob"))


@needs_kubectl
class TestRendered:
    def test_it_follows_the_schema(self, overlay: list[dict[str, Any]]) -> None:
        """What kubectl would send is valid too, and all of it goes into the namespace."""
        for one in overlay:
            kubernetes_validate.validate(one, VERSIONS[-1], strict=True)
            if one["kind"] != "Namespace":
                assert one["metadata"]["namespace"] == "cronless"

    def test_the_patches_reach_every_pod(self, overlay: list[dict[str, Any]]) -> None:
        """The pods are as hardened as these tests take them to be when kubectl isn't there."""
        expected = {name_of(one): pod_of(one)["spec"] for one in workloads()}
        found = [one for one in overlay if name_of(one) in expected]
        assert len(found) >= 8
        for one in found:
            pod, same = pod_of(one)["spec"], expected[name_of(one)]
            assert pod["securityContext"] == same["securityContext"]
            assert container_of(one)["securityContext"] == same["containers"][0]["securityContext"]
            assert is_pinned(container_of(one)["image"])

    def test_each_config_map_is_found(self, overlay: list[dict[str, Any]]) -> None:
        """Pods refer to the names that kubectl gave to the generated ConfigMaps."""
        made = {one["metadata"]["name"] for one in overlay if one["kind"] == "ConfigMap"}
        used = set()
        for one in overlay:
            if one["kind"] in ("Deployment", "Job", "CronJob"):
                spec, container = pod_of(one)["spec"], container_of(one)
                used |= {volume["configMap"]["name"] for volume in spec["volumes"] if "configMap" in volume}
                used |= {source["configMapRef"]["name"] for source in container.get("envFrom", [])}
        assert used == made

    def test_there_is_one_client(self, overlay: list[dict[str, Any]]) -> None:
        """The loop or the CronJob, not both."""
        clients = [
            one["kind"]
            for one in overlay
            if one["metadata"]["name"] == "client" and one["kind"] in ("Deployment", "CronJob")
        ]
        assert len(clients) == 1
