"""The interface of a model adapter, which makes a model's attention layers use llmfw's attention.

Most model types of transformers call transformers' attention interface, which llmfw implements. Older types
compute attention in their own code, or do not pass arguments on to the interface. An adapter changes the
layers of such a model when it is loaded, so that llmfw can serve it. Importing this module does not import
torch.

llmfw runs each model before and after it is adapted, and compares the logits. An adapter that raises, or that
changes what the model computes, ends the start with an error that names the plugin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from torch import nn


class Attend(Protocol):
    """Computes the attention of one layer, for all tokens of a step."""

    def __call__(
        self,
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        *,
        scaling: float | None = None,
        sliding_window: int | None = None,
        softcap: float | None = None,
    ) -> torch.Tensor:
        """Return the attention output, [1, T, heads, v_head_dim]. Call it exactly once for each layer and step.

        Args:
            module: module whose attribute `layer_idx` is the index of the layer, from 0.
            query: [1, heads, T, head_dim], with positions applied.
            key: [1, kv_heads, T, head_dim], with positions applied; kv_heads divides heads. In the query's
                dtype.
            value: [1, kv_heads, T, v_head_dim]. In the query's dtype.
            attention_mask: mask that the model gave the layer; None: causal, within `sliding_window`.
            scaling: factor of the scores; None: head_dim ** -0.5.
            sliding_window: number of tokens that a token attends to, up to and including itself; None: all.
            softcap: bound of the scores, which become softcap * tanh(scores / softcap); None: scores stay
                unchanged.
        """


class ModelAdapter(ABC):
    """Adapts models of certain types. llmfw builds an adapter without arguments when it loads a model.

    Attributes:
        model_types: types of models that the adapter is for, as `model_type` in config.json names them.
    """

    model_types: tuple[str, ...] = ()

    @classmethod
    def unsupported(cls, config: Any) -> str | None:
        """Return why a model of these types cannot be served; None if it can.

        Called before the weights are read. The reason is a clause for errors, such as "its attention adds
        ALiBi biases".

        Args:
            config: the model's config, an object of transformers.
        """
        return None

    @abstractmethod
    def adapt(self, model: nn.Module, attend: Attend) -> None:
        """Change a model in place, so that each layer computes attention by `attend`.

        The model is in evaluation mode, and was loaded with `attn_implementation="eager"`. It keeps its
        weights and their names. Modules may be replaced, or get a method of their own (`module.forward = …`).
        Within an adapted model, transformers' attention interface also works in layers that drop keyword
        arguments, so an adapter may leave such layers unchanged.

        Called again with another model if the model has to be loaded again, because a module pass has failed.
        """


__all__ = ["Attend", "ModelAdapter"]
