"""Finds out how a loaded model uses attention, and refuses what could not be served correctly.

The model runs on a few tokens, once observed and twice packed with others. That answers, for any architecture:

- Does each layer call us, once? (Falcon does not use the interface; in Qwen3-Next not every layer is attention.)
- With which geometry, window and soft cap? That becomes the `LayerSpec`s.
- Does the rule of the masks that the model asks for agree with the windows that its layers name? (Chunked attention
  is in the mask only.)
- Does anything but attention mix the tokens of a row (a convolution, a state-space layer)? Then what one sequence
  holds would change another's result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ..errors import ModelError
from ..layers import LayerSpec
from .hf_attention import MaskFunction, Step, observing_masks

NUM_TOKENS = 4
FAR = 1 << 22
LEAK_TOLERANCE = 0.05

KNOWN_TENSORS = frozenset({"position_ids", "cache_position", "s_aux", "position_embeddings"})
"""Tensors that layers hand to attention and that a backend needs not look at, or is given."""


def probe(model: nn.Module, num_layers: int, vocab_size: int) -> list[LayerSpec]:
    """Return the model's attention layers by index.

    Args:
        model: loaded with our attention implementation, in evaluation mode.
        num_layers: how many layers its config says it has.
        vocab_size: token ids below this one are tried.

    Raises:
        ModelError: the model cannot be served correctly, with the reason.
    """
    recorder = _Recorder()
    masks: list[MaskFunction] = []
    ids = [(7 * i + 3) % vocab_size for i in range(NUM_TOKENS)]
    try:
        with observing_masks(masks.append):
            run_packed(model, [ids], recorder)
    except TypeError as error:
        if "llmfw_step" in str(error):
            raise _refused(model, "its layers do not pass keyword arguments on to attention") from error
        raise
    layers = _check_layers(model, recorder, num_layers)
    _check_masks(model, masks, layers)
    _check_isolation(model, ids, vocab_size)
    return layers


def packed_logits(model: nn.Module, vocab_size: int) -> torch.Tensor:
    """Return the logits, [T, vocab], of a few sequences of different lengths in one row."""
    sequences = [
        [(7 * i + 3 + 11 * n) % vocab_size for i in range(n)] for n in (1, NUM_TOKENS, 2 * NUM_TOKENS)
    ]
    return run_in_one_row(model, sequences)


def run_in_one_row(model: nn.Module, sequences: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return the logits, [T, vocab], of sequences in one row, each of which attends to itself, without windows."""
    return run_packed(model, sequences, _Packed([len(ids) for ids in sequences]))


def run_packed(model: nn.Module, sequences: Sequence[Sequence[int]], step: Step) -> torch.Tensor:
    """Run whole sequences through the model as one packed row; return the logits [T, vocab]."""
    device = next(model.parameters()).device
    ids = torch.tensor([[token for seq in sequences for token in seq]], device=device)
    positions = torch.tensor([[i for seq in sequences for i in range(len(seq))]], device=device)
    with torch.inference_mode():
        output: torch.Tensor = model(
            input_ids=ids, position_ids=positions, use_cache=False, llmfw_step=step
        ).logits
    return output[0].float()


def _refused(model: nn.Module, reason: str) -> ModelError:
    return ModelError(f"{type(model).__name__} cannot be served: {reason}")


class _Recorder:
    """A step that attends to everything before, for one sequence, and notes how each layer called."""

    def __init__(self) -> None:
        self.calls: dict[int, LayerSpec] = {}
        self.problems: list[str] = []

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
                sliding_window=sliding_window,
                softcap=softcap,
                has_sinks=s_aux is not None,
            )
        self._note_unusual(module, index, attention_mask, kwargs)
        return _attend_causally(query, key, value)

    def _note_unusual(
        self, module: nn.Module, index: object, attention_mask: torch.Tensor | None, kwargs: dict[str, Any]
    ) -> None:
        if attention_mask is not None:
            self.problems.append(f"layer {index} brings an attention mask of its own")
        if kwargs.get("is_causal", getattr(module, "is_causal", True)) is False:
            self.problems.append(f"layer {index} attends to later tokens")
        for name, given in kwargs.items():
            if isinstance(given, torch.Tensor) and name not in KNOWN_TENSORS:
                self.problems.append(
                    f"layer {index} gives attention a tensor {name!r}, whose meaning is not known"
                )


