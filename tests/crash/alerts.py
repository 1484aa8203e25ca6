"""A real Prometheus with the alert rules of the documentation, beside a server that runs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from .server import free_port, wait_until

FOLDER = Path(__file__).parents[2] / "docs" / "deploy" / "grafana"
ALERTS = FOLDER / "alerts.yml"
START_S = 60.0

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is not installed"
)


class Alerts:
    """What Prometheus says of a server's alerts."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def samples(self, query: str) -> list[Any]:
        """Return the samples that answer a query."""
        answer = self._http.get("/api/v1/query", params={"query": query}).json()
        assert answer["status"] == "success", f"{query}: {answer}"
        found: list[Any] = answer["data"]["result"]
        return found

    def value(self, query: str) -> float:
        """Return the value of the only sample; 0 if there is none."""
        found = self.samples(query)
        return float(found[0]["value"][1]) if found else 0.0

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        return {each["metric"]["alertname"] for each in self.samples('ALERTS{alertstate="firing"}')}

    def is_ready(self) -> bool:
        """Whether it has scraped the server and evaluated the rules."""
        try:
            return self._http.get("/-/ready").is_success and bool(self.samples("llmfw_kv_tokens"))
        except httpx.TransportError:
            return False


@contextmanager
def watched(folder: Path, port: int, **scrape: Any) -> Iterator[Alerts]:
    """Run Prometheus with the configuration of the documentation against a server of this machine.

    Args:
        folder: for its configuration, data and log.
        port: of the server.
        scrape: further fields of the configuration of the scrape, such as `authorization`.
    """
    folder.mkdir()
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    [job] = config["scrape_configs"]
    job |= {"static_configs": [{"targets": [f"127.0.0.1:{port}"]}], **scrape}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy(ALERTS, folder)
    own = free_port()
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{own}"], stdout=log, stderr=log
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{own}", trust_env=False, timeout=20) as http:
            alerts = Alerts(http)
            wait_until(alerts.is_ready, START_S, "the first scrape")
            yield alerts
    finally:
        process.terminate()
        process.wait(20)
