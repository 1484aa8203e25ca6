"""Layers of which each rank computes a part: linear layers, embeddings and experts."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .rank_group import RankGroup


class GatheredLinear(nn.Module):
    """A linear layer of which each rank computes some output features, which all ranks then have.

    Args:
        linear: the rank's part.
        group: the ranks.
    """

    def __init__(self, linear: nn.Linear, group: RankGroup) -> None:
        super().__init__()
        self.product = linear
        self.in_features = linear.in_features
        self.out_features = linear.out_features * group.size
        self._group = group

    @property
    def weight(self) -> torch.Tensor:
        """The rank's part of the weight, [out_features / ranks, in_features]."""
        return self.product.weight

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the layer's output, [..., out_features], for `hidden`, [..., in_features]."""
        return self._group.gather(self.product(hidden))


class SummedLinear(nn.Module):
    """A linear layer of which each rank reads some input features. The ranks' results are added.

    Args:
        linear: the rank's part, with the whole bias, which is added once.
        group: the ranks.
        splits: whether the input has all features; if not, it has the rank's own.
    """

    def __init__(self, linear: nn.Linear, group: RankGroup, *, splits: bool) -> None:
        super().__init__()
        self.product = linear
        self.bias = linear.bias
        linear.register_parameter("bias", None)
        self.in_features = linear.in_features * group.size if splits else linear.in_features
        self.out_features = linear.out_features
        self._group = group
        self._part = (
            slice(group.rank * linear.in_features, (group.rank + 1) * linear.in_features) if splits else None
        )

    @property
    def weight(self) -> torch.Tensor:
        """The rank's part of the weight, [out_features, in_features / ranks]."""
        return self.product.weight

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the layer's output, [..., out_features], for `hidden`, [..., in_features]."""
        if self._part is not None:
            hidden = hidden[..., self._part]
        total = self._group.sum(self.product(hidden))
        return total if self.bias is None else total + self.bias


class SummedModule(nn.Module):
    """A module, such as the experts of a layer, whose results on the ranks are added.

    Args:
        module: the rank's part. Its output is one tensor.
        group: the ranks.
    """

    def __init__(self, module: nn.Module, group: RankGroup) -> None:
        super().__init__()
        self.module = module
        self._group = group

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return the sum of the ranks' outputs."""
        return self._group.sum(self.module(*args, **kwargs))


class DividedEmbedding(nn.Module):
    """An embedding of which each rank has some rows, in the order of the ranks.

    Args:
        embedding: the rank's rows.
        group: the ranks.
    """

    def __init__(self, embedding: nn.Embedding, group: RankGroup) -> None:
        super().__init__()
        self.rows = embedding
        self.num_embeddings = embedding.num_embeddings * group.size
        self.embedding_dim = embedding.embedding_dim
        self._group = group

    @property
    def weight(self) -> torch.Tensor:
        """The rank's rows: [num_embeddings / ranks, embedding_dim]."""
        return self.rows.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of tokens, [..., embedding_dim], for `ids`, [...]."""
        count = self.rows.num_embeddings
        own = ids - self._group.rank * count
        is_own = (own >= 0) & (own < count)
        found = self.rows(own.clamp(0, count - 1))
        return self._group.sum(found.masked_fill(~is_own.unsqueeze(-1), 0))
