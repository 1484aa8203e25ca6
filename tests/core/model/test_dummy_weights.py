"""Random weights are drawn where they are used: none of them passes through the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

from llmfw.core.base.config import EngineConfig
from llmfw.core.model.hf_attention import IMPLEMENTATION, register_with_transformers
from llmfw.core.model.models import _load_module

from ..engine.generation.tiny_models import SERVABLE, save_random_model


class HostTensors(TorchDispatchMode):
    """Counts the tensors that operators made on the host meanwhile."""

    num_found = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        self.num_found += isinstance(made, torch.Tensor) and made.device.type == "cpu"
        return made


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma 2 (soft cap)", "mixtral"])
def test_dummy_weights_are_drawn_on_their_device(family: str, tmp_path: Path) -> None:
    register_with_transformers()
    folder = save_random_model(tmp_path, *SERVABLE[family])
    config = EngineConfig(model=str(folder), load_format="dummy")
    with HostTensors() as host:
        module = _load_module(
            config,
            None,
            AutoModelForCausalLM,
            AutoConfig.from_pretrained(folder),
            torch.bfloat16,
            torch.device("meta"),
            IMPLEMENTATION,
        )
    assert {parameter.device.type for parameter in module.parameters()} == {"meta"}
    assert host.num_found == 0


def test_dummy_weights_are_normal(tmp_path: Path) -> None:
    register_with_transformers()
    folder = save_random_model(tmp_path, *SERVABLE["llama"])
    config = EngineConfig(model=str(folder), load_format="dummy")
    module = _load_module(
        config,
        None,
        AutoModelForCausalLM,
        AutoConfig.from_pretrained(folder),
        torch.float32,
        torch.device("cpu"),
        IMPLEMENTATION,
    )
    matrices = [p.detach() for p in module.parameters() if p.dim() == 2]
    assert [float(weight.std()) for weight in matrices] == pytest.approx([0.02] * len(matrices), rel=0.1)
