"""An attention module that several layers share knows which of them calls it."""

from __future__ import annotations

from pathlib import Path

import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.model.models import load_model
from llmfw.core.plugin.plugins import load_plugins

from ....models.checkpoint import save_checkpoint
from ....models.tiny_config import tiny_config


def test_layers_of_a_shared_module_keep_own_keys(tmp_path: Path) -> None:
    """In this Zamba2, layers 1 and 3 have the same attention module, and layer 2 has another one."""
    folder = save_checkpoint(tiny_config("zamba2"), tmp_path)
    model = load_model(
        EngineConfig(model=str(folder), device="cpu"), torch.device("cpu"), load_plugins().registry
    )
    assert [layer.model_index for layer in model.layers] == [1, 2, 3]
    assert [state.model_index for state in model.states] == [0, 1, 2, 3]
