"""The promises of an attention backend, held by the kernels as Triton's interpreter runs them."""

from __future__ import annotations

import pytest
import torch

from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.interfaces.kv_dtype import as_bytes, encode
from llmfw.core.interfaces.kv_storage import KVStorage
from llmfw.core.kernels.kv_kernel import write
from llmfw.core.testing.attention import AttentionBackendTests
from llmfw.core.testing.attention_case import AttentionCase, make_layer
from llmfw.plugins.attention_triton.backend import TritonAttention


class TestTritonAttention(AttentionBackendTests):
    @pytest.fixture
    def backend(self) -> type[AttentionBackend]:
        return TritonAttention

    @pytest.fixture(
        params=[torch.float32, pytest.param(torch.float16, marks=pytest.mark.long)], ids=["fp32", "fp16"]
    )
    def dtype(self, request: pytest.FixtureRequest) -> torch.dtype:
        """Return what the interpreter computes right: not bfloat16."""
        dtype: torch.dtype = request.param
        return dtype


@pytest.mark.parametrize("lengths", [[(0, 1), (200, 1)], [(31, 40), (3, 2)]])
def test_converted_fp8_equals_fp8_read_as_bytes(
    lengths: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = AttentionCase(make_layer(), lengths, 16, stored_as=torch.float8_e4m3fn, scales=(0.1, 3.0))
    by_bytes = case.run(TritonAttention)
    monkeypatch.setattr("llmfw.plugins.attention_triton.backend.CONVERTS_E4M3", (8, 0))
    converted = case.run(TritonAttention)
    torch.testing.assert_close(by_bytes, converted, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(converted.double(), case.expected(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("stored_as", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float16])
def test_numbers_are_stored_as_torch_rounds_them(stored_as: torch.dtype) -> None:
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.float16).float()
    key = every[every.isfinite()][: 62 << 10].view(-1, 2, 512)
    storage = KVStorage(
        [make_layer(head_dim=512)], len(key), 1, torch.float32, torch.device("cpu"), stored_as
    )
    slots = torch.arange(len(key)).flip(0)
    for scale in (1.0, 0.3):
        write(key, -key, storage.keys[0], storage.values[0], slots, (scale, 1 / scale))
        for stored, new, its in ((storage.keys, key, scale), (storage.values, -key, 1 / scale)):
            wanted = as_bytes(encode(new, stored_as, its))
            assert torch.equal(as_bytes(stored[0]).flatten(0, 1).flip(0), wanted)
