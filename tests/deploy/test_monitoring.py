"""The dashboard and the alert rules, held to what a server exports and to Prometheus itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..crash.server import ServerProcess, free_port, wait_until

FOLDER = Path(__file__).parents[2] / "docs" / "deploy" / "grafana"
ALERTS = FOLDER / "alerts.yml"
DASHBOARD = FOLDER / "llmfw.json"
METRIC = re.compile(r"\bllmfw_[a-z0-9_]+")
VARIABLES = {"$__rate_interval": "30s", "$instance": ".*", "$model": ".*"}
SCRAPE_S = 1

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is not installed"
)


def panels() -> list[dict[str, Any]]:
    """Return the dashboard's panels, without the headings of its rows."""
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def queries() -> list[tuple[str, str]]:
    """Return the title of a panel and the text of a query for each query, with the dashboard's variables replaced."""
    found = []
    for panel in panels():
        for target in panel["targets"]:
            text = target["expr"]
            for name, value in VARIABLES.items():
                text = text.replace(name, value)
            assert "$" not in text, f"{panel['title']} has an unknown variable: {text}"
            found.append((panel["title"], text))
    return found


def promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_rules_and_config_are_valid() -> None:
    promtool("check", "config", str(FOLDER / "prometheus.yml"))
    promtool("check", "rules", str(ALERTS))


@needs_promtool
def test_each_alert_fires_for_its_fault_alone(tmp_path: Path) -> None:
    cases = (Path(__file__).parent / "alerts_test.yml").read_text()
    (tmp_path / "cases.yml").write_text(cases.replace("[ALERTS]", f"[{ALERTS}]"))
    promtool("test", "rules", str(tmp_path / "cases.yml"))


def test_each_alert_has_a_case() -> None:
    cases = (Path(__file__).parent / "alerts_test.yml").read_text()
    names = re.findall(r"alert: (\w+)", ALERTS.read_text())
    assert names
    assert [name for name in names if name not in cases] == []


def test_panels_have_ids_and_room_of_their_own() -> None:
    found = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in found}) == len(found)
    cells = [
        (x, y)
        for panel in found
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Serve the demo model, and have it answer, refuse, and run a batch."""
    options = ("--drafter", "prompt-lookup", "--max-running-requests", "4", "--log-level", "warning")
    with ServerProcess(tmp_path_factory.mktemp("demo"), "demo", *options) as server:
        run_batch(server)
        ask(server)
        yield server


def ask(server: ServerProcess) -> None:
    """Send a request that is answered, one that is refused, and one on an unknown path."""
    url = f"{server.url}/v1/chat/completions"
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "Say this is a test"}], "max_tokens": 8}
    httpx.post(url, json=body, timeout=60).raise_for_status()
    assert httpx.post(url, json=body | {"timeout": 1e-6}, timeout=60).is_error
    assert httpx.get(f"{server.url}/no/such/path", timeout=60).status_code == 404


def run_batch(server: ServerProcess) -> None:
    """Run a batch of one line to its end."""
    body = {"model": "demo", "prompt": "Hello", "max_tokens": 4}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": body}
    files = {"file": ("lines.jsonl", json.dumps(line).encode()), "purpose": (None, "batch")}
    with httpx.Client(base_url=f"{server.url}/v1", timeout=60) as client:
        file_id = client.post("/files", files=files).raise_for_status().json()["id"]
        asked = {"input_file_id": file_id, "endpoint": "/v1/completions", "completion_window": "24h"}
        batch_id = client.post("/batches", json=asked).raise_for_status().json()["id"]
        wait_until(lambda: client.get(f"/batches/{batch_id}").json()["status"] == "completed", 120, "a batch")


@pytest.fixture(scope="module")
def prometheus(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Run Prometheus, which scrapes the server and has the alert rules; yield a client of its API."""
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    config = (FOLDER / "prometheus.yml").read_text().replace("127.0.0.1:30000", f"127.0.0.1:{server.port}")
    config = re.sub(r"_interval: 5s", f"_interval: {SCRAPE_S}s", config)
    (folder / "prometheus.yml").write_text(config)
    shutil.copy(ALERTS, folder)
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20) as client:
            wait_until(lambda: is_ready(client), 60, "the start of Prometheus")
            yield client
    finally:
        process.terminate()
        process.wait(20)


def is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/-/ready").is_success
    except httpx.TransportError:
        return False


def samples_of(client: httpx.Client, query: str) -> list[Any]:
    """Return the samples that answer a query."""
    answer = client.get("/api/v1/query", params={"query": query}).json()
    assert answer["status"] == "success", f"{query}: {answer}"
    found: list[Any] = answer["data"]["result"]
    return found


@pytest.mark.long
@needs_prometheus
def test_the_queries_of_panels_are_answered(server: ServerProcess, prometheus: httpx.Client) -> None:
    wait_until(lambda: bool(samples_of(prometheus, "llmfw_build_info")), 60, "a scrape")
    left, deadline = dict.fromkeys(queries()), time.monotonic() + 60
    while left and time.monotonic() < deadline:
        ask(server)
        time.sleep(SCRAPE_S)
        left = {key: None for key in left if not samples_of(prometheus, key[1])}
    assert list(left) == []


@pytest.mark.long
@needs_prometheus
def test_no_alert_fires_without_a_fault(server: ServerProcess, prometheus: httpx.Client) -> None:
    wait_until(lambda: bool(samples_of(prometheus, "llmfw_build_info")), 60, "a scrape")
    time.sleep(3 * SCRAPE_S)
    rules = prometheus.get("/api/v1/rules").json()["data"]["groups"][0]["rules"]
    assert {rule["health"] for rule in rules} == {"ok"}
    assert samples_of(prometheus, 'ALERTS{alertstate="firing"}') == []


@pytest.mark.long
def test_all_names_are_exported(server: ServerProcess) -> None:
    text = httpx.get(f"{server.url}/metrics", timeout=60).text
    exported = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    exported |= {"llmfw_observer_dropped_events_total"}
    rules = re.findall(r"expr: (>?.*?)\n +(?:for|labels):", ALERTS.read_text(), re.DOTALL)
    used = set(METRIC.findall("\n".join([*rules, *(query for _, query in queries())])))
    assert used - exported == set()


@pytest.mark.long
def test_the_page_lists_all_metrics(server: ServerProcess) -> None:
    """In a row of a table, `…_calls_total` has the beginning of the name before it."""
    text = httpx.get(f"{server.url}/metrics", timeout=60).text
    page = (FOLDER.parents[1] / "operations.md").read_text()
    families = re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE)
    ends = re.findall(r"`…(_\w+)`", page)
    missing = [name for name in families if name not in page and not name.endswith(tuple(ends))]
    assert missing == []
