"""Computes matrix products with weights in oneDNN's own layout, on a CPU in bfloat16.

torch's `linear` converts a weight to this layout at each call, or does without it; a weight that is converted once is
read at memory bandwidth. With one row, that takes half the time (figures in docs/benchmarks.md). The sums are
bit-identical. The operators are the ones that torch's own compiler uses in place of `linear`.
"""

from __future__ import annotations

import torch
from torch import nn

from .module_trial import is_plain


def pack_linears(model: nn.Module) -> int:
    """Replace each plain `nn.Linear` that can be packed by a `PackedLinear`; return their number."""
    packed = 0
    if not torch.backends.mkldnn.is_available():
        return packed
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if _can_pack(child):
                assert isinstance(child, nn.Linear)
                setattr(module, name, PackedLinear(child))
                packed += 1
    return packed


def _can_pack(module: nn.Module) -> bool:
    if type(module) is not nn.Linear or not is_plain(module):
        return False
    return module.weight.device.type == "cpu" and module.weight.dtype == torch.bfloat16


class PackedLinear(nn.Module):
    """Linear layer with a weight in oneDNN's layout.

    Args:
        linear: layer in bfloat16, on the CPU. Its weight is copied.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.bias = linear.bias
        self._packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(linear.weight.data, None)

    @property
    def weight(self) -> torch.Tensor:
        """The weight in its usual layout, [out_features, in_features]. A copy, so reading it in every step is slow."""
        return self._packed.to_dense()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return [..., out_features] for [..., in_features]."""
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            hidden, self._packed, self.bias, "none", [], ""
        )
        return output
