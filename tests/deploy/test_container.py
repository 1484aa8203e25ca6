"""The Dockerfile and the Compose file fit the package, its options and its routes."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from ..crash.server import free_port
from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import Served, byte_tokenizer, serving
from ..package import build
from .command_line import DRAIN_MARGIN_S, FOLDER, seconds, settings_of

ROOT = FOLDER.parents[1]
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())


def instructions() -> list[tuple[str, str]]:
    """Return each instruction of the Dockerfile, and what follows it on its lines."""
    text = re.sub(r"^#.*\n", "", (FOLDER / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1].strip()) for line in lines if line]


def the(name: str) -> str:
    """Return the only instruction of this name."""
    [found] = [rest for instruction, rest in instructions() if instruction == name]
    return found


def environment() -> dict[str, str]:
    """Return the variables that the image sets."""
    return dict(word.split("=", 1) for word in shlex.split(the("ENV")))


def test_the_image_serves_as_another_user_than_root() -> None:
    assert the("USER") == "10001"
    assert "--uid 10001" in (FOLDER / "Dockerfile").read_text()
    assert json.loads(the("ENTRYPOINT")) == ["tini", "--", "llmfw"]
    settings = settings_of(json.loads(the("CMD")), environment())
    assert (settings["host"], settings["port"]) == ("0.0.0.0", int(the("EXPOSE")))
    assert settings["storage"] == "/var/lib/llmfw"


def test_what_is_copied_makes_the_wheel(tmp_path: Path) -> None:
    """The ignore file lets the same files pass, and no others."""
    copied = [word for name, rest in instructions() if name == "COPY" for word in rest.split()[:-1]]
    ignored = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    assert sorted(ignored) == sorted(["*", *(f"!{name}" for name in copied), "**/__pycache__"])
    source = tmp_path / "source"
    source.mkdir()
    for name in copied:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source)
    assert build("wheel", source, source / "made").name.startswith("llmfw_engine-")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(
        EchoEngine(), byte_tokenizer(tmp_path_factory.mktemp("tokenizer")), api_key="secret"
    ) as served:
        yield served


def health_check(port: int) -> int:
    """Return the exit code of the image's health check for this port."""
    _, _, command = the("HEALTHCHECK").partition("CMD ")
    python, *rest = json.loads(command.replace("30000", str(port)))
    assert python == "python"
    done = subprocess.run([sys.executable, *rest], capture_output=True, timeout=60, check=False)
    return done.returncode


def test_the_health_check_needs_no_key(served: Served) -> None:
    assert "'/health/live'" in the("HEALTHCHECK")
    assert health_check(httpx.URL(served.url).port or 0) == 0


def test_the_health_check_fails_without_a_server() -> None:
    assert health_check(free_port()) != 0


def test_compose_serves_with_its_secrets() -> None:
    service = COMPOSE["services"]["llmfw"]
    settings = settings_of(service["command"], environment())
    for name in ("api_key_file", "admin_api_key_file"):
        assert settings[name].removeprefix("/run/secrets/") in service["secrets"]
    assert settings["max_connections_per_address"] == settings["max_connections"]
    assert seconds(service["stop_grace_period"]) >= settings["drain_timeout"] + DRAIN_MARGIN_S


def test_compose_mounts_the_folders_that_are_written() -> None:
    mounted = [volume.split(":")[1] for volume in COMPOSE["services"]["llmfw"]["volumes"]]
    values = environment()
    assert values["LLMFW_STORAGE"] in mounted
    assert f"{values['XDG_CACHE_HOME']}/llmfw" in mounted
    assert any(values["HF_HOME"].startswith(folder) for folder in mounted)


def test_compose_defines_what_its_services_name() -> None:
    for service in COMPOSE["services"].values():
        assert set(service.get("secrets", [])) <= COMPOSE["secrets"].keys()
        assert {config["source"] for config in service.get("configs", [])} <= COMPOSE["configs"].keys()
        sources = [volume.split(":")[0] for volume in service["volumes"]]
        assert all((FOLDER / path).is_file() for path in sources if path.startswith("."))
        assert {name for name in sources if not name.startswith(".")} <= COMPOSE["volumes"].keys()
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    build = COMPOSE["services"]["llmfw"]["build"]
    assert (FOLDER / build["context"] / build["dockerfile"]).samefile(FOLDER / "Dockerfile")


def prometheus_config() -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(COMPOSE["configs"]["prometheus"]["content"])
    return config


def test_compose_scrapes_as_the_monitoring_page_says() -> None:
    """But for the address and the key, Prometheus' configuration is that of the folder grafana."""
    config, plain = prometheus_config(), yaml.safe_load((FOLDER / "grafana" / "prometheus.yml").read_text())
    [scrape] = config["scrape_configs"]
    assert scrape.pop("static_configs") == [{"targets": [f"llmfw:{the('EXPOSE')}"]}]
    assert scrape.pop("authorization") == {"credentials_file": "/run/secrets/metrics"}
    plain["scrape_configs"][0].pop("static_configs")
    assert config == plain


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_accepts_its_configuration(tmp_path: Path) -> None:
    config = prometheus_config()
    config["scrape_configs"][0]["authorization"]["credentials_file"] = str(tmp_path / "metrics")
    (tmp_path / "metrics").write_text("0123456789abcdef")
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy(FOLDER / "grafana" / "alerts.yml", tmp_path)
    command = ["promtool", "check", "config", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    contents = {name: yaml.safe_load(config["content"]) for name, config in COMPOSE["configs"].items()}
    [source] = contents["grafana_datasources"]["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    [provider] = contents["grafana_dashboards"]["providers"]
    grafana = COMPOSE["services"]["grafana"]
    mounted = grafana["volumes"][0].split(":")[1]
    assert mounted == f"{provider['options']['path']}/llmfw.json"
    assert mounted == grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
