"""Random weights are drawn where they are used: none of them passes through the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from llmfw.core.model.attention.hf_attention import IMPLEMENTATION, register_with_transformers
from llmfw.core.model.loading import Loading, load_module

from ...models.tiny_config import tiny_config
from ..engine.generation.tiny_models import SERVABLE, save_random_model


class HostTensors(TorchDispatchMode):
    """Counts the tensors that operators made on the host meanwhile."""

    num_found = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        self.num_found += isinstance(made, torch.Tensor) and made.device.type == "cpu"
        return made


def drawn(folder: Path, dtype: torch.dtype, device: str) -> Any:
    """Return a decoder of the folder's config with random weights."""
    register_with_transformers()
    hf_config = AutoConfig.from_pretrained(folder)
    loading = Loading(str(folder), hf_config, AutoModelForCausalLM, None, dtype, torch.device(device))
    return load_module(loading, attn_implementation=IMPLEMENTATION)[0]


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert", "xlm-roberta", "distilbert"])
def test_random_encoders_are_drawn_on_their_device(family: str) -> None:
    loading = Loading("m", tiny_config(family), AutoModel, None, torch.bfloat16, torch.device("meta"))
    module, differences = load_module(loading)
    assert {parameter.device.type for parameter in module.parameters()} == {"meta"}
    differences.refuse_any("m")


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma 2 (soft cap)", "mixtral"])
def test_dummy_weights_are_drawn_on_their_device(family: str, tmp_path: Path) -> None:
    folder = save_random_model(tmp_path, *SERVABLE[family])
    with HostTensors() as host:
        module = drawn(folder, torch.bfloat16, "meta")
    assert {parameter.device.type for parameter in module.parameters()} == {"meta"}
    assert host.num_found == 0


def test_dummy_weights_are_normal(tmp_path: Path) -> None:
    module = drawn(save_random_model(tmp_path, *SERVABLE["llama"]), torch.float32, "cpu")
    matrices = [p.detach() for p in module.parameters() if p.dim() == 2]
    assert [float(weight.std()) for weight in matrices] == pytest.approx([0.02] * len(matrices), rel=0.1)
