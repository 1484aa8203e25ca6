"""The optimizer Muon: momentum SGD with orthogonalized updates, for weight matrices."""

from collections.abc import Iterable

import torch
from torch import Tensor

# Keller Jordan's quintic polynomial. Five iterations bring every singular value close to 1.
_QUINTIC = (3.4445, -4.7750, 2.0315)
_ROUNDS = 5


class Muon(torch.optim.Optimizer):
    """The optimizer Muon, for two-dimensional weights only. Use AdamW for embeddings and norms."""

    def __init__(self, weights: Iterable[Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(weights, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for weight in group["params"]:
                velocity = self.state[weight].setdefault("velocity", torch.zeros_like(weight))
                velocity.lerp_(weight.grad, 1 - group["momentum"])
                ahead = weight.grad.lerp(velocity, group["momentum"])
                stretch = max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
                weight.add_(orthogonal(ahead), alpha=-group["lr"] * stretch)


def orthogonal(matrix: Tensor) -> Tensor:
    """Return a similar matrix whose singular values are all about 1, by Newton-Schulz iterations in bf16."""
    a, b, c = _QUINTIC
    wide = matrix.shape[0] <= matrix.shape[1]
    x = (matrix if wide else matrix.T).bfloat16()
    x = x / (x.norm() + 1e-7)
    for _ in range(_ROUNDS):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return (x if wide else x.T).to(matrix.dtype)
