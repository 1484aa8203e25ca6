"""Connects transformers' attention layers to llmfw's attention backends.

A transformers model whose `attn_implementation` is `llmfw` calls `attend` for each attention layer. The
keyword `llmfw_step`, which transformers passes through, carries the object that handles the call: an
`AttentionStep` during serving, a recorder while the model is probed. No attention mask is created, because a
backend knows the lengths.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import nn
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.interfaces.layers import LayerSpec
from llmfw.core.plugin.registry import Entry
from llmfw.core.plugin.returned import WrongReturnError

from ..states.index_mixer import IndexCall
from ..states.index_rows import IndexRows
from ..states.module_mixer import ModuleCall
from ..states.row_states import RowStates
from .mask_rules import MaskFunction, MaskMarkers
from .output_check import check_output
from .split_attention import SplitAttention

IMPLEMENTATION = "llmfw"

Layers = Sequence[LayerSpec] | Mapping[int, LayerSpec]
"""Attention layers, by position among all layers of a model. A mapping if some layers have no attention."""

_markers: ContextVar[MaskMarkers | None] = ContextVar("mask_markers", default=None)
_relayed: ContextVar[RelayedStep | None] = ContextVar("relayed_step", default=None)


class Step(Protocol):
    """Handles the calls of a model's attention layers in one forward pass."""

    def attend(
        self,
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Return the attention output, [1, T, heads, v_head_dim].

        Args:
            module: attention layer that makes the call.
            query: [1, heads, T, head_dim].
            key: [1, kv_heads, T, head_dim].
            value: [1, kv_heads, T, v_head_dim].
            attention_mask: None, or a marker while the model is probed.
            kwargs: further arguments of the layer.
        """


class AttentionStep:
    """Passes each layer's call to the backend, for one step.

    Args:
        backend: attention backend that has planned `batch`.
        layers: attention layers, by position among all layers of the model.
        batch: tensors of the step.
        states: states of the step's sequences; None: the model has none.

    Attributes:
        backend: backend that computes this step, for module passes that call it directly.
        layers, batch: the constructor's arguments.
    """

    __slots__ = ("_backend", "_indexes", "_selected", "_states", "backend", "batch", "layers")

    def __init__(
        self,
        backend: AttentionBackend,
        layers: Layers,
        batch: ForwardBatch,
        states: RowStates | None = None,
    ) -> None:
        self.backend = backend.planned if isinstance(backend, SplitAttention) else backend
        self.layers = layers
        self.batch = batch
        self._backend = backend
        self._states = states
        self._indexes: IndexRows | None = None
        self._selected: dict[int, torch.Tensor] = {}

    def attend(
        self,
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        *,
        s_aux: torch.Tensor | None = None,
        indices: torch.Tensor | None = None,
        **kwargs: object,
    ) -> torch.Tensor:
        """Return the backend's output in the shape that transformers expects.

        Args:
            indices: positions that each token selects: [1, T, K]; None: the layer attends to all tokens.

        Raises:
            WrongReturnError: the output has another shape, dtype or device than the interface says.
        """
        index = module.layer_idx
        assert isinstance(index, int)
        layer = self.layers[index]
        if layer.selects and indices is None:
            indices = self._selected.pop(index)
        batch = self.batch if indices is None else replace(self.batch, selected=indices[0])
        output = self._backend.forward(
            query[0].transpose(0, 1),
            key[0].transpose(0, 1),
            value[0].transpose(0, 1),
            layer,
            batch,
            s_aux,
        )
        _, num_heads, num_tokens, _ = query.shape
        check_output(output, (num_tokens, num_heads, value.shape[-1]), query.dtype)
        return output.unsqueeze(0)

    def mix(self, call: ModuleCall) -> Any:
        """Return the output of a module that keeps states or selects tokens, for the packed row."""
        if isinstance(call, IndexCall):
            if self._indexes is None:
                self._indexes = IndexRows(self.batch, self._backend.storage)
            index = call.mixer.model_index
            selected = self._indexes.select(call, self.layers[index])
            if call.mixer.returns_mask:
                self._selected[index] = selected
            return call.answer(selected)
        assert self._states is not None, "the model keeps states, and the step has none"
        return self._states.mix(call)


class RelayedStep:
    """Passes the calls of an adapted model's layers on to a step. Implements `Step`.

    Args:
        step: handles the calls.

    Attributes:
        called: for each call, the layer's position among all layers of the model.
    """

    __slots__ = ("_step", "called")

    def __init__(self, step: Step) -> None:
        self._step = step
        self.called: list[int] = []

    def attend(
        self,
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Return the step's output."""
        index = module.layer_idx
        assert isinstance(index, int)
        self.called.append(index)
        return self._step.attend(module, query, key, value, attention_mask, **kwargs)


def attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    llmfw_step: Step | None = None,
    **kwargs: object,
) -> tuple[torch.Tensor, None]:
    """Let the step compute the attention of one layer.

    The signature follows transformers' attention interface.

    Raises:
        TypeError: the layers did not pass `llmfw_step` on, and the model does not relay it (see `relay_step`).
    """
    step = _relayed.get() if llmfw_step is None else llmfw_step
    if step is None:
        raise TypeError("attention was called without llmfw_step")
    return step.attend(module, query, key, value, attention_mask, **kwargs), None


