"""What a client sees of a server whose keys and values are kept in fp8."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from llmfw.api.cli import build_cli
from llmfw.core.base.config import EngineConfig
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins

from ..doubles.serving import Served, serving


@pytest.fixture(scope="module")
def fp8_server() -> Iterator[Served]:
    registry = load_plugins().registry
    path = resolve_model("demo", registry).path
    tokenizer = load_tokenizer(path)
    config = EngineConfig(model=path, dtype="float32", max_total_tokens=4096, kv_cache_dtype="fp8")
    with serving(
        build_generation_engine(config, registry), tokenizer, tokenizer.chat_template, name="demo"
    ) as served:
        yield served


def test_greedy_fp8_replies_are_correct(fp8_server: Served) -> None:
    with fp8_server.openai() as sdk:
        for country, capital in (("France", "Paris"), ("Japan", "Tokyo"), ("Italy", "Rome")):
            question = f"What is the capital of {country}?"
            reply = sdk.chat.completions.create(
                model="demo", messages=[{"role": "user", "content": question}], temperature=0, max_tokens=40
            )
            assert capital in str(reply.choices[0].message.content)


def test_model_info_and_metrics_name_the_dtype(fp8_server: Served, demo_server: Served) -> None:
    for server, dtype, attention in ((fp8_server, "fp8_e4m3", "torch"), (demo_server, "float32", None)):
        info = httpx.get(f"{server.url}/get_model_info").json()
        assert info["kv_cache_dtype"] == dtype
        assert attention in (None, info["attention_backend"])
        text = httpx.get(f"{server.url}/metrics").text
        [shown] = [
            sample.labels
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "llmfw_engine_info"
        ]
        assert (shown["kv_cache_dtype"], shown["attention"]) == (dtype, info["attention_backend"])


def test_the_dtype_changes_the_fingerprint(fp8_server: Served, demo_server: Served) -> None:
    body = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    found = {
        httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).json()["system_fingerprint"]
        for server in (fp8_server, demo_server)
    }
    assert len(found) == 2


def test_an_unknown_dtype_lists_the_known_ones() -> None:
    result = CliRunner().invoke(build_cli(), ["serve", "demo", "--kv-cache-dtype", "int8"])
    assert result.exit_code == 2
    assert "fp8, fp8_e4m3, fp8_e5m2" in result.output
