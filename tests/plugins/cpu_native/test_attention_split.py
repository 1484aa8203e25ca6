"""The backends `cpu` and `torch` with single tokens by one of them, and prompts by the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from llmfw.core.interfaces.attention import AttentionBackend, LayerSpec
from llmfw.core.interfaces.kv_storage import KVStorage
from llmfw.core.model.attention.split_attention import SplitAttention
from llmfw.core.testing.attention import AttentionBackendTests
from llmfw.plugins.attention_torch.backend import TorchAttention
from llmfw.plugins.cpu_native.attention import CpuAttention
from llmfw.plugins.cpu_native.library import why_not

from ...core.engine.generation.running import build_engine, generate_alone, random_prompts, run
from ...core.engine.generation.tiny_models import SERVABLE, VOCAB_SIZE, save_random_model
from ...length import also

pytestmark = pytest.mark.skipif(why_not(torch.float32) is not None, reason=str(why_not(torch.float32)))


class CpuAndTorch(SplitAttention):
    """Single tokens by `cpu`, prompts by `torch`."""

    heeds_selection = False  # as `cpu`

    def __init__(self, layers: Sequence[LayerSpec], storage: KVStorage, options: Any) -> None:
        decode = CpuAttention.for_part("decode", layers, storage, CpuAttention.Options())
        prefill = TorchAttention.for_part("prefill", layers, storage, TorchAttention.Options())
        super().__init__(decode, prefill)

    @classmethod
    def storage_unsupported(cls, device: str, dtype: torch.dtype, stored_as: torch.dtype) -> str | None:
        return CpuAttention.storage_unsupported(device, dtype, stored_as)


class TestCpuAndTorch(AttentionBackendTests):
    @pytest.fixture
    def backend(self) -> type[AttentionBackend]:
        return CpuAndTorch

    @pytest.fixture(params=[torch.float32], ids=["f32"])
    def dtype(self, request: pytest.FixtureRequest) -> torch.dtype:
        found: torch.dtype = request.param
        return found


@pytest.mark.parametrize("family", ["gpt-oss (sinks)", *also(["llama", "gemma 2 (soft cap)"])])
@pytest.mark.parametrize(("decode", "prefill"), [("cpu", "torch"), ("torch", "cpu")])
def test_greedy_tokens_equal_transformers(family: str, decode: str, prefill: str, tmp_path: Path) -> None:
    folder = save_random_model(tmp_path, *SERVABLE[family])
    prompts = random_prompts(10, VOCAB_SIZE)
    engine = build_engine(
        folder, attention=decode, prefill_attention=prefill, chunked_prefill_size=16, max_total_tokens=300
    )
    assert engine.info.attention == f"{decode}, prompts: {prefill}"
    assert run(engine, prompts) == generate_alone(folder, prompts, 24, eos=1)


@pytest.mark.parametrize(("decode", "prefill"), [("cpu", "torch"), ("torch", "cpu")])
def test_packed_layers_compute_as_with_one(decode: str, prefill: str, tmp_path: Path) -> None:
    """The module pass calls the backend `cpu` without detours in the steps that it computes alone."""
    folder = save_random_model(tmp_path, *SERVABLE["llama"])
    prompts = random_prompts(8, VOCAB_SIZE)
    settings = {"module_passes": "cpu-native", "chunked_prefill_size": 16}
    both = build_engine(folder, attention=decode, prefill_attention=prefill, **settings)
    assert run(both, prompts) == run(build_engine(folder, attention="cpu", **settings), prompts)
    assert not both.has_own_threads