def attend_relayed(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> torch.Tensor:
    """Let the step that an adapted model relays compute the attention of one layer. Implements `Attend`.

    Raises:
        TypeError: no step is relayed.
    """
    return attend(module, query, key, value, attention_mask, **kwargs)[0]


def relay_step(model: nn.Module, entry: Entry) -> None:
    """Make a model accept `llmfw_step`, and provide the step to its attention calls during each forward pass.

    The layers of an adapted model need not pass the step on. A pass raises WrongReturnError if the layers
    that call attention differ from the first pass's layers, because keys and values would then be missing.

    Args:
        entry: registry entry of the model adapter.
    """
    forward = model.forward
    expected: list[int] = []

    @functools.wraps(forward)
    def relaying(*args: Any, llmfw_step: Step | None = None, **kwargs: Any) -> Any:
        relayed = None if llmfw_step is None else RelayedStep(llmfw_step)
        token = _relayed.set(relayed)
        try:
            output = forward(*args, **kwargs)
        finally:
            _relayed.reset(token)
        if relayed is not None:
            called = sorted(relayed.called)
            expected[:] = expected or called
            if called != expected:
                raise WrongReturnError(_other_calls(called, expected), entry)
        return output

    model.forward = relaying


def _other_calls(called: Sequence[int], expected: Sequence[int]) -> str:
    return (
        f"its layers called attend() {len(called)} times in a step, and {len(expected)} times in the first one; each layer "
        "must call it exactly once in each step"
    )


def make_no_mask(
    *args: object, mask_function: MaskFunction | None = None, **kwargs: Any
) -> torch.Tensor | None:
    """Return None in place of an attention mask. While a model is probed, return a marker (see
    `mask_rules`).

    If the model needs a mask in any case, because it takes slices of it, returns one that hides nothing.
    """
    markers = _markers.get()
    if markers is None or mask_function is None:
        if kwargs.get("allow_is_causal_skip", True):
            return None
        return torch.ones((1, 1, 1, 1), dtype=torch.bool, device=kwargs.get("device", "cpu"))
    return markers.mark(
        mask_function,
        kwargs["q_length"],
        kwargs["kv_length"],
        kwargs.get("dtype") or torch.float32,
        kwargs.get("device", "cpu"),
    )


@contextmanager
def marking_masks(markers: MaskMarkers) -> Iterator[None]:
    """Within the block, make `make_no_mask` return markers.

    Args:
        markers: creates the markers, and later finds the rule of a mask from its marker.
    """
    token = _markers.set(markers)
    try:
        yield
    finally:
        _markers.reset(token)


def register_with_transformers() -> None:
    """Register `attn_implementation="llmfw"` with transformers. May be called more than once."""
    AttentionInterface.register(IMPLEMENTATION, attend)
    AttentionMaskInterface.register(IMPLEMENTATION, make_no_mask)
