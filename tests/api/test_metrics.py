"""GET /metrics, held to the parsers of prometheus_client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from llmfw.api.batches.counts import BatchCounts
from llmfw.api.metrics.batch_families import BatchProgress
from llmfw.api.metrics.collector import ServerCollector
from llmfw.api.metrics.engine_families import EngineKey
from llmfw.api.routes import metrics
from llmfw.api.routes.metrics import encoder_for
from llmfw.core.base.about import version
from llmfw.core.base.engine_info import ComponentUse, EngineStats, StepSeconds
from llmfw.core.base.errors import EngineDeadError
from llmfw.core.base.histogram import Histogram
from llmfw.core.interfaces.batch_store import BatchRecord, LineResult

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import SERVED_NAME, Served

Parse = Callable[[str], Iterable[Metric]]
Sample = tuple[str, frozenset[tuple[str, str]]]

OPENMETRICS = "application/openmetrics-text"
PHASES = ("plan", "forward", "sample", "wait", "commit")
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
    num_prompt_tokens=70,
    num_prompt_cached=30,
    num_drafted_output=19,
    num_evicted_tokens=11,
    num_images_encoded=5,
    num_images_found=6,
    image_seconds=Histogram((0.1, 0.2), [2, 1, 2], 1.5),
    num_steps=9,
    step_seconds=StepSeconds(1, 2, 3, 4, 5),
    idle_seconds=6.5,
    live_gaps=Histogram((0.1, 0.2), [1, 2, 3], 4.5),
    deferrable_gaps=Histogram((0.1, 0.2), [0, 0, 0]),
)


def scrape(accept: str, uses: list[ComponentUse], stats: EngineStats | None = None) -> str:
    registry = CollectorRegistry()
    engines = None if stats is None else ({"": EchoEngine().info}, {EngineKey(): stats})
    registry.register(ServerCollector(uses, {EngineKey(): 4}, engines))
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
        of("llmfw_prompt_tokens_total", source="computed"): 40,
        of("llmfw_prompt_tokens_total", source="cached"): 30,
        of("llmfw_generation_tokens_total", source="sampled"): 123_456_770,
        of("llmfw_generation_tokens_total", source="drafted"): 19,
        of("llmfw_kv_evicted_tokens_total"): 11,
        of("llmfw_images_total", source="encoded"): 5,
        of("llmfw_images_total", source="kept"): 6,
        of("llmfw_steps_total"): 9,
        **{of("llmfw_step_seconds_total", phase=phase): i + 1 for i, phase in enumerate(PHASES)},
        of("llmfw_engine_idle_seconds_total"): 6.5,
        **gaps("live", [1, 3, 6], 4.5),
        **gaps("deferrable", [0, 0, 0], 0),
        **histogram("llmfw_image_encode_seconds", [2, 3, 5], 1.5),
    }


def gaps(group: str, totals: list[int], seconds: float) -> dict[Sample, float]:
    """Return the samples of the histogram of times between tokens."""
    return histogram("llmfw_inter_token_latency_seconds", totals, seconds, **{"class": group})


def histogram(name: str, totals: list[int], seconds: float, /, **labels: str) -> dict[Sample, float]:
    """Return the samples of a histogram with the bounds 0.1 and 0.2."""
    buckets = zip(("0.1", "0.2", "+Inf"), totals, strict=True)
    return {
        **{of(f"{name}_bucket", **labels, le=le): total for le, total in buckets},
        of(f"{name}_count", **labels): totals[-1],
        of(f"{name}_sum", **labels): seconds,
    }


@FORMATS
def test_calls_of_stores_have_a_histogram_and_failures(accept: str, parse: Parse) -> None:
    latency = Histogram((0.5,), [2, 1], 1.25)
    found = samples(parse(scrape(accept, [ComponentUse("file_store", "s", "p", 1.25, 3, 0, 0, latency, 2)])))
    labels = {"kind": "file_store", "name": "s"}
    assert found[of("llmfw_store_call_seconds_bucket", **labels, le="0.5")] == 2
    assert found[of("llmfw_store_call_seconds_bucket", **labels, le="+Inf")] == 3
    assert found[of("llmfw_store_call_seconds_sum", **labels)] == 1.25
    assert found[of("llmfw_store_failures_total", **labels)] == 2


def test_observers_hide_no_metric_of_the_server() -> None:
    forged, own = (
        GaugeMetricFamily("llmfw_engine_restarts", "", 9),
        GaugeMetricFamily("theirs", "", 1),
    )
    registry = CollectorRegistry()
    registry.register(ServerCollector([], {EngineKey(): 4}, None, observers=[forged, own, own]))
    text = encoder_for("")[0](registry).decode()
    assert "llmfw_engine_restarts_total 4.0" in text
    assert "llmfw_engine_restarts 9" not in text
    assert text.count("theirs 1.0") == 1


def test_batches_are_counted_by_state() -> None:
    counts = BatchCounts()
    counts.note_end(record("completed"))
    counts.note_results([LineResult(1, False, b""), LineResult(2, True, b""), LineResult(3, True, b"")])
    progress = BatchProgress([record("in_progress", 10, 3, 2), record("validating")], counts)
    registry = CollectorRegistry()
    registry.register(ServerCollector([], {EngineKey(): 0}, None, progress))
    found = samples(parse_text(encoder_for("")[0](registry).decode()))
    assert found[of("llmfw_batch_jobs", state="in_progress")] == 1
    assert found[of("llmfw_batch_jobs", state="cancelling")] == 0
    assert found[of("llmfw_batch_lines_pending")] == 5
    assert found[of("llmfw_batch_jobs_finished_total", state="completed")] == 1
    assert found[of("llmfw_batch_lines_total", result="failed")] == 2


def record(status: str, total: int = 0, completed: int = 0, failed: int = 0) -> BatchRecord:
    """Return a job's record."""
    return BatchRecord(
        id=f"batch_{status}",
        endpoint="/v1/completions",
        input_file_id="file-1",
        completion_window="24h",
        status=status,
        created_at=1,
        expires_at=2,
        num_total=total,
        num_completed=completed,
        num_failed=failed,
    )


def test_http_requests_have_routes_of_the_server_only(server: Served) -> None:
    httpx.get(f"{server.url}/v1/models/{SERVED_NAME}")
    httpx.get(f"{server.url}/secret-path-1234")
    httpx.request("BREW", f"{server.url}/health")
    found = samples(parse_text(httpx.get(f"{server.url}/metrics").text))
    http = {labels: num for (name, labels), num in found.items() if name == "llmfw_http_requests_total"}
    assert sum(num for labels, num in http.items() if ("status", "404") in labels) >= 1
    handlers = {dict(labels)["handler"] for labels in http}
    assert "none" in handlers
    assert not any("secret" in each for each in handlers)
    assert {dict(labels)["method"] for labels in http} <= {"GET", "POST", "other"}


def test_the_build_is_named(server: Served) -> None:
    found = samples(parse_text(httpx.get(f"{server.url}/metrics").text))
    [labels] = [dict(labels) for name, labels in found if name == "llmfw_build_info"]
    assert labels["version"] == version()


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
    found = samples(parse_text(reply.text))
    assert found[of("llmfw_engine_restarts_total")] == 0
    assert found[of("llmfw_batch_jobs", state="in_progress")] == 0
    assert of("llmfw_kv_tokens") not in found
