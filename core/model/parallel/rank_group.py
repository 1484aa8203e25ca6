"""The processes that compute one model together, and the sums and copies that they exchange.

Rank 0 plans the steps and samples. All ranks run the same forward passes in the same order, so each call here
has its counterpart on every other rank. The group uses gloo on the loopback address, and a file for the
rendezvous: no other machine can connect.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import distributed

from llmfw.core.base.errors import ConfigError, RankError

T = TypeVar("T")

LOOPBACK = "127.0.0.1"
TIMEOUT = timedelta(days=1)
"""Limit on one exchange. The watchdog of the server finds a rank that hangs, and knows the user's limit."""
WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
"""Dtypes in which to add up partial results of other dtypes."""


class RankGroup:
    """The ranks of one engine, as one of them sees them.

    Args:
        rank: number of this process, from 0.
        size: number of processes.
        rendezvous: path of a file in a folder that only this user can read. All ranks name the same one.

    Raises:
        ConfigError: this torch has no gloo.
        RankError: the other ranks cannot be reached.
    """

    def __init__(self, rank: int, size: int, rendezvous: Path) -> None:
        self.rank = rank
        self.size = size
        if not (distributed.is_available() and distributed.is_gloo_available()):
            raise ConfigError(
                f"--tp is {size}, and torch {torch.__version__} has no gloo; install one that has"
            )
        self._gloo: Any = self._exchanged(lambda: _connect(rank, size, rendezvous))

    def __deepcopy__(self, memo: object) -> RankGroup:
        """Return this object: copies of a model's layers, for trials, belong to the same ranks."""
        return self

    def sum(self, partial: torch.Tensor) -> torch.Tensor:
        """Return the sum of the ranks' partial results, which have equal shapes. May change `partial`."""
        total = partial.to(WIDE.get(partial.dtype, partial.dtype)).contiguous()
        self._exchanged(lambda: self._gloo.allreduce([total]).wait())
        return total.to(partial.dtype)

    def gather(self, part: torch.Tensor) -> torch.Tensor:
        """Return the ranks' tensors, of equal shapes, joined along the last dimension in the order of the ranks."""
        part = part.contiguous()
        parts = [torch.empty_like(part) for _ in range(self.size)]
        self._exchanged(lambda: self._gloo.allgather([parts], [part]).wait())
        return torch.cat(parts, dim=-1)

    def copy_from_first(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor of rank 0; those of the other ranks must have the same shape and dtype."""
        tensor = tensor.contiguous()
        self._exchanged(lambda: self._gloo.broadcast([tensor]).wait())
        return tensor

    def _exchanged(self, exchange: Callable[[], T]) -> T:
        """Run an exchange; convert gloo's error to a RankError.

        Raises:
            RankError: another rank has ended.
        """
        try:
            return exchange()
        except RuntimeError as error:
            raise RankError(f"a rank of {self.size} does not answer: {error}") from error


def _connect(rank: int, size: int, rendezvous: Path) -> Any:
    module: Any = distributed  # torch declares only a part of what it exports
    gloo = module.ProcessGroupGloo
    options = gloo._Options()
    options._devices = [gloo.create_device(hostname=LOOPBACK)]
    options._timeout = TIMEOUT
    return gloo(module.FileStore(str(rendezvous), size), rank, size, options)
