"""The interface of a module pass, which replaces ordinary modules of a loaded model with faster ones.

A pass receives a model of transformers' modules, in which llmfw has already merged projections of the same
input. After all passes, llmfw probes the model: it runs the model once to find its attention layers. A pass
is independent of requests, batches and attention backends. Importing this module does not import torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import nn


class ModulePass(ABC):
    """Replaces modules of a model. The model's results stay the same, except for rounding.

    llmfw builds a pass without arguments when it loads a model. A pass must replace only modules whose
    behavior it knows exactly. It must not change modules with hooks, modules of a subclass, or modules that
    compute other results.

    Attributes:
        has_own_threads: whether nearly all computations of the changed model run on the pass's own threads.
            If the attention backend has its own threads, too, torch gets only one thread in the engine's
            process, because more threads would compete for the same cores.
    """

    has_own_threads = False

    @classmethod
    @abstractmethod
    def unsupported(cls, device: str, dtype: torch.dtype) -> str | None:
        """Return why this pass cannot change models of this dtype on this device; None if it can.

        The reason is a sentence for the log and for errors, such as "it needs an NVIDIA GPU".
        """

    @abstractmethod
    def apply(self, model: nn.Module) -> int:
        """Change a model in place. The model is in evaluation mode.

        Code that looks up a weight by its name (`model.layers.0.mlp.down_proj.weight`) must still find it,
        with the same values. A second call must change nothing.

        Returns:
            The number of changed modules; 0: the model is unchanged.
        """


__all__ = ["ModulePass"]
