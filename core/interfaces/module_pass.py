"""The interface of a module pass: what puts faster modules in the place of a loaded model's ordinary ones.

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
    """Changes a model's modules, and nothing of what the model computes but the last bits.

    Built once, when a model is loaded, without arguments. A pass changes only modules that it knows to do what it does
    in their place: one with hooks, of a subclass, or whose results differ, stays as transformers wrote it.

    Attributes:
        has_own_threads: nearly all of the model that was changed computes on threads of the pass's own. Where the
            attention backend has its own, too, torch gets one in the engine's process: more would wait for cores that
            the others use.
    """

    has_own_threads = False

    @classmethod
    @abstractmethod
    def unsupported(cls, device: str, dtype: torch.dtype) -> str | None:
        """Return why this pass cannot work on models of this dtype on this device, as a sentence, or None if it can."""

    @abstractmethod
    def apply(self, model: nn.Module) -> int:
        """Change a model, which is in evaluation mode, where it stands.

        Whoever walks from the model to a weight by its name (`model.layers.0.mlp.down_proj.weight`) still finds it, with
        the same values. A second time there is nothing left to change.

        Returns:
            How many modules were changed; 0 leaves the model as it was.
        """


__all__ = ["ModulePass"]
