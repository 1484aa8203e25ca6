"""The interface of a module pass, which replaces ordinary modules of a loaded model with faster ones.

A pass receives transformers' modules. Projections of the same input have been merged before; the model is
probed afterwards. A pass is independent of requests, batches and attention backends. Importing this module
does not import torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import nn


class ModulePass(ABC):
    """Replaces modules of a model. The model's results stay the same, except for rounding.

    Built once, without arguments, when a model is loaded. A pass must replace only modules whose behaviour it
    knows exactly. It leaves modules with hooks, modules of a subclass, and modules that compute other results
    unchanged.

    Attributes:
        has_own_threads: whether nearly all of the changed model computes on the pass's own threads. If this
            is true of the attention backend, too, torch gets only one thread in the engine's process, because
            more threads would compete for the same cores.
    """

    has_own_threads = False

    @classmethod
    @abstractmethod
    def unsupported(cls, device: str, dtype: torch.dtype) -> str | None:
        """Return None if this pass can change models of this dtype on this device, or else a sentence that
        says why not."""

    @abstractmethod
    def apply(self, model: nn.Module) -> int:
        """Change a model in place. The model is in evaluation mode.

        Code that looks up a weight by its name (`model.layers.0.mlp.down_proj.weight`) must still find it,
        with the same values. A second call must change nothing.

        Returns:
            The number of changed modules; 0: the model is unchanged.
        """


__all__ = ["ModulePass"]
