"""What fits, asked of a GPU that is made up, and of a CPU with as much memory as is wished."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest
import torch
from torch import nn
from transformers import LlamaConfig

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.base.replica_place import ReplicaPlace
from llmfw.core.engine.generation import capacity, memory_together
from llmfw.core.engine.generation.capacity import Capacity, decide_capacity, shape_of
from llmfw.core.engine.generation.memory_together import check_together
from llmfw.core.model.models import LoadedModel
from llmfw.core.testing.attention_case import make_layer

GIB = 1 << 30
GPU = torch.device("cuda")


@pytest.fixture
def llama() -> LoadedModel:
    """Return what is to be known of Llama-3.1-8B."""
    module = nn.Module()
    module.config = LlamaConfig(  # type: ignore[assignment]
        hidden_size=4096,
        intermediate_size=14336,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=128256,
    )
    layers = [make_layer(index=i, num_heads=32, num_kv_heads=8, head_dim=128) for i in range(32)]
    return LoadedModel(module, layers, "Llama", 128256, 131072, torch.bfloat16, 16 * 10**9)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "total_memory", lambda _: 80 * GIB)
    monkeypatch.setattr(capacity, "available_memory", lambda _: 79 * GIB - 16 * 10**9)


def decide(model: LoadedModel, **settings: Any) -> Capacity:
    return decide_capacity(EngineConfig(model="m", **settings), model, GPU)


def test_the_log_explains_memory_before_allocation(
    gpu: None, llama: LoadedModel, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "llmfw.core.engine.generation.capacity"):
        found = decide(llama, page_size=16)
    used = found.num_pages * 16 * 131072 + 16 * 10**9
    assert 0.87 * 80 * GIB < used <= 0.88 * 80 * GIB
    assert found.max_graph_size == 512
    for said in (
        "weights: 14.90 GB",
        "keys and values: 55.",
        "35 CUDA graphs of up to 512 sequences",
        "logits",
    ):
        assert said in caplog.text


def test_too_many_tokens_are_refused_before_allocation(
    llama: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "available_memory", lambda _: 16 * GIB)
    config = EngineConfig(model="m", max_total_tokens=131073)  # 128 KiB each
    with pytest.raises(
        ConfigError,
        match=r"--max-total-tokens is 131073, .* take 16\.00 GB; with the weights loaded, 16\.00 GB",
    ):
        decide_capacity(config, llama, torch.device("cpu"))
    fitting = EngineConfig(model="m", max_total_tokens=131072)
    assert decide_capacity(fitting, llama, torch.device("cpu")).num_pages == 131072


def test_engines_share_a_cpu_s_memory(monkeypatch: pytest.MonkeyPatch, llama: LoadedModel) -> None:
    """Also if they are measured before the other engine has its weights."""
    monkeypatch.setattr(capacity, "total_memory", lambda _: 200 * GIB)
    monkeypatch.setattr(capacity, "available_memory", lambda _: 100 * GIB - 16 * 10**9)
    cpu, token_bytes = torch.device("cpu"), 131072
    config = EngineConfig(model="m", mem_fraction_static=1.0)
    alone = decide_capacity(config, llama, cpu).num_pages * token_bytes
    assert alone == pytest.approx(100 * GIB - 16 * 10**9, rel=0.001)
    half = msgspec.structs.replace(config, place=ReplicaPlace(1, 2))
    shared = decide_capacity(half, llama, cpu).num_pages * token_bytes
    assert 2 * shared == pytest.approx(100 * GIB - 2 * 16 * 10**9, rel=0.001)
    narrow = msgspec.structs.replace(half, mem_fraction_static=0.2)
    assert decide_capacity(narrow, llama, cpu).num_pages * token_bytes == pytest.approx(
        0.1 * 200 * GIB - 16 * 10**9, rel=0.001
    )
    tight = msgspec.structs.replace(half, max_total_tokens=int(shared / token_bytes) + 1000)
    with pytest.raises(ConfigError, match="lower it"):
        decide_capacity(tight, llama, cpu)


def test_models_share_what_their_weights_leave(llama: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "total_memory", lambda _: 200 * GIB)
    monkeypatch.setattr(capacity, "available_memory", lambda _: 180 * GIB)
    token_bytes, small, own = 131072, 10**9, 16 * 10**9
    place = ReplicaPlace(0, 2, "a", (own, small))
    config = EngineConfig(model="m", device="cpu", mem_fraction_static=0.5, place=place)
    left = (0.5 * 200 * GIB - own - small) / 2
    found = decide_capacity(config, llama, torch.device("cpu")).num_pages * token_bytes
    assert found == pytest.approx(left, rel=0.001)
    monkeypatch.setattr(capacity, "available_memory", lambda _: 30 * GIB)
    found = decide_capacity(config, llama, torch.device("cpu")).num_pages * token_bytes
    assert found == pytest.approx((30 * GIB - small) / 2, rel=0.001)


def test_weights_that_do_not_fit_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_together, "total_memory", lambda _: 100 * GIB)
    fits = EngineConfig(model="m", device="cpu", place=ReplicaPlace(1, 2, "b", (20 * GIB, 9 * GIB)))
    check_together(fits)
    too_large = msgspec.structs.replace(fits, place=ReplicaPlace(1, 2, "b", (20 * GIB, 11 * GIB)))
    with pytest.raises(
        ConfigError,
        match=r"of 2 models take 31\.00 GB together.* allows 30\.00 GB of the 100\.00 GB of cpu; raise",
    ):
        check_together(too_large)


def test_page_tables_are_refused_before_they_are_allocated(
    llama: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "available_memory", lambda _: 16 * GIB)
    config = EngineConfig(model="m", max_total_tokens=131072, max_running_requests=10**8)
    with pytest.raises(
        ConfigError,
        match=r"--max-running-requests is 100000000; .* up to 131072 tokens each, take 97668\.17 GB, and 16\.00 GB of .* lower",
    ):
        decide_capacity(config, llama, torch.device("cpu"))
    fitting = EngineConfig(model="m", max_total_tokens=131072, max_running_requests=16_000)
    assert decide_capacity(fitting, llama, torch.device("cpu")).max_running == 16_000


def test_fp8_doubles_the_planned_tokens(gpu: None, llama: LoadedModel) -> None:
    plain, small = (decide(llama, kv_cache_dtype=name).num_pages for name in ("auto", "fp8_e5m2"))
    assert 0 <= small - 2 * plain < 4


def test_excess_tokens_are_refused_with_the_maximum(gpu: None, llama: LoadedModel) -> None:
    with pytest.raises(ConfigError, match=r"--max-total-tokens is 900000; .* \d{6} tokens fit on cuda"):
        decide(llama, max_total_tokens=900_000)
    assert decide(llama, max_total_tokens=400_000).num_pages == 400_000


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ({"cuda_graph": "off"}, 0),
        ({"cuda_graph_max_bs": 0}, 0),
        ({"cuda_graph_max_bs": 64}, 64),
        ({"cuda_graph": "lazy", "max_running_requests": 100}, 100),
    ],
)
def test_graphs_are_captured_up_to_needed_sizes(
    gpu: None, llama: LoadedModel, settings: dict[str, Any], size: int
) -> None:
    assert decide(llama, **settings).max_graph_size == size


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"chunked_prefill_size": 0}, "--chunked-prefill-size is 0; give 1 or more, or -1"),
        ({"mem_fraction_static": 0.1}, "raise --mem-fraction-static"),
    ],
)
def test_invalid_memory_settings_are_refused(
    gpu: None, llama: LoadedModel, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        decide(llama, **settings)


def test_moe_counts_all_experts_of_a_token(llama: LoadedModel) -> None:
    assert shape_of(llama).intermediate_size == 14336
    llama.module.config.num_experts_per_tok = 8  # type: ignore[union-attr]
    llama.module.config.moe_intermediate_size = 4096  # type: ignore[union-attr]
    assert shape_of(llama).intermediate_size == 32768
