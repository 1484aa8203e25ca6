"""Attention with linear biases (ALiBi): each head adds a slope, times the position of the key, to its scores.

The bias becomes part of the product of query and key, by a few more dimensions of both. So every attention backend
computes it, and the prefix cache holds it, because a key's position never changes. The key's dimensions hold the
digits of its position, the query's dimensions hold the slope times the value of each digit:

    query = [query, slope / scale * (1, 16, 256, …)]
    key = [key, digits of the position]

Digits are integers from -8 to 7, which all dtypes of a KV cache represent exactly, fp8 included. The slopes are split
into two parts, whose sum has twice the precision of the dtype. The key holds a part of the values of the last digits
(`SHARES`), which would be too large for a query in float16.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from llmfw.core import Attend

from .row_positions import RowPositions

NUM_DIGITS = 5
SHIFT = int("8" * NUM_DIGITS, 16)
"""Added to a position, which adds 8 to each of its digits and makes them 0 to 15."""
SHARES = (1, 1, 1, 16, 32)
"""Factor by which the key multiplies each digit. A digit times its factor fits into fp8, whose maximum is 448."""


class PositionDigits(RowPositions):
    """Positions of the tokens of a call, and their digits.

    Attributes:
        digits: for each token, the digits of its position, least significant first, times `SHARES`: [T, NUM_DIGITS].
            The last one is larger than 7 for positions from 489,336 on.
    """

    digits: torch.Tensor

    def __init__(self, model: nn.Module, *, takes_mask: bool = True) -> None:
        super().__init__(model, takes_mask=takes_mask)
        device = next((each.device for each in model.parameters()), None)
        self._places = torch.arange(0, 4 * NUM_DIGITS, 4, device=device)
        self._shares = torch.tensor(SHARES, device=device)

    def __call__(self, model: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Keep the positions of a call and their digits; return the arguments for the model."""
        result = super().__call__(model, args, kwargs)
        # Not kept from call to call: in a CUDA graph, other positions come in the same tensor.
        digits = (self.value[:, None] + SHIFT) >> self._places
        self.digits = (torch.cat([digits[:, :-1] & 15, digits[:, -1:]], dim=1) - 8) * self._shares
        return result


class LinearBias:
    """Computes attention with linear biases, by an attention without.

    Args:
        attend: llmfw's attention.
        slopes: slope of each head, [heads].
        scaling: factor of the scores, which the biases are not multiplied by.
        positions: positions of the current call.
    """

    def __init__(
        self, attend: Attend, slopes: torch.Tensor, scaling: float, positions: PositionDigits
    ) -> None:
        self._attend = attend
        self._scaling = scaling
        self._positions = positions
        places = torch.arange(NUM_DIGITS, dtype=torch.float64, device=slopes.device)
        values = 16**places / torch.tensor(SHARES, device=slopes.device)
        self._factors = slopes.double()[:, None] / scaling * values  # [heads, digits]
        self._parts: torch.Tensor | None = None

    def __call__(
        self, module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """Return the attention output, [1, T, heads, v_head_dim]; arguments as in `Attend`."""
        factors = self._in(query.dtype)
        digits = self._positions.digits.to(key.dtype).repeat(1, 2)
        query = torch.cat([query, factors[None, :, None].expand(-1, -1, query.shape[2], -1)], dim=3)
        key = torch.cat([key, digits[None, None].expand(-1, key.shape[1], -1, -1)], dim=3)
        return self._attend(module, query, key, value, None, scaling=self._scaling)

    def _in(self, dtype: torch.dtype) -> torch.Tensor:
        """Return the two parts of the factors of the digits in a dtype, [heads, 2 * NUM_DIGITS]."""
        if self._parts is None or self._parts.dtype != dtype:
            first = self._factors.to(dtype)
            self._parts = torch.cat([first, (self._factors - first.double()).to(dtype)], dim=1)
        return self._parts
