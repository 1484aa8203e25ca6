"""Random checkpoints of every model type: weights that make a clear choice, norms and biases that matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForMultimodalLM, PreTrainedConfig

SPREAD = 0.15
"""Standard deviation of matrices. With a width of 64 a layer's output is as large as its input."""
NUDGE = 0.2
"""How far norms, biases, sinks and the like are moved from what they begin as."""
FIXED = ("decay", "slope_rate")
"""Ends of the names of buffers that are computed from one another: moved alone, they contradict each other."""


def save_checkpoint(config: PreTrainedConfig, folder: Path) -> Path:
    """Write a model with random float32 weights; return its folder."""
    torch.manual_seed(1)
    model = class_of(config).from_config(config, dtype=torch.float32)
    randomize(model)
    model.save_pretrained(folder)
    if type(model.config) is not type(
        config
    ):  # a model of the text alone: the folder is to say what the type was
        config.architectures = [type(model).__name__]
        config.save_pretrained(folder)
    return folder


def class_of(config: PreTrainedConfig) -> Any:
    """Return the auto class for a type: that of causal language models, or that of those with other inputs besides text."""
    causal = type(config) in AutoModelForCausalLM._model_mapping
    return AutoModelForCausalLM if causal else AutoModelForMultimodalLM


@torch.no_grad()
def randomize(model: nn.Module) -> None:
    """Draw all that a checkpoint keeps: parameters, and buffers such as the bias of a router."""
    kept = set(model.state_dict())
    for parameter in model.parameters():
        if parameter.dim() >= 2:
            parameter.normal_(0, SPREAD)
        else:
            parameter.add_(torch.randn_like(parameter), alpha=NUDGE)
    for name, buffer in model.named_buffers():
        if name in kept and buffer.is_floating_point() and not name.endswith(FIXED):
            buffer.add_(torch.rand_like(buffer), alpha=NUDGE)
