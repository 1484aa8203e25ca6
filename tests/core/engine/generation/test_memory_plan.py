"""What goes where on a device, in numbers that can be checked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmfw.core.base.errors import ConfigError
from llmfw.core.engine.generation.memory_plan import (
    DeviceMemory,
    MemoryPlan,
    ModelShape,
    StepSizes,
    StorageSettings,
    graph_sizes,
    plan_memory,
)
from llmfw.core.engine.generation.sequence_sizes import SequenceSizes, assumed_attention_bytes

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
    dtype_bytes=2,
)


H200 = DeviceMemory(139 * GIB, fraction=0.88)
SMALL = DeviceMemory(24 * GIB, fraction=0.88)
STEPS = StepSizes(chunk=8192, max_running=512, max_graph_size=512)
STORAGE = StorageSettings(dtype_bytes=2)


def plan(
    shape: ModelShape = LLAMA_8B,
    memory: DeviceMemory = H200,
    steps: StepSizes = STEPS,
    storage: StorageSettings = STORAGE,
) -> MemoryPlan:
    return plan_memory(shape, memory, steps, storage)


def test_llama_needs_128_kib_a_token() -> None:
    """Half of that with one byte an element."""
    assert plan().bytes_per_token == 131072
    halved = plan(storage=StorageSettings(dtype_bytes=1))
    assert halved.bytes_per_token == 65536
    assert halved.num_tokens >= 2 * plan().num_tokens - 1


def test_weights_and_kv_fill_the_given_fraction() -> None:
    found = dict(plan().items)
    used = found["weights"] + found["keys and values"]
    assert 0 <= 0.88 * 139 * GIB - used < 3 * 131072  # a page of padding, and what is less than one
    assert plan().num_free_bytes > 0


def test_kv_storage_shrinks_to_fit_step_memory() -> None:
    found = plan(memory=SMALL)
    assert 0 <= found.num_free_bytes < 3 * 131072
    assert sum(size for _, size in found.items[:3]) < 0.88 * 24 * GIB
    assert found.num_requests(555) == found.num_tokens // 555


def test_fewer_graphs_or_smaller_chunks_allow_more_tokens() -> None:
    whole = plan(memory=SMALL)
    assert plan(memory=SMALL, steps=replace(STEPS, max_graph_size=0)).num_tokens > whole.num_tokens
    assert plan(memory=SMALL, steps=replace(STEPS, chunk=2048)).num_tokens > whole.num_tokens


def test_the_token_limit_rounds_to_whole_pages() -> None:
    assert plan(storage=replace(STORAGE, max_tokens=1000, page_size=16)).num_tokens == 992


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        (DeviceMemory(40 * GIB, fraction=0.3), "weights of 14.96 GB leave no room"),
        (
            replace(H200, measured_free=3 * GIB),
            "lower --chunked-prefill-size, --max-running-requests or --cuda-graph-max-bs",
        ),
    ],
)
def test_memory_errors_name_the_helpful_flag(memory: DeviceMemory, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan(memory=memory)


SEQUENCES = SequenceSizes(512, 131072, lambda num_pages: 1000 * num_pages)


def test_the_longest_sequence_sizes_the_page_table() -> None:
    found = plan_memory(LLAMA_8B, H200, STEPS, replace(STORAGE, page_size=16), SEQUENCES)
    assert found.items[-2:] == (("page table", 4 * 513 * 8192), ("attention backend", 1000 * 8192))
    shorter = plan_memory(LLAMA_8B, H200, STEPS, replace(STORAGE, max_tokens=7000), SEQUENCES)
    assert dict(shorter.items)["attention backend"] == 1000 * 7000


def test_tables_have_room_for_sequences_that_fit() -> None:
    """A pool smaller than the context needs no table for the context."""
    found = plan_memory(LLAMA_8B, SMALL, STEPS, STORAGE, SEQUENCES)
    longest = dict(found.items)["attention backend"] // 1000
    assert 0 <= found.num_tokens - longest <= 1
    assert 0 <= found.num_free_bytes < 3 * 131072
    assert found.num_tokens < plan(memory=SMALL).num_tokens


def test_tables_without_room_are_refused() -> None:
    sequences = SequenceSizes(512, 131072, lambda num_pages: 20 * GIB)
    with pytest.raises(ConfigError, match=r"attention backend 20\.00 GB; lower"):
        plan_memory(LLAMA_8B, SMALL, STEPS, STORAGE, sequences)


def test_an_unknown_backend_takes_what_flashinfer_does() -> None:
    scratch = 400 << 20
    assert assumed_attention_bytes(0, 1000) == scratch
    assert assumed_attention_bytes(512, 1000) == scratch + 4 * 512 * 1000
    assert assumed_attention_bytes(100, 1000) == scratch + 4 * 128 * 1000


STATEFUL = replace(LLAMA_8B, num_state_bytes=100 << 20)
FEW = replace(STEPS, max_running=16)


def test_snapshots_of_states_take_a_quarter_at_most() -> None:
    """Their memory is taken from that for keys and values, and is an item of the plan."""
    without = plan(STATEFUL, steps=FEW, storage=replace(STORAGE, max_snapshots=0))
    few = plan(STATEFUL, steps=FEW)
    assert few.num_snapshots == 32
    assert few.items[3] == ("32 snapshots of states", 3200 << 20)
    assert (without.num_tokens - few.num_tokens) * few.bytes_per_token == pytest.approx(3200 << 20, rel=1e-3)
    larger = replace(STATEFUL, num_state_bytes=1 << 30)
    many = plan(larger, replace(H200, fraction=0.5), FEW)
    room = int(0.5 * many.device_bytes) - larger.num_weight_bytes
    assert many.num_snapshots == room // 4 >> 30 < 32


def test_too_many_snapshots_of_states_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"--max-state-snapshots is 9999, which take 976.46 GB; .*; lower it"
    ):
        plan(STATEFUL, storage=replace(STORAGE, max_snapshots=9999))


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
