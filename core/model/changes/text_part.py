"""Reduces a model that reads images or sound besides text to the modules that compute with text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from ..failure.refusal import refused, refusing
from ..trial.packed import packed_logits


def split_off_others(model: nn.Module, vocab_size: int) -> list[tuple[nn.Module, str, nn.Module]]:
    """Remove the parts of a model that text does not reach, such as the image encoder, from its module tree.

    These parts are the modules directly below the model or its base model that hold parameters and that do
    not run when the model computes a few tokens. Without these parts, the logits must be identical bit for
    bit.

    Args:
        model: model in evaluation mode.
        vocab_size: upper bound of the token ids to run it with.

    Returns:
        The removed parts: the parent, the part's name in the parent, and the part.

    Raises:
        ModelError: the model cannot compute with text alone, or its logits differ without those parts.
    """
    with refusing(model, "running it on text alone"):
        unused, before = _unused_parts(model, vocab_size)
        parts = [(parent, name, getattr(parent, name)) for parent, name in unused]
        for parent, name in unused:
            setattr(parent, name, None)
        if unused and not torch.equal(packed_logits(model, vocab_size), before):
            raise refused(model, "its parts for other inputs than text change what it says of a text")
    return parts


def keep_text_part(model: nn.Module, vocab_size: int) -> int:
    """Drop the parts of a model that a text does not reach; return the size of their weights in bytes.

    Raises:
        ModelError: as in `split_off_others`.
    """
    return sum(num_bytes(part) for _, _, part in split_off_others(model, vocab_size))


def _unused_parts(model: nn.Module, vocab_size: int) -> tuple[list[tuple[nn.Module, str]], torch.Tensor]:
    """Return the parts that do not run, each as parent and name in it, and the logits of a few tokens."""
    ran: set[nn.Module] = set()
    with ExitStack() as hooks:
        for module in model.modules():
            handle = module.register_forward_pre_hook(lambda each, _: ran.add(each))
            hooks.callback(handle.remove)
        logits = packed_logits(model, vocab_size)
    return [
        (parent, name)
        for parent, name, part in _parts(model)
        if ran.isdisjoint(part.modules()) and next(part.parameters(), None) is not None
    ], logits


def _parts(model: Any) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    """Yield the modules directly below a model and its base model: parent, name in the parent, module."""
    parents = [model] if model.base_model is model else [model, model.base_model]
    for parent in parents:
        for name, part in parent.named_children():
            yield parent, name, part


def num_bytes(module: nn.Module) -> int:
    """Return the size of a module's weights in bytes."""
    return sum(parameter.nbytes for parameter in module.parameters())
