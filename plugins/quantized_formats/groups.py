"""Groups of a layer's inputs, which share a scale."""

from __future__ import annotations

import torch

from llmfw.core import ModelError


def groups_of_inputs(
    name: str, stored: torch.Tensor | None, in_features: int, groups: int, order: str | None
) -> torch.Tensor:
    """Return the group of each input, [in_features].

    Args:
        name: name of the tensor with the groups, for error messages.
        stored: the tensor, [in_features]; None: the groups are in order.
        groups: number of groups.
        order: setting that requires groups in order, for error messages; None: any order is valid.

    Raises:
        ModelError: the groups differ in their number of inputs, or are out of order although `order` is
            given.
    """
    size = in_features // groups
    in_order = torch.arange(in_features) // size
    if stored is None:
        return in_order
    found = stored.long()
    if not torch.equal(found.sort().values, in_order):
        raise ModelError(
            f"{name} does not put {size} inputs into each of {groups} groups; download the model again, or correct group_size "
            "in config.json"
        )
    if order is not None and not torch.equal(found, in_order):
        raise ModelError(f"{name} has groups out of order, and config.json says {order}; correct it")
    return found
