"""`--otlp-endpoint`: a served model's requests reach a collector, with the client's trace as their own."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from llmfw.api.cli import build_cli
from llmfw.api.services.observer_choice import observer_options, observers_of
from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import ComponentError, ConfigError
from llmfw.core.plugin import registry as registry_module
from llmfw.core.plugin.plugins import load_plugins

from ..crash.server import echo_server

URL = "http://127.0.0.1:4318"


@pytest.mark.parametrize(
    ("observers", "names"),
    [
        ("auto", "request-metrics,otel"),
        ("none", "otel"),
        ("request-log", "request-log,otel"),
        ("otel,request-log", "otel,request-log"),
    ],
)
def test_the_endpoint_adds_the_observer(observers: str, names: str) -> None:
    config = ServerConfig(served_model_name="m", observers=observers, otlp_endpoint=URL)
    assert observers_of(config, load_plugins().registry) == names
    assert observer_options(config)["observer.otel.endpoint"] == URL


def test_two_endpoints_are_refused() -> None:
    options = {"observer.otel.endpoint": "http://other:4318"}
    config = ServerConfig(served_model_name="m", otlp_endpoint=URL, options=options)
    with pytest.raises(ConfigError, match="are both given; give one of them"):
        observer_options(config)


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "_is_installed", lambda module: "opentelemetry" not in module)
    with pytest.raises(ComponentError) as found:
        load_plugins().registry.find("observer", "otel").load()
    assert "needs opentelemetry.sdk, opentelemetry.exporter.otlp.proto.http, which is not" in str(found.value)
    assert str(found.value).endswith("pip install 'llmfw-engine[otel]'")


def test_the_help_names_the_option() -> None:
    assert "--otlp-endpoint URL" in CliRunner().invoke(build_cli(), ["serve", "--help"]).output


def test_a_server_sends_its_requests(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from ..plugins.traces_otel.collector import collecting, values

    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    body = {"model": "echo", "messages": [{"role": "user", "content": "a secret prompt"}]}
    with collecting() as collector, echo_server(tmp_path, "--otlp-endpoint", collector.url) as server:
        headers = {"traceparent": f"00-{trace}-{parent}-01"}
        url = f"{server.url}/v1/chat/completions"
        reply = httpx.post(url, json=body, headers=headers, timeout=60).raise_for_status().json()
        httpx.post(f"{server.url}/v1/completions", json={"model": "echo", "prompt": "b"}, timeout=60)
        server.stop()
        [chat], [other] = collector.named("chat echo"), collector.named("text_completion echo")
    assert (chat.trace_id.hex(), chat.parent_span_id.hex()) == (trace, parent)
    assert other.trace_id.hex() != trace
    assert values(chat.attributes)["gen_ai.response.id"] == f"{reply['id']}-0"
    assert {span.name for span in collector.spans if span.parent_span_id == chat.span_id} == {
        "queue",
        "prefill",
        "decode",
    }
    assert "secret" not in str(collector.spans)


@pytest.mark.parametrize("url", ["http://u:secret@c:4318", "http://c:4318?token=secret"])
def test_credentials_in_the_endpoint_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_HEADERS") as caught:
        ServerConfig(served_model_name="m", otlp_endpoint=url)
    assert "secret" not in str(caught.value)
