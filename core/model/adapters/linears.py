"""Finds the linear layers that adapters can adapt, and gives a reason for each other linear layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..trial.packed import packed_logits

NUM_TRIED = 13
"""Tokens that `packed_logits` computes."""


@dataclass(slots=True)
class _Calls:
    """The number of calls of a layer, and the number and dtype of the rows in the last call."""

    count: int = 0
    num_rows: int = 0
    dtype: torch.dtype | None = None


def linears_of(model: nn.Module) -> dict[str, nn.Module]:
    """Return a model's linear layers by name: plain, merged and quantized ones."""
    return dict(_linears(model, ""))


def _linears(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    if name and _is_linear(module):
        yield name, module
        return
    for child_name, child in module.named_children():
        yield from _linears(child, f"{name}.{child_name}" if name else child_name)


def _is_linear(module: Any) -> bool:
    # Quantized layers may have no weight, or compute it at each access.
    return all(type(getattr(module, name, None)) is int for name in ("in_features", "out_features"))


def heads_of(model: Any, linears: dict[str, nn.Module]) -> set[str]:
    """Return the names of a model's output layers."""
    head = model.get_output_embeddings()
    return {name for name, linear in linears.items() if linear is head}


@torch.inference_mode()
def refused_linears(
    model: nn.Module, linears: dict[str, nn.Module], heads: set[str], vocab_size: int, dtype: torch.dtype
) -> dict[str, str]:
    """Return the linear layers that cannot be adapted, and why: name → reason.

    A layer is adapted by rows, so each call must compute all rows of a step, in their order. The function
    runs the model on a few tokens to find the layers that do so.
    """
    calls = called(model, list(linears.values()), vocab_size)
    shared = Counter(map(id, linears.values()))
    refused = {}
    for name, linear in linears.items():
        seen = calls[id(linear)]
        if name in heads:
            refused[name] = "adapters of the output layer are not served"
        elif ".experts." in name or seen.count != 1 or seen.num_rows != NUM_TRIED:
            refused[name] = "it is not computed for all tokens of a step at once"
        elif seen.dtype is not dtype:
            refused[name] = f"it computes in {str(seen.dtype).removeprefix('torch.')}"
        elif shared[id(linear)] > 1:
            refused[name] = "several places of the model share it"
    return refused


def called(model: nn.Module, linears: list[nn.Module], vocab_size: int) -> dict[int, _Calls]:
    """Run a model on a few tokens; return the calls of its layers, by the layer's `id()`."""
    calls = {id(each): _Calls() for each in linears}

    def note(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        seen, hidden = calls[id(module)], inputs[0]
        seen.count += 1
        seen.num_rows = hidden.numel() // hidden.shape[-1]
        seen.dtype = hidden.dtype

    hooks = [each.register_forward_pre_hook(note) for each in linears]
    try:
        packed_logits(model, vocab_size)
    finally:
        for hook in hooks:
            hook.remove()
    return calls
