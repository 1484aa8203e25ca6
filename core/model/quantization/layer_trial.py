"""Tries a quantized layer on random input, and compares it with the layer that it replaces.

The trial finds modules that cannot be run, whose outputs have another shape or dtype, are not finite, are far
from the layer's, or depend on other rows of the input.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from llmfw.core.plugin.returned import WrongReturnError

SCALES = (1.0, 0.01, 10.0)
"""Size of each row of the input. A module that rounds all rows by one scale loses the smaller ones."""
ROUNDING = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Distance that is allowed for rounding to a dtype, in addition to a scheme's tolerance."""
NUM_OUTPUTS = 256
"""Maximum number of outputs of a linear layer that are compared. All must be finite."""
NUM_IDS = 64
"""Maximum number of rows of an embedding layer that are compared."""
_LEAST = torch.finfo(torch.float64).tiny


class LinearTrial:
    """Inputs of a linear layer, and some of its outputs before it is quantized.

    Computing all outputs would take longer than quantizing the weight to eight bits.

    Args:
        weight: weight of the layer, [out_features, in_features].
        bias: bias, [out_features], or None.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight, self._bias = weight, bias
        self._inputs = _random_inputs(weight.shape[1]).to(weight.device, weight.dtype)
        self._sample = torch.arange(0, len(weight), -(-len(weight) // NUM_OUTPUTS), device=weight.device)
        self._outputs = self._compute(self._sample)
        self._norms = self._output_norms()

    def check(self, module: nn.Module, tolerance: float, *, in_other_shapes: bool) -> None:
        """Raise WrongReturnError unless a module computes the same layer.

        Args:
            tolerance: maximum distance, relative to the norm of the outputs.
            in_other_shapes: whether to try inputs without a batch dimension, and of one row, too.
        """
        self._compare(module, tolerance, slice(None), has_batch=True)
        if in_other_shapes:
            self._compare(module, tolerance, slice(None))
            self._compare(module, tolerance, slice(1, 2))

    def _compare(self, module: nn.Module, tolerance: float, rows: slice, *, has_batch: bool = False) -> None:
        inputs = self._inputs[rows].clone()  # the module may change them
        shape = (*([1] if has_batch else []), len(inputs), len(self._weight))
        found: Any = module(inputs[None] if has_batch else inputs)
        check_like(found, inputs.new_empty(()).expand(shape), "its module returned")
        found = found.reshape(-1, len(self._weight))
        self._check_finite(found, rows)
        expected = self._outputs[rows]
        is_sound = expected.isfinite().all(
            dim=-1
        )  # otherwise the checkpoint is at fault, which is found later
        if not bool(is_sound.any()):
            return
        moved = (found[:, self._sample].double() - expected.double())[is_sound].norm(dim=-1)
        squares = (moved / self._norms[rows][is_sound].clamp_min(_LEAST)).square()
        _check_distance(float(squares.mean().sqrt()), tolerance, expected.dtype)

    def _check_finite(self, found: torch.Tensor, rows: slice) -> None:
        is_odd = ~found.isfinite()
        features = is_odd.any(dim=0).nonzero().flatten()
        if len(features):
            expected = self._compute(features)[rows]
            if bool((is_odd[:, features] & expected.isfinite()).any()):
                raise WrongReturnError("its module returned NaN or infinity for finite inputs")

    def _compute(self, features: torch.Tensor) -> torch.Tensor:
        """Return some outputs of the layer: [rows, features]."""
        bias = None if self._bias is None else self._bias[features]
        return functional.linear(self._inputs, self._weight[features], bias)

    def _output_norms(self) -> torch.Tensor:
        """Return the norm that the outputs have on average over random inputs of the same norms: [rows].

        The norm of the actual outputs of a layer with few features may be small by chance. In float64, because
        squares of small weights would underflow.
        """
        weight, inputs = self._weight[self._sample].double(), self._inputs.double()
        squares = inputs.square().sum(dim=-1) * weight.square().sum() / weight.shape[1]
        if self._bias is not None:
            squares = squares + self._bias[self._sample].double().square().sum()
        return squares.sqrt()


class EmbeddingTrial:
    """Token ids of an embedding layer, and their embeddings before it is quantized.

    Args:
        weight: weight that the embedding layer shares with the head, [num_embeddings, embedding_dim].
    """

    def __init__(self, weight: torch.Tensor) -> None:
        step = -(-len(weight) // NUM_IDS)
        self._ids = torch.arange(0, len(weight), step, device=weight.device)[None]
        self._rows = weight[self._ids]

    def check(self, module: nn.Module, tolerance: float) -> None:
        """Raise WrongReturnError unless a module returns these embeddings."""
        found: Any = module(self._ids)
        check_like(found, self._rows, "its embedding layer returned")
        if not bool(self._rows.isfinite().all()):
            return
        moved, norm = (found.double() - self._rows.double()).norm(), self._rows.double().norm()
        distance = float(moved / norm.clamp_min(_LEAST))
        _check_distance(distance, tolerance, self._rows.dtype)


def check_like(found: Any, expected: torch.Tensor, what: str) -> None:
    """Raise WrongReturnError unless a value is a tensor with the shape, dtype and device of another."""
    if not isinstance(found, torch.Tensor):
        raise WrongReturnError(f"{what} a {type(found).__name__} in place of a tensor")
    given = (list(found.shape), found.dtype, found.device)
    asked = (list(expected.shape), expected.dtype, expected.device)
    if given != asked:
        words = (
            f"{shape} in {str(dtype).removeprefix('torch.')} on {device}"
            for shape, dtype, device in (given, asked)
        )
        raise WrongReturnError("{} {} in place of {}".format(what, *words))


def _check_distance(distance: float, tolerance: float, dtype: torch.dtype) -> None:
    if not distance <= tolerance + ROUNDING[dtype]:
        raise WrongReturnError(
            f"its module's outputs are {distance:.2g} away from the layer's, relative to their norm; its tolerance "
            f"is {tolerance:g}"
        )


def _random_inputs(in_features: int) -> torch.Tensor:
    """Return rows of normally distributed numbers, of different sizes: [rows, in_features]."""
    generator = torch.Generator().manual_seed(in_features)
    numbers = torch.randn(len(SCALES), in_features, generator=generator, dtype=torch.float32, device="cpu")
    return numbers * torch.tensor(SCALES, dtype=torch.float32, device="cpu")[:, None]
