"""Checks whether the kernels can run, recognizes unmodified modules of transformers, and replaces modules."""

from __future__ import annotations

import os

import torch
from torch import nn

from llmfw.core.model.trial.module_trial import is_of_transformers

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def no_kernels(device: str, dtype: torch.dtype) -> str | None:
    """Return why the kernels cannot run, as a sentence, or None if they can."""
    if dtype not in DTYPES:
        return f"its kernels are not tested with {str(dtype).removeprefix('torch.')}"
    interpreted = os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")
    if interpreted and dtype == torch.bfloat16:
        return "Triton's interpreter computes bfloat16 wrong"
    if device.startswith("cuda") or interpreted:
        return None
    return "its kernels run on cuda"


def is_ordinary(module: nn.Module, suffix: str) -> bool:
    """Return whether a module is transformers' own, without hooks, and its class name ends in `suffix`."""
    return type(module).__name__.endswith(suffix) and is_of_transformers(module)


def adopt(new: nn.Module, old: nn.Module) -> None:
    """Give a new module the submodules and public attributes of the module that it replaces."""
    for name, child in old._modules.items():
        new.add_module(name, child)
    for name, value in vars(old).items():
        if not name.startswith("_"):
            setattr(new, name, value)


def replace(model: nn.Module, names: dict[str, nn.Module]) -> int:
    """Replace modules of a model, given as name → new module; return their number."""
    for name, new in names.items():
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, new)
    return len(names)