class _Packed:
    """A step that attends within each of several packed sequences of known lengths."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = list(lengths)

    def attend(
        self,
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **kwargs: object,
    ) -> torch.Tensor:
        parts = zip(*(tensor.split(self._lengths, dim=2) for tensor in (query, key, value)), strict=True)
        return torch.cat([_attend_causally(q, k, v) for q, k, v in parts], dim=1)


def _attend_causally(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Plain attention: what comes out is not looked at closely, so scale, window and soft cap are left out."""
    shared = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(shared, dim=1), value.repeat_interleave(shared, dim=1)
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2)


def _check_layers(model: nn.Module, recorder: _Recorder, num_layers: int) -> list[LayerSpec]:
    if recorder.problems:
        raise _refused(model, recorder.problems[0])
    missing = [i for i in range(num_layers) if i not in recorder.calls]
    if len(missing) == num_layers:
        raise _refused(model, "its layers do not call transformers' attention interface")
    if missing:
        listed = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
        raise _refused(
            model, f"layers {listed} of {num_layers} are not ordinary attention, which is all llmfw can serve"
        )
    if len(recorder.calls) > num_layers:
        raise _refused(
            model, f"{len(recorder.calls)} layers compute attention, its config names {num_layers}"
        )
    return [recorder.calls[i] for i in range(num_layers)]


def _check_masks(model: nn.Module, masks: Sequence[MaskFunction], layers: Sequence[LayerSpec]) -> None:
    """Compare the windows in the masks with those that layers name: a backend sees only the latter."""
    if not masks:
        return
    named = {spec.sliding_window for spec in layers}
    masked = {_window_of(model, mask, named) for mask in masks}
    if not named <= masked:
        only = sorted(w for w in named - masked if w is not None)
        raise _refused(
            model, f"its layers name a sliding window {only or 'of none'} that its masks do not have"
        )


def _window_of(model: nn.Module, mask: MaskFunction, candidates: set[int | None]) -> int | None:
    """Return the sliding window that a mask's rule amounts to, None for plain causal attention."""
    for window in sorted(candidates | {None}, key=lambda w: w or 0):
        edge = FAR if window is None else window
        distances = sorted({-1, 0, 1, edge // 2, edge - 1, edge, edge + 1, 2 * edge, FAR})
        distances = [d for d in distances if d <= FAR]
        if all(_is_seen(mask, d) == (d >= 0 and (window is None or d < window)) for d in distances):
            return window
    raise _refused(model, "its attention mask is neither causal nor a sliding window that its layers name")


def _is_seen(mask: MaskFunction, distance: int) -> bool:
    zero = torch.zeros((), dtype=torch.long)
    return bool(mask(zero, zero, zero + FAR, zero + FAR - distance))


def _check_isolation(model: nn.Module, ids: Sequence[int], vocab_size: int) -> None:
    """Compare a sequence's logits next to two different neighbours."""
    step = _Packed([len(ids), len(ids)])
    other = [(token + vocab_size // 2) % vocab_size for token in ids]
    beside_itself = run_packed(model, [ids, ids], step)[len(ids) :]
    beside_other = run_packed(model, [other, ids], step)[len(ids) :]
    difference = (beside_itself - beside_other).abs().max()
    if difference > LEAK_TOLERANCE * beside_itself.abs().max():
        raise _refused(
            model, "something other than attention mixes the tokens of a row (a convolution or a state)"
        )
