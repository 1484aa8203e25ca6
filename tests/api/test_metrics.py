"""GET /metrics, held to the parsers of prometheus_client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from llmfw.api.metrics.collector import ServerCollector
from llmfw.api.routes import metrics
from llmfw.api.routes.metrics import encoder_for
from llmfw.core.base.engine_info import ComponentUse, EngineStats
from llmfw.core.base.errors import EngineDeadError

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import Served

Parse = Callable[[str], Iterable[Metric]]
Sample = tuple[str, frozenset[tuple[str, str]]]

OPENMETRICS = "application/openmetrics-text"
FORMATS = pytest.mark.parametrize(("accept", "parse"), [("", parse_text), (OPENMETRICS, parse_openmetrics)])
STATS = EngineStats(
    num_running=5,
    num_waiting=7,
    num_used_tokens=30,
    num_cached_tokens=40,
    num_total_tokens=100,
    num_deferrable_running=2,
    num_deferrable_waiting=3,
    num_retractions=1,
    num_generated_tokens=123_456_789,
    num_drafted_tokens=50,
    num_accepted_tokens=20,
)


def scrape(accept: str, uses: list[ComponentUse], stats: EngineStats | None = None) -> str:
    registry = CollectorRegistry()
    engine = None if stats is None else (EchoEngine().info, stats)
    registry.register(ServerCollector(uses, 4, engine))
    return encoder_for(accept)[0](registry).decode()


def samples(families: Iterable[Metric]) -> dict[Sample, float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def of(sample: str, /, **labels: str) -> Sample:
    return sample, frozenset(labels.items())


@FORMATS
def test_metrics_keep_names_labels_and_values(accept: str, parse: Parse) -> None:
    uses = [ComponentUse("policy", "lpm", "policies", seconds, 2, 1) for seconds in (0.25, 0.5)]
    labels = {"kind": "policy", "name": "lpm", "plugin": "policies"}
    info = {"dtype": "float32", "quantization": "none", "kv_cache_dtype": "none", "attention": "none"}
    assert samples(parse(scrape(accept, uses, STATS))) == {
        of("llmfw_plugin_seconds_total", **labels): 0.75,
        of("llmfw_plugin_calls_total", **labels): 4,
        of("llmfw_plugin_failures_total", **labels): 2,
        of("llmfw_engine_restarts_total"): 4,
        of("llmfw_engine_info", **info): 1,
        of("llmfw_running_requests", **{"class": "live"}): 3,
        of("llmfw_running_requests", **{"class": "deferrable"}): 2,
        of("llmfw_waiting_requests", **{"class": "live"}): 4,
        of("llmfw_waiting_requests", **{"class": "deferrable"}): 3,
        of("llmfw_kv_tokens"): 100,
        of("llmfw_kv_used_tokens"): 30,
        of("llmfw_kv_cached_tokens"): 40,
        of("llmfw_generated_tokens_total"): 123_456_789,
        of("llmfw_retractions_total"): 1,
        of("llmfw_drafted_tokens_total"): 50,
        of("llmfw_accepted_tokens_total"): 20,
    }


def test_metric_families_have_help_and_type() -> None:
    lines = scrape("", [], STATS).splitlines()
    assert "# HELP llmfw_running_requests Requests that have a place in the engine's steps." in lines
    assert "# TYPE llmfw_running_requests gauge" in lines
    assert "# TYPE llmfw_engine_info gauge" in lines
    assert "# TYPE llmfw_generated_tokens_total counter" in lines
    assert "# TYPE llmfw_plugin_calls_total counter" in lines  # though nothing was called yet


@FORMATS
@pytest.mark.parametrize(
    "value", ['say "hi"', "two\nlines", r"C:\new", '\\"\n\\n', '"} 1\nllmfw_forged 2', "ü,={}"]
)
def test_hostile_label_values_survive_the_round_trip(accept: str, parse: Parse, value: str) -> None:
    found = samples(parse(scrape(accept, [ComponentUse("policy", value, value, 0.0, 3, 0)])))
    assert found[of("llmfw_plugin_calls_total", kind="policy", name=value, plugin=value)] == 3
    assert not any(name == "llmfw_forged" for name, _ in found)


def test_openmetrics_is_served_if_accepted(server: Served) -> None:
    reply = httpx.get(
        f"{server.url}/metrics", headers={"accept": f"{OPENMETRICS};version=1.0.0,text/plain;q=0.5"}
    )
    assert reply.headers["content-type"].startswith(f"{OPENMETRICS}; version=1.0.0; charset=utf-8")
    assert samples(parse_openmetrics(reply.text))[of("llmfw_kv_tokens")] == 4096


@pytest.mark.parametrize(
    "accept", ["*/*", "text/html", "text/plain;version=x", f"{OPENMETRICS};version=1.x", ";=,"]
)
def test_other_clients_receive_the_text_format(server: Served, accept: str) -> None:
    reply = httpx.get(f"{server.url}/metrics", headers={"accept": accept})
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert samples(parse_text(reply.text))[of("llmfw_kv_tokens")] == 4096


async def dead() -> EngineStats:
    raise EngineDeadError("killed by SIGKILL")


async def silent() -> EngineStats:
    await asyncio.sleep(60)
    return STATS


@pytest.mark.parametrize("stats", [dead, silent])
def test_api_counters_survive_the_engine(server: Served, monkeypatch: pytest.MonkeyPatch, stats: Any) -> None:
    monkeypatch.setattr(metrics, "PATIENCE_S", 0.1)
    monkeypatch.setattr(server.client, "stats", stats)
    reply = httpx.get(f"{server.url}/metrics")
    assert samples(parse_text(reply.text)) == {of("llmfw_engine_restarts_total"): 0}
