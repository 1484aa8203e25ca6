"""What goes where on a device, in numbers that can be checked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from llmfw.core.base.errors import ConfigError
from llmfw.core.engine.generation.memory_plan import MemoryPlan, ModelShape, graph_sizes, plan_memory

GIB = 1 << 30
LLAMA_8B = ModelShape.uniform(
    num_weight_bytes=8_030_261_248 * 2,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    hidden_size=4096,
    intermediate_size=14336,
    vocab_size=128256,
)


def plan(**changes: Any) -> MemoryPlan:
    numbers = {
        "device_bytes": 139 * GIB,
        "fraction": 0.88,
        "chunk": 8192,
        "max_running": 512,
        "max_graph_size": 512,
    }
    return plan_memory(LLAMA_8B, **(numbers | changes))


def test_llama_needs_128_kib_a_token() -> None:
    """Half of that with one byte an element."""
    assert plan().bytes_per_token == 131072
    assert plan(kv_dtype_bytes=1).bytes_per_token == 65536
    assert plan(kv_dtype_bytes=1).num_tokens >= 2 * plan().num_tokens - 1


def test_weights_and_kv_fill_the_given_fraction() -> None:
    found = dict(plan().items)
    used = found["weights"] + found["keys and values"]
    assert 0 <= 0.88 * 139 * GIB - used < 3 * 131072  # a page of padding, and what is less than one
    assert plan().num_free_bytes > 0


def test_kv_storage_shrinks_to_fit_step_memory() -> None:
    found = plan(device_bytes=24 * GIB)
    assert 0 <= found.num_free_bytes < 3 * 131072
    assert sum(size for _, size in found.items[:3]) < 0.88 * 24 * GIB
    assert found.num_requests(555) == found.num_tokens // 555


def test_fewer_graphs_or_smaller_chunks_allow_more_tokens() -> None:
    whole = plan(device_bytes=24 * GIB)
    assert plan(device_bytes=24 * GIB, max_graph_size=0).num_tokens > whole.num_tokens
    assert plan(device_bytes=24 * GIB, chunk=2048).num_tokens > whole.num_tokens


def test_the_token_limit_rounds_to_whole_pages() -> None:
    assert plan(most_tokens=1000, page_size=16).num_tokens == 992


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"device_bytes": 40 * GIB, "fraction": 0.3}, "weights of 14.96 GB leave no room"),
        (
            {"device_bytes": 139 * GIB, "free_bytes": 3 * GIB},
            "lower --chunked-prefill-size, --max-running-requests or --cuda-graph-max-bs",
        ),
    ],
)
def test_memory_errors_name_the_helpful_flag(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan(**changes)


def test_graph_sizes_leave_little_padding() -> None:
    assert list(graph_sizes(512))[:8] == [1, 2, 4, 8, 16, 24, 32, 40]
    assert len(graph_sizes(512)) == 35
    for most in (1, 3, 100, 512, 700):
        sizes = list(graph_sizes(most))
        assert sizes == sorted(set(sizes))
        assert sizes[-1] == most
        for n in range(1, most + 1):
            padding = min(size for size in sizes if size >= n) - n
            assert padding < max(8, n / 8 + 1)
    assert graph_sizes(0) == []
