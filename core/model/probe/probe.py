"""Determines how a loaded model uses attention, and refuses models that cannot be served correctly.

The model is run once on a few tokens. Its recorded attention calls answer, for any architecture:

- Does each layer call llmfw's attention exactly once? (Falcon does not use the interface; in Qwen3-Next, some
  layers do not compute attention.)
- With which geometry, window and soft cap does each layer call attention? These become the `LayerSpec`s.
- Which window does the mask of each layer have? If the layer passes a window, too, is it the same? (Phi-MoE's
  layers pass none; chunked attention is only in the mask.)

`isolation` checks whether anything but attention mixes the tokens of a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from llmfw.core.interfaces.layers import LayerSpec
from llmfw.core.interfaces.state_layer import StateLayer

from ..attention.hf_attention import marking_masks
from ..attention.mask_rules import MaskMarkers, window_of
from ..config.layer_types import INDEXED
from ..failure.refusal import name_layers, refused, refusing
from ..states.index_mixer import IndexCall
from ..states.module_mixer import ModuleCall
from ..states.row_states import RowStates, starting_parts
from ..trial.packed import NUM_TOKENS, attend_causally, run_packed
from .index_probe import index_sizes

KNOWN_TENSORS = frozenset({"position_ids", "cache_position", "s_aux", "position_embeddings", "indices"})
"""Names of tensors that layers pass to attention, and that a backend ignores or receives in another way."""


def probe(
    model: nn.Module,
    num_layers: int,
    vocab_size: int,
    *,
    may_lack_masks: bool = False,
    states: Sequence[StateLayer] = (),
) -> list[LayerSpec]:
    """Return the model's attention layers by index.

    Args:
        model: model in evaluation mode, loaded with llmfw's attention implementation.
        num_layers: number of layers in the model's config.
        vocab_size: upper bound of the token ids to test with.
        may_lack_masks: whether layers may pass no mask, because a module pass has changed the model. The
            window of such a layer is then the one that the layer itself passes.
        states: layers that keep states. If there are any, layers may lack attention.

    Raises:
        ModelError: the model cannot be served correctly; the message gives the reason.
    """
    ids = [(7 * i + 3) % vocab_size for i in range(NUM_TOKENS)]
    masks = MaskMarkers()
    recorder = _Recorder(masks, may_lack_masks, index_sizes(model))
    with refusing(model, "running it on a few tokens"):
        try:
            with marking_masks(masks):
                run_packed(model, [ids], recorder)
        except TypeError as error:
            if "llmfw_step" in str(error):
                raise refused(model, "its layers do not pass keyword arguments on to attention") from error
            raise
    layers = _check_layers(model, recorder, num_layers, may_lack_attention=bool(states))
    _check_selection(model, layers)
    return layers


class _Recorder:
    """Handles the attention calls of one sequence, with causal attention, and records a `LayerSpec` for each
    layer.
    """

    def __init__(self, masks: MaskMarkers, may_lack_masks: bool, sizes: Mapping[int, int]) -> None:
        self.calls: dict[int, LayerSpec] = {}
        self.problems: list[str] = []
        self._masks = masks
        self._may_lack_masks = may_lack_masks
        self._index_sizes = sizes
        self._given_masks: dict[int, torch.Tensor | None] = {}
        self._hidden: set[int] = set()
        self._states = RowStates(starting_parts([NUM_TOKENS]))

    def mix(self, call: ModuleCall) -> Any:
        if isinstance(call, IndexCall):
            given = (value for name, value in call.arguments.items() if "mask" in name)
            self._given_masks[call.mixer.model_index] = next(given, None)
        answer = self._states.mix(call)
        if isinstance(call, IndexCall) and call.mixer.returns_mask:
            self._hidden.add(call.mixer.model_index)
        return answer

    def attend(
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
        s_aux: torch.Tensor | None = None,
        indices: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        index = getattr(module, "layer_idx", None)
        if not isinstance(index, int):
            self.problems.append(f"{type(module).__name__} does not know its layer's index")
        elif index in self.calls:
            self.problems.append(f"layer {index} computes attention more than once")
        else:
            self.calls[index] = LayerSpec(
                index=index,
                num_heads=query.shape[1],
                num_kv_heads=key.shape[1],
                head_dim=query.shape[3],
                v_head_dim=value.shape[3],
                scale=query.shape[3] ** -0.5 if scaling is None else float(scaling),
                sliding_window=self._window(index, attention_mask, sliding_window),
                softcap=softcap,
                has_sinks=s_aux is not None,
                selects=indices is not None or index in self._hidden,
                index_size=self._index_sizes.get(index, 0),
            )
        if indices is None and index in self._index_sizes and index not in self._hidden:
            self.problems.append(f"layer {index} selects tokens, and attends to all")
        self._note_unusual(module, index, kwargs)
        self._check_positive(index, softcap, "soft cap")
        self._check_positive(index, scaling, "scale")
        if query.shape[1] % key.shape[1]:
            self.problems.append(
                f"layer {index} has {query.shape[1]} heads for queries and {key.shape[1]} for keys; correct its config, the "
                "first number must be a multiple of the second"
            )
            return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[3])
        return attend_causally(query, key, value)

    def _window(self, index: int, mask: torch.Tensor | None, named: int | None) -> int | None:
        """Return the sliding window of a layer, from its mask; None if it has none.

        If the layer passes no mask, and masks may be missing, returns the window that the layer itself
        passes. Records a problem if the mask is unknown, or if the layer passes a different window.

        Args:
            named: window that the layer itself passes; None if it passes none.
        """
        if index in self._hidden:
            mask = self._given_masks[index]  # the layer has combined it with what it selects
        if mask is None and self._may_lack_masks:
            return named
        rule = None if mask is None else self._masks.rule_of(mask)
        window = None
        if rule is not None:
            try:
                window = window_of(rule)
            except ValueError as error:
                self.problems.append(f"the attention mask of layer {index} {error}")
        elif mask is not None:
            self.problems.append(f"layer {index} brings an attention mask of its own")
        if named is not None and named != window:
            has = "has none" if window is None else f"has one of {window}"
            self.problems.append(f"layer {index} names a sliding window of {named}, its mask {has}")
        return window

    def _check_positive(self, index: object, given: float | None, name: str) -> None:
        """Record a problem if a soft cap or scale is not a finite number above 0."""
        if given is not None and not 0 < float(given) < math.inf:
            self.problems.append(
                f"layer {index} gives attention a {name} of {float(given)}; correct its config, the {name} must be above 0"
            )

    def _note_unusual(self, module: nn.Module, index: object, kwargs: dict[str, Any]) -> None:
        if kwargs.get("is_causal", getattr(module, "is_causal", True)) is False:
            self.problems.append(f"layer {index} attends to later tokens")
        for name, given in kwargs.items():
            if isinstance(given, torch.Tensor) and name not in KNOWN_TENSORS:
                self.problems.append(
                    f"layer {index} gives attention a tensor {name!r}, whose meaning is not known"
                )


def _check_selection(model: Any, layers: Sequence[LayerSpec]) -> None:
    """Refuse a model if a layer is to attend to selected tokens by its config, and attends to all."""
    types = getattr(model.config.get_text_config(decoder=True), "layer_types", None) or ()
    selecting = {layer.model_index for layer in layers if layer.selects}
    if missing := [i for i, kind in enumerate(types) if kind in INDEXED and i not in selecting]:
        raise refused(
            model,
            f"{name_layers(missing, len(types))} has {types[missing[0]]}, and does not say which tokens it selects",
        )


def _check_layers(
    model: nn.Module, recorder: _Recorder, num_layers: int, *, may_lack_attention: bool
) -> list[LayerSpec]:
    if recorder.problems:
        raise refused(model, recorder.problems[0])
    if may_lack_attention:
        found = [recorder.calls[i] for i in sorted(recorder.calls)]
        return [replace(spec, index=i, position=spec.index) for i, spec in enumerate(found)]
    missing = [i for i in range(num_layers) if i not in recorder.calls]
    if len(missing) == num_layers:
        raise refused(model, "its layers do not call transformers' attention interface")
    if missing:
        which = name_layers(missing, num_layers)
        raise refused(model, f"no ordinary attention in {which}, which is all llmfw can serve")
    if len(recorder.calls) > num_layers:
        raise refused(model, f"{len(recorder.calls)} layers compute attention, its config names {num_layers}")
    return [recorder.calls[i] for i in range(num_layers)]
