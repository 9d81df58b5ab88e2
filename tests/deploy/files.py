"""What lies in ``deploy/``, read as the programs read it that it is for."""

from __future__ import annotations

import copy
import functools
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
WORKLOADS = ("Deployment", "StatefulSet", "Job", "CronJob")

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
needs_terraform = pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not installed")


def texts() -> dict[str, str]:
    """The text of each file that is ours to keep free of secrets, by its path."""
    return {
        str(file.relative_to(ROOT)): file.read_text()
        for file in sorted([*DEPLOY.rglob("*"), ROOT / "docs" / "deploy.md"])
        if file.is_file()
        and not {"secrets", ".terraform", "__pycache__"} & set(file.relative_to(ROOT).parts)
        and file.suffix not in (".zip", ".tfstate", ".tfplan")
    }


@functools.cache
def compose() -> dict[str, Any]:
    """The compose file, its anchors merged."""
    read: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return read


def settings_env() -> dict[str, str]:
    """The settings that all roles share."""
    lines = (DEPLOY / "config" / "settings.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@functools.cache
def manifests() -> list[dict[str, Any]]:
    """Every Kubernetes object, with the patches of the base applied, without kubectl."""
    patches = yaml.safe_load((KUBERNETES / "base" / "hardened.yaml").read_text())
    found = []
    for file in sorted(KUBERNETES.rglob("*.yaml")):
        if file.name in ("kustomization.yaml", "hardened.yaml"):
            continue
        for one in _read_all(file.read_text()):
            hardened = file.parent.name == "base" and one["kind"] in ("Deployment", "Job")
            found.append(_patched(one, patches) if hardened else one)
    return found


@functools.cache
def workloads() -> list[dict[str, Any]]:
    """Those of the objects that run containers."""
    return [one for one in manifests() if one["kind"] in WORKLOADS]


def pod_of(workload: dict[str, Any]) -> dict[str, Any]:
    """The template of a workload's pods."""
    spec = workload["spec"]
    spec = spec["jobTemplate"]["spec"] if workload["kind"] == "CronJob" else spec
    template: dict[str, Any] = spec["template"]
    return template


def container_of(workload: dict[str, Any]) -> dict[str, Any]:
    """The one container of a workload."""
    (container,) = pod_of(workload)["spec"]["containers"]
    return dict(container)


def name_of(thing: dict[str, Any]) -> str:
    """What a test's id shows of an object."""
    return f"{thing['kind']}/{thing['metadata']['name']}"


def rendered(overlay: Path) -> list[dict[str, Any]]:
    """The objects as kubectl renders them."""
    done = subprocess.run(["kubectl", "kustomize", overlay], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return _read_all(done.stdout)


def is_pinned(image: str) -> bool:
    """Whether an image has a version in its tag, with at least two numbers."""
    return re.search(r":v?\d+\.\d+[^:/]*\Z", image) is not None


def overlay_with(directory: Path, *components: str) -> Path:
    """Write an overlay of the base and such components, from anywhere."""
    base = os.path.relpath(KUBERNETES, directory)
    (directory / "kustomization.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                "namespace": "cronless",
                "resources": [f"{base}/base"],
                "components": [f"{base}/{name}" for name in components],
            }
        )
    )
    return directory


def _read_all(text: str) -> list[dict[str, Any]]:
    # In C where PyYAML has it: ten times as fast.
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def _patched(thing: dict[str, Any], patches: list[dict[str, Any]]) -> dict[str, Any]:
    """Apply additions of RFC 6902, the only operations that the base uses."""
    thing = copy.deepcopy(thing)
    for patch in patches:
        assert patch["op"] == "add"
        *steps, last = patch["path"].strip("/").split("/")
        place: Any = thing
        for step in steps:
            place = place[int(step)] if isinstance(place, list) else place[step]
        place[last] = copy.deepcopy(patch["value"])
    return thing
