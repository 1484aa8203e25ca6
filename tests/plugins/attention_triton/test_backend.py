"""What the backend says of itself, and what it makes on the host."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

triton = pytest.importorskip("triton")

from llmfw.core.interfaces.kv_storage import KVStorage
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.testing.attention_case import make_layer
from llmfw.plugins.attention_triton.backend import TritonAttention, _to_device, reads_bytes
from llmfw.plugins.attention_triton.prefill import cut_queries


@pytest.fixture
def _hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (9, 0))


@pytest.mark.usefixtures("_hopper")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_current_devices_support_every_dtype(dtype: torch.dtype) -> None:
    assert TritonAttention.unsupported([make_layer(has_sinks=True, softcap=2.0)], "cuda:0", dtype) is None


@pytest.mark.usefixtures("_hopper")
@pytest.mark.parametrize(
    ("changes", "device", "dtype", "reason"),
    [
        ({}, "cuda", torch.float64, "float64"),
        ({"head_dim": 320}, "cuda", torch.bfloat16, "at most 256 dimensions; here they have 320"),
        ({"v_head_dim": 512}, "cuda", torch.bfloat16, "here they have 512"),
        ({}, "mps", torch.float16, "CUDA devices, not on mps"),
    ],
)
def test_unsupported_settings_are_explained(
    changes: dict[str, int], device: str, dtype: torch.dtype, reason: str
) -> None:
    assert reason in (TritonAttention.unsupported([make_layer(**changes)], device, dtype) or "")


@pytest.mark.parametrize(
    ("stored_as", "capability", "expected"),
    [
        (torch.float8_e4m3fn, (8, 0), True),
        (torch.float8_e4m3fn, (8, 9), False),
        (torch.float8_e5m2, (8, 0), False),
        (torch.bfloat16, (8, 0), False),
    ],
)
def test_fp8_is_read_natively_or_as_bytes(
    stored_as: torch.dtype, capability: tuple[int, int], expected: bool
) -> None:
    assert TritonAttention.storage_unsupported("cuda", torch.bfloat16, stored_as) is None
    assert reads_bytes(stored_as, capability) is expected


def test_devices_before_ampere_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (7, 5))
    reason = TritonAttention.unsupported([make_layer()], "cuda", torch.float16)
    assert reason == "it needs compute capability 8.0; the device has 7.5"


def test_on_a_cpu_auto_uses_another_backend() -> None:
    entries = load_plugins().registry.entries("attention")
    names = [entry.name for entry in entries]
    assert names.index("triton") < names.index("torch")
    reason = TritonAttention.unsupported([make_layer()], "cpu", torch.float32)
    interpreted = triton.knobs.runtime.interpret
    assert reason is None if interpreted else "TRITON_INTERPRET=1" in str(reason)


@given(
    lengths=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 200)), min_size=1, max_size=8),
    shared=st.integers(1, 40),
    size=st.sampled_from([32, 64, 128]),
)
def test_every_query_is_in_one_block(lengths: list[tuple[int, int]], shared: int, size: int) -> None:
    stored, new = np.array(sorted(lengths, key=lambda pair: pair[1] > 1), dtype=np.int64).T
    num_single = int((new == 1).sum())
    blocks = cut_queries(new, stored + new, num_single, shared, size)
    for sequence in range(len(new)):
        offsets = sorted(offset for owner, offset in blocks.tolist() if owner == sequence)
        wanted = range(0, int(new[sequence]) * shared, size) if sequence >= num_single else range(0)
        assert offsets == list(wanted)


def test_arrays_arrive_unchanged_at_aligned_addresses() -> None:
    arrays = [np.arange(n, dtype=np.int64) for n in (1, 5, 0, 4, 7)]
    found = _to_device(arrays, torch.device("cpu"))
    assert [tensor.tolist() for tensor in found] == [array.tolist() for array in arrays]
    assert {tensor.storage_offset() % 4 for tensor in found} == {0}


@pytest.mark.parametrize("sizes", [[1, 2, 4], []])
@pytest.mark.parametrize("num_sequences", [4, 9])
def test_step_bytes_count_what_is_allocated(sizes: list[int], num_sequences: int) -> None:
    """Buffers of captured steps stay, and a larger step without a graph has its own."""
    layers = [make_layer(), make_layer(index=1, num_heads=8, num_kv_heads=1, sliding_window=5)]
    options = TritonAttention.Options()
    storage = KVStorage(layers, 4, 1, torch.float32, torch.device("cpu"))
    built = TritonAttention(layers, storage, options)
    made = [built._make_decodes(torch.zeros(size)) for size in reversed(sizes)]
    largest = built._make_decodes(torch.zeros(num_sequences))
    kept = [
        tensor
        for decodes in made
        for plan in decodes.schedules.values()
        for tensor in (plan.pieces, plan.firsts)
    ]
    kept += [
        tensor
        for decodes in (*made, largest)
        for tensor in (decodes.partials.outputs, decodes.partials.log_sums)
    ]
    planned = TritonAttention.step_bytes(
        layers, options, "cpu", num_sequences=num_sequences, num_pages=1, graph_sizes=sizes
    )
    assert planned == sum({id(tensor): tensor.nbytes for tensor in kept}.values())
