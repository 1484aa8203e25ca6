"""The limits of the comparison with peers are those of arithmetic that was done elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from llmfw.plugins.bench.workloads import WORKLOADS

from .benchmark_script import benchmark_script


@pytest.fixture(scope="module")
def limits() -> Iterator[ModuleType]:
    with benchmark_script("peers.limits") as (module,):
        yield module


@pytest.mark.parametrize(
    ("weights", "head", "single", "batch16", "prefix", "burst", "multiturn"),
    [
        (134_515_008, 49_152 * 576, 271, 867, 1756, 1398, 1372),
        (494_032_768, 151_936 * 896, 74, 252, 499, 401, 386),
    ],
    ids=["smollm2-135m", "qwen2-0.5b"],
)
def test_each_workload_has_its_known_limit(limits, weights, head, single, batch16, prefix, burst, multiturn):
    rates = limits.Rates(read=77e9, flops=0.97e12)
    found = {
        name: limits.most_tokens_per_second(limits.Weights(weights, head), rates, load)
        for name, load in WORKLOADS.items()
    }
    # Those count one more step for each request, and no head for its first token.
    expected = {
        "single": single,
        "batch16": batch16,
        "prefix": prefix,
        "burst": burst,
        "multiturn": multiturn,
    }
    assert found == pytest.approx(expected, rel=0.03)


def test_one_stream_reads_all_weights_per_token(limits):
    weights, rates = limits.Weights(10**9, 10**8), limits.Rates(read=1e9, flops=1e18)
    assert limits.most_tokens_per_second(weights, rates, WORKLOADS["single"]) == pytest.approx(0.5)


def test_free_reads_compute_a_shared_prefix_once(limits):
    load = WORKLOADS["prefix"]
    tokens = load.shared + load.requests * (load.prompt + load.output - 1)
    operations = 2 * 900 * tokens + 2 * 100 * load.requests * load.output
    found = limits.most_tokens_per_second(limits.Weights(1000, 100), limits.Rates(1e30, 1e6), load)
    assert found == pytest.approx(load.requests * load.output / operations * 1e6)


def test_a_scaled_workload_has_fewer_concurrent_requests(limits):
    weights, rates = limits.Weights(1000, 100), limits.Rates(1e6, 1e30)
    one = WORKLOADS["batch16"].scaled(1 / 48)
    assert limits.most_tokens_per_second(weights, rates, one) == pytest.approx(1e6 / 2000)


def test_weights_are_counted_from_file_headers(limits, tmp_path: Path):
    tensor = {"dtype": "BF16", "data_offsets": [0, 0]}
    header = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "model.embed_tokens.weight": tensor | {"shape": [30, 4]},
            "model.norm.weight": tensor | {"shape": [4]},
        }
    ).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert limits.Weights.of(tmp_path) == limits.Weights(124, 120)
