"""When the FlashInfer backend refuses, and what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from llmfw.core.testing.attention_case import make_layer
from llmfw.plugins.attention_flashinfer import backend
from llmfw.plugins.attention_flashinfer.backend import FlashInferAttention


@pytest.fixture(autouse=True)
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(backend, "_missing_kernels", lambda: None)


def reason(device: str = "cuda", dtype: torch.dtype = torch.bfloat16, **changes: Any) -> str | None:
    layers = [make_layer(head_dim=128), make_layer(index=1, **({"head_dim": 128} | changes))]
    return FlashInferAttention.unsupported(layers, device, dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "changes", [{}, {"sliding_window": 9, "softcap": 30.0}, {"head_dim": 64}, {"head_dim": 256}]
)
def test_layers_with_kernels_are_supported(dtype: torch.dtype, changes: dict[str, Any]) -> None:
    assert reason("cuda:0", dtype, **changes) is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"device": "cpu"}, "it runs on NVIDIA GPUs, not on cpu"),
        ({"dtype": torch.float32}, "keys and values in float32 have no kernel; float16 and bfloat16 have"),
        ({"head_dim": 80}, "heads of size 80 have no kernel; 64, 128 or 256 have"),
        ({"v_head_dim": 64}, "values of size 64 with keys of size 128 have no kernel"),
        ({"has_sinks": True}, "attention sinks have no kernel"),
    ],
)
def test_a_missing_kernel_is_explained(arguments: dict[str, Any], sentence: str) -> None:
    assert reason(**arguments) == sentence


def test_an_old_device_names_the_required_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert reason() == "it needs compute capability 8.0 or more; this device has 7.5"


def test_amd_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.3")
    assert reason() == "it runs on NVIDIA GPUs, not on AMD's"


def test_missing_kernels_and_compiler_are_both_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setenv("CUDA_HOME", "/no/such/folder")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("FLASHINFER_DISABLE_JIT", raising=False)
    assert re.search(r"flashinfer_jit_cache.* nor a compiler .*nvcc", str(reason()))
    monkeypatch.setenv("FLASHINFER_DISABLE_JIT", "1")
    assert re.search(r"flashinfer_jit_cache.*FLASHINFER_DISABLE_JIT is set", str(reason()))


def test_ready_kernels_need_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    (tmp_path / "flashinfer_jit_cache.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PATH", "")
    assert reason() is None


@pytest.mark.parametrize("stored_as", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_fp8_storage_is_supported(stored_as: torch.dtype) -> None:
    assert FlashInferAttention.storage_unsupported("cuda", torch.bfloat16, stored_as) is None


def test_another_16_bit_kv_dtype_is_refused() -> None:
    sentence = (
        "keys and values in float16 with queries in bfloat16 have no kernel; fp8_e4m3 and fp8_e5m2 have"
    )
    assert FlashInferAttention.storage_unsupported("cuda", torch.bfloat16, torch.float16) == sentence
