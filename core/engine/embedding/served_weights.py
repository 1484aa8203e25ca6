"""Finds the differences between an encoder and its weight files that change the vectors.

Weight files of encoders often have heads that are not served, and often lack the pooler of the model's class.
Such differences are harmless. The weights that compute the last hidden states must match.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable
from typing import Any

import torch

from llmfw.core.model.weights.differences import Differences

logger = logging.getLogger(__name__)

NUM_TOKENS = 4


def served_differences(module: Any, differences: Differences) -> Differences:
    """Return the differences, without unused missing weights and surplus heads.

    Args:
        module: transformers' model without a head.
        differences: differences between the model and its weight files.
    """
    heads = [name for name in differences.surplus if not _is_inside(module, name)]
    if heads:
        logger.info("The files' heads are not used: %d tensors, first %s", len(heads), heads[0])
    return dataclasses.replace(
        differences,
        missing=tuple(_used(module, differences.missing)),
        surplus=tuple(name for name in differences.surplus if _is_inside(module, name)),
    )


def _is_inside(module: Any, name: str) -> bool:
    """Return whether a tensor belongs to the model itself, not to a head, judged by its name."""
    root = name.removeprefix(f"{module.base_model_prefix}.").partition(".")[0]
    return root in dict(module.named_children())


def _used(module: Any, names: Iterable[str]) -> list[str]:
    """Return the names of the tensors that the last hidden states depend on.

    Fills tensors with NaN, and checks whether the hidden states become NaN, too. Tensors without floats, and
    tensors that the model lacks, always count as used.
    """
    names = list(names)
    tensors = {name: module.get_parameter_or_buffer(name) for name in names}
    floating = {
        name: tensor for name, tensor in tensors.items() if tensor is not None and tensor.is_floating_point()
    }
    used = [name for name in names if name not in floating]
    if floating and _is_poisoned(module, floating.values()):
        used += [name for name, tensor in floating.items() if _is_poisoned(module, [tensor])]
    return sorted(used)


@torch.inference_mode()
def _is_poisoned(module: Any, tensors: Iterable[torch.Tensor]) -> bool:
    """Return whether the last hidden states contain NaN or infinity when these tensors are filled with NaN."""
    saved = [(tensor, tensor.data.clone()) for tensor in tensors]
    for tensor, _ in saved:
        tensor.data.fill_(torch.nan)
    ids = torch.arange(NUM_TOKENS, device=module.device).unsqueeze(0)
    try:
        output = module(input_ids=ids, attention_mask=torch.ones_like(ids), return_dict=True)
        return not bool(output.last_hidden_state.isfinite().all())
    finally:
        for tensor, before in saved:
            tensor.data.copy_(before)
