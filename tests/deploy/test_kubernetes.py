"""The Kubernetes manifests fit llmfw's options, its probes and the way that it ends."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
import yaml

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import Served, byte_tokenizer, serving
from .command_line import DRAIN_MARGIN_S, FOLDER, settings_of

MANIFESTS = FOLDER / "kubernetes"
OBJECTS: dict[str, Any] = {
    found["kind"]: found for found in yaml.safe_load_all((MANIFESTS / "llmfw.yaml").read_text())
}
POD: dict[str, Any] = OBJECTS["Deployment"]["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]
PROBES = {name: CONTAINER[f"{name}Probe"] for name in ("startup", "liveness", "readiness")}


def variables_of_the_image() -> dict[str, str]:
    return dict(re.findall(r"\b(LLMFW_\w+)=(\S+)", (FOLDER / "Dockerfile").read_text()))


def settings() -> dict[str, Any]:
    return settings_of(CONTAINER["args"], variables_of_the_image())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(
        EchoEngine(), byte_tokenizer(tmp_path_factory.mktemp("tokenizer")), api_key="secret"
    ) as served:
        yield served


@pytest.mark.parametrize("probe", PROBES)
def test_each_probe_is_a_route_without_a_key(served: Served, probe: str) -> None:
    assert httpx.get(served.url + PROBES[probe]["httpGet"]["path"]).status_code == 200


def test_no_probe_waits_for_the_engine() -> None:
    paths = {name: probe["httpGet"]["path"] for name, probe in PROBES.items()}
    assert paths == {"startup": "/health/live", "liveness": "/health/live", "readiness": "/health/ready"}


def test_the_port_is_named_alike_everywhere() -> None:
    [port] = CONTAINER["ports"]
    assert port["containerPort"] == settings()["port"]
    assert {probe["httpGet"]["port"] for probe in PROBES.values()} == {port["name"]}
    [service] = OBJECTS["Service"]["spec"]["ports"]
    assert (service["targetPort"], service["port"]) == (port["name"], settings()["port"])
    labels = OBJECTS["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert OBJECTS["Service"]["spec"]["selector"] == labels
    assert OBJECTS["Deployment"]["spec"]["selector"]["matchLabels"] == labels


def test_the_end_leaves_time_to_drain() -> None:
    program, pause = CONTAINER["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "sleep"
    needed = int(pause) + settings()["drain_timeout"] + DRAIN_MARGIN_S
    assert POD["terminationGracePeriodSeconds"] >= needed


def test_the_storage_never_has_two_servers() -> None:
    assert OBJECTS["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}
    assert OBJECTS["Deployment"]["spec"]["replicas"] == 1


def test_what_is_written_and_read_is_mounted() -> None:
    mounts = {mount["mountPath"]: mount["name"] for mount in CONTAINER["volumeMounts"]}
    assert set(mounts.values()) == {volume["name"] for volume in POD["volumes"]}
    assert {settings()["storage"], "/var/cache/llmfw", "/tmp"} <= set(mounts)
    for name in ("api_key_file", "admin_api_key_file"):
        assert mounts[str(Path(settings()[name]).parent)] == "keys"


def test_the_service_does_not_set_the_port() -> None:
    """Kubernetes' variable for a service of this name would be a wrong --port."""
    assert POD["enableServiceLinks"] is False
    name = OBJECTS["Service"]["metadata"]["name"].upper()
    with pytest.raises(click.BadParameter, match="tcp://"):
        settings_of(["serve"], {f"{name}_PORT": "tcp://10.0.0.1:30000"})


def test_the_pod_runs_without_root() -> None:
    [user] = re.findall(r"^USER (\d+)$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    assert (POD["securityContext"]["runAsUser"], POD["securityContext"]["runAsNonRoot"]) == (int(user), True)
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomize_reads_the_manifests() -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", MANIFESTS], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {found["kind"] for found in yaml.safe_load_all(done.stdout)} == OBJECTS.keys()
