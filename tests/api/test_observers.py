"""`--observers`: chosen, given options, and told of what a server does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from llmfw.api.cli import build_cli
from llmfw.api.services.observer_choice import observers_of
from llmfw.api.services.observing import observing
from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.plugin.plugins import load_plugins

from ..crash.server import echo_server

LOG = "observer.request-log.path"


@pytest.mark.parametrize(
    ("observers", "options", "why"),
    [
        ("none", {LOG: "x"}, "no observer 'request-log' is chosen"),
        ("request-log", {"observer.request-log.pth": "x"}, "observer 'request-log' has no option 'pth'"),
        ("request-log", {"observer.request-log.fields": '["prompt"]'}, "observer.request-log.fields is"),
        ("request-log", {LOG: "/no/such/folder/log"}, "cannot write '/no/such/folder/log'"),
        ("request-log,request-log", {}, "named twice"),
        ("request-lo", {}, "unknown observer 'request-lo'; known: otel, request-log, request-metrics"),
    ],
)
async def test_what_cannot_work_is_refused(observers: str, options: dict[str, Any], why: str) -> None:
    config = ServerConfig(served_model_name="m", observers=observers, options=options)
    with pytest.raises(ConfigError, match=why.replace("(", r"\(")):
        async with observing(config, load_plugins().registry):
            pass


@pytest.mark.parametrize("given", ["-o", "environment", "file"])
def test_options_come_from_all_sources(tmp_path: Path, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["serve", "--show-config", "--observers", "request-log"]
    if given == "-o":
        arguments += ["-o", f"{LOG}=/x"]
    elif given == "environment":
        monkeypatch.setenv("LLMFW_OBSERVER__REQUEST_LOG__PATH", "/x")
    else:
        (tmp_path / "llmfw.toml").write_text('[options.observer.request-log]\npath = "/x"\n')
        arguments += ["--config", str(tmp_path / "llmfw.toml")]
    shown = CliRunner().invoke(build_cli(), arguments).output
    name = "request_log" if given == "environment" else "request-log"
    assert f'[options.observer.{name}]\npath = "/x"' in shown


def test_a_server_reports_its_requests(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    fields = '["id","finish","tenant","output_tokens"]'
    options = (
        "--observers",
        "request-log,request-metrics",
        "-o",
        f"{LOG}={log}",
        "-o",
        f"observer.request-log.fields={fields}",
    )
    body: dict[str, Any] = {"model": "echo", "prompt": "Hello", "user": "bob"}
    with echo_server(tmp_path / "served", *options) as server:
        url = f"{server.url}/v1/completions"
        whole = httpx.post(url, json=body | {"n": 2}, timeout=60).json()
        short = httpx.post(url, json=body | {"max_tokens": 3}, timeout=60).json()
        stopped = httpx.post(url, json=body | {"stop": "l"}, timeout=60).json()
        metrics = httpx.get(f"{server.url}/metrics", timeout=60).text
        server.stop()
    found = {}
    for line in map(json.loads, log.read_text().splitlines()):
        found[line["id"]] = (line["finish"], line["tenant"], line["output_tokens"])
    assert found == {
        f"{whole['id']}-0": ("stop", "bob", 6),
        f"{whole['id']}-1": ("stop", "bob", 6),
        f"{short['id']}-0": ("length", "bob", 3),
        f"{stopped['id']}-0": ("stop", "bob", 3),
    }
    dropped = 'llmfw_observer_dropped_events_total{name="request-log",plugin="request_log"} 0.0'
    assert dropped in metrics.splitlines()
    labels = '{class="live",model="echo"}'
    assert f"llmfw_time_to_first_token_seconds_count{labels} 4.0" in metrics.splitlines()


@pytest.mark.parametrize(
    ("observers", "left_out", "names"),
    [
        ("auto", (), "request-metrics"),
        ("auto", ("request_metrics",), "none"),
        ("none", (), "none"),
        ("request-log", (), "request-log"),
    ],
)
def test_auto_stands_for_the_metrics(observers: str, left_out: tuple[str, ...], names: str) -> None:
    config = ServerConfig(served_model_name="m", observers=observers)
    assert observers_of(config, load_plugins(left_out).registry) == names
