"""Interface of a module pass, which replaces ordinary modules of a loaded model by faster ones.

A pass sees transformers' modules after projections of one input were merged, and before the model is probed. It knows
nothing of requests, batches or attention backends. Reading this module imports no torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import nn


class ModulePass(ABC):
    """Changes a model's modules. The model's results stay the same except for the last bits.

    Built once, when a model is loaded, without arguments. A pass replaces only modules whose behaviour it knows: a module
    with hooks, of a subclass, or with different results stays as transformers wrote it.

    Attributes:
        has_own_threads: whether nearly all of the changed model computes on the pass's own threads. If the attention
            backend has its own threads, too, torch gets one thread in the engine's process, because more would wait for
            cores that the others use.
    """

    has_own_threads = False

    @classmethod
    @abstractmethod
    def unsupported(cls, device: str, dtype: torch.dtype) -> str | None:
        """Return why this pass cannot work on models of this dtype on this device, as a sentence, or None if it can."""

    @abstractmethod
    def apply(self, model: nn.Module) -> int:
        """Change a model, which is in evaluation mode, in place.

        Code that looks up a weight by its name (`model.layers.0.mlp.down_proj.weight`) must still find it, with the same
        values. A second call changes nothing.

        Returns:
            The number of changed modules; 0 leaves the model unchanged.
        """


__all__ = ["ModulePass"]
