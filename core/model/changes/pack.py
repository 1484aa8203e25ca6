"""Computes linear layers in bfloat16 on a CPU with weights in oneDNN's own layout.

torch's `linear` converts a weight to this layout at each call, or does not use the layout. A weight that is
converted once is read at memory bandwidth, so a product with one row takes half the time (see
docs/benchmarks.md). The results are bit-identical. torch's own compiler uses the same operators in place of
`linear`.
"""

from __future__ import annotations

import torch
from torch import nn

from ..device.devices import has_fast_bfloat16
from ..trial.module_trial import is_plain


def pack_linears(model: nn.Module) -> int:
    """Replace each plain `nn.Linear` that can be packed with a `PackedLinear`; return the number of replaced
    layers.

    oneDNN packs nothing on a CPU without instructions for bfloat16.
    """
    packed = 0
    if not (torch.backends.mkldnn.is_available() and has_fast_bfloat16()):
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
        """The weight in its usual layout, [out_features, in_features].

        Converted at each access, which is slow.
        """
        return self._packed.to_dense()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the layer's output, [..., out_features], for `hidden`, [..., in_features]."""
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            hidden, self._packed, self.bias, "none", [], ""
        )
        return output
