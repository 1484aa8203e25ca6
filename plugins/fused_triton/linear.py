"""Linear layers whose products with few rows are computed by our kernels.

A product with few rows takes only the time to read the weight. For one or two rows, a kernel without tensor
cores reads the weight once, in whole rows. For 3 to 128 rows and the shapes in `tiles.TILINGS`, a kernel with
tensor cores is used on GPUs that support it. torch computes all other products.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from llmfw.core import ModulePass
from llmfw.core.model.trial.module_trial import agree, is_plain, random_input

from .few_rows import ALIGNMENT, MAX_ROWS, linear_of_few_rows
from .recognition import DTYPES, no_kernels, replace
from .tiles import Tiling, can_tile, choose_tilings, fewest_rows, linear_by_tiles, new_counters, rows_class

MIN_OUTPUTS = 512
"""Layers with fewer outputs stay as they are: they would not make enough programs to read at full speed."""

ALIGNED_BYTES = 16


class LinearPass(ModulePass):
    """Replaces plain linear layers, including merged ones and the output layer, with `FewRowsLinear`s."""

    @classmethod
    def unsupported(cls, device: str, dtype: torch.dtype) -> str | None:
        """Return why the kernel cannot run, or None."""
        return no_kernels(device, dtype)

    @torch.inference_mode()
    def apply(self, model: nn.Module) -> int:
        """Replace the layers that the kernel computes correctly; return their number."""
        tried: dict[tuple[object, ...], dict[int, Tiling] | None] = {}
        made: dict[int, FewRowsLinear] = {}
        names: dict[str, nn.Module] = {}
        # One module may have several names: a merged product is a part of each projection.
        for name, module in model.named_modules(remove_duplicate=False):
            if not name or type(module) is not nn.Linear or not _can_replace(module):
                continue
            weight = module.weight
            kind = (weight.shape, weight.dtype, weight.device, module.bias is None)
            if kind not in tried:
                tried[kind] = _right_tilings(module) if _is_right(module) else None
            tilings = tried[kind]
            if tilings is not None:
                names[name] = made.setdefault(id(module), FewRowsLinear(module, tilings))
        replace(model, names)
        return len(made)


class FewRowsLinear(nn.Module):
    """A linear layer that computes up to `MAX_ROWS` rows with one kernel, more rows with another or torch.

    Products of this layer must run in one stream at a time, because products with tilings share counters.

    Args:
        linear: layer whose weight and bias are used, not copied.
        tilings: cuts of products with more than `MAX_ROWS` rows, by class of rows; torch computes other
            classes.
    """

    counters: torch.Tensor | None

    def __init__(self, linear: nn.Linear, tilings: dict[int, Tiling] | None = None) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.weight = linear.weight
        self.bias = linear.bias
        self.tilings = tilings or {}
        counters = new_counters(self.out_features, self.tilings, self.weight.device) if tilings else None
        self.register_buffer("counters", counters, persistent=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the layer's output, [..., out_features], for `hidden`, [..., in_features]."""
        is_valid = hidden.shape[-1] == self.in_features and hidden.dtype == self.weight.dtype
        if is_valid and 0 < hidden.numel() <= MAX_ROWS * self.in_features:
            return linear_of_few_rows(hidden, self.weight, self.bias)
        if is_valid and self.counters is not None:
            tiling = self.tilings.get(rows_class(hidden.numel() // self.in_features) or 0)
            if tiling is not None:
                return linear_by_tiles(hidden, self.weight, self.bias, tiling, self.counters)
        return functional.linear(hidden, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the attributes that `repr` shows after the class name."""
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


def _can_replace(linear: nn.Linear) -> bool:
    if not is_plain(linear) or set(linear._parameters) != {"weight", "bias"} or linear._modules:
        return False
    weight, bias = linear.weight, linear.bias
    if weight.dtype not in DTYPES or not weight.is_contiguous() or weight.data_ptr() % ALIGNED_BYTES:
        return False
    if bias is not None and (bias.dtype != weight.dtype or not bias.is_contiguous()):
        return False
    return weight.shape[0] >= MIN_OUTPUTS and weight.shape[1] % ALIGNMENT == 0


def _is_right(linear: nn.Linear) -> bool:
    """Return whether the kernel and torch agree on a layer. Compiles the kernel for each number of rows."""
    ours = FewRowsLinear(linear)
    inputs = (random_input(rows, linear.in_features, like=linear.weight) for rows in range(1, MAX_ROWS + 1))
    return all(agree(linear(hidden), ours(hidden)) for hidden in inputs)


def _right_tilings(linear: nn.Linear) -> dict[int, Tiling]:
    """Return the tilings with which the kernel and torch agree on a layer. Compiles the kernels."""
    if not can_tile(linear.weight):
        return {}
    tilings = choose_tilings(linear.out_features, linear.in_features)
    ours = FewRowsLinear(linear, tilings)

    def is_right(most: int) -> bool:
        inputs = (
            random_input(rows, linear.in_features, like=linear.weight) for rows in (fewest_rows(most), most)
        )
        return all(agree(linear(hidden), ours(hidden)) for hidden in inputs)

    return {most: tiling for most, tiling in tilings.items() if is_right(most)}
