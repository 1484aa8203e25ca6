"""Merges projections of the same input into one larger matrix product.

`q_proj`, `k_proj` and `v_proj` (and `gate_proj`, `up_proj`) are replaced with `MergedPart`s of one merged
product. The first part that is called computes the whole product. The other parts return their slice of it if
they are called with the same tensor; otherwise they compute the product again. So transformers' code stays
unchanged, and the results are correct for every order of its calls. Only plain `nn.Linear`s of equal input
width are merged.
"""

from __future__ import annotations

import torch
from torch import nn

from ..trial.module_trial import is_plain

MERGED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


def merge_projections(model: nn.Module) -> int:
    """Merge all projections of a model that can be merged; return the number of saved matrix products."""
    saved = 0
    for module in list(model.modules()):
        for names in MERGED:
            linears = _mergeable([getattr(module, name, None) for name in names])
            if linears:
                merged = MergedLinear(linears)
                for i, name in enumerate(names):
                    setattr(module, name, MergedPart(merged, i))
                saved += len(names) - 1
    return saved


def _mergeable(found: list[nn.Module | None]) -> list[nn.Linear]:
    """Return the modules if all can be merged into one; else an empty list."""
    linears = [linear for linear in found if type(linear) is nn.Linear and is_plain(linear)]
    if len(linears) < len(found):
        return []
    kinds = {(x.in_features, x.bias is None, x.weight.dtype, x.weight.device) for x in linears}
    return linears if len(kinds) == 1 else []


class MergedLinear(nn.Module):
    """One matrix product for several projections of one input.

    Args:
        linears: at least two projections of the same input width, dtype and device; all or none have a
            bias. Their weights are copied.
    """

    def __init__(self, linears: list[nn.Linear]) -> None:
        super().__init__()
        self.sizes = [linear.out_features for linear in linears]
        first = linears[0]
        # On the meta device: initializing weights at random would take longer than loading the model.
        self.product = nn.Linear(first.in_features, sum(self.sizes), first.bias is not None, "meta")
        self.product.weight = _joined([linear.weight for linear in linears])
        if first.bias is not None:
            self.product.bias = _joined([linear.bias for linear in linears])
        self._input: torch.Tensor | None = None
        self._outputs: list[torch.Tensor | None] = []

    def take(self, index: int, hidden: torch.Tensor) -> torch.Tensor:
        """Return one projection of `hidden`, [..., sizes[index]].

        Computes the whole product unless the slice is left from an earlier call with the same input. Each
        slice is returned once.
        """
        if self._input is not hidden or self._outputs[index] is None:
            self._outputs = list(self.product(hidden).split(self.sizes, dim=-1))
            self._input = hidden
        output = self._outputs[index]
        assert output is not None
        self._outputs[index] = None
        if not any(share is not None for share in self._outputs):
            self._input = None
        return output


def _joined(parameters: list[torch.Tensor]) -> nn.Parameter:
    return nn.Parameter(torch.cat([each.data for each in parameters]), parameters[0].requires_grad)


class MergedPart(nn.Module):
    """Replacement for one projection of a merged product.

    Args:
        merged: merged product, which holds the weights of the projection.
        index: index of the projection in the merged product.
    """

    def __init__(self, merged: MergedLinear, index: int) -> None:
        super().__init__()
        self.merged = merged
        self.index = index
        self.out_features = merged.sizes[index]
        self.in_features = merged.product.in_features

    @property
    def weight(self) -> torch.Tensor:
        """Weight of this projection, [out_features, in_features]: a view of the merged weight."""
        views: tuple[torch.Tensor, ...] = self.merged.product.weight.split(self.merged.sizes)
        return views[self.index]

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return this projection of `hidden`."""
        return self.merged.take(self.index, hidden)
