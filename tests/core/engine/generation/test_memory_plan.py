"""What goes where on a device, in numbers that can be checked by hand."""

from __future__ import annotations

import dataclasses
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


def plan(shape: ModelShape = LLAMA_8B, **changes: Any) -> MemoryPlan:
    numbers = {
        "device_bytes": 139 * GIB,
        "fraction": 0.88,
        "chunk": 8192,
        "max_running": 512,
        "max_graph_size": 512,
    }
    return plan_memory(shape, **(numbers | changes))


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


STATEFUL = dataclasses.replace(LLAMA_8B, num_state_bytes=100 << 20)


def test_snapshots_of_states_take_a_quarter_at_most() -> None:
    """Their memory is taken from that for keys and values, and is an item of the plan."""
    without = plan(shape=STATEFUL, max_running=16, max_snapshots=0)
    few = plan(shape=STATEFUL, max_running=16)
    assert few.num_snapshots == 32
    assert few.items[3] == ("32 snapshots of states", 3200 << 20)
    assert (without.num_tokens - few.num_tokens) * few.bytes_per_token == pytest.approx(3200 << 20, rel=1e-3)
    larger = dataclasses.replace(STATEFUL, num_state_bytes=1 << 30)
    many = plan(shape=larger, max_running=16, fraction=0.5)
    room = int(0.5 * many.device_bytes) - larger.num_weight_bytes
    assert many.num_snapshots == room // 4 >> 30 < 32


def test_too_many_snapshots_of_states_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"--max-state-snapshots is 9999, which take 976.46 GB; .*; lower it"
    ):
        plan(shape=STATEFUL, max_snapshots=9999)


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
