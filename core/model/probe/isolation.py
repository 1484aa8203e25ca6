"""Refuses models in which a module that llmfw does not split by sequence mixes the tokens of a row.

llmfw packs the tokens of several sequences into one row. Between steps, it stores the keys and values of a
sequence, and the states of the modules that `state_probe` finds. Any other convolution or recurrent state
would mix tokens of different sequences, and would be lost between steps. Two checks find such models:

- `check_cache` asks transformers which kinds of state the model's cache has. It needs no forward pass.
- `check_isolation` runs the model on three sequences in one row, with NaN as the embeddings of the first and
  the last one. NaN survives every sum and product in any dtype. So a NaN in the logits of the middle sequence
  proves that tokens mix; logits without NaN prove that tokens do not mix. If the NaNs do not reach the logits
  of the outer sequences, the check instead changes the tokens of these sequences, and compares the logits of
  the middle one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import cache_utils
from transformers.cache_utils import DynamicCache

from llmfw.core.interfaces.state_layer import StateLayer

from ..failure.load_failure import first_line
from ..failure.refusal import not_finite, refused
from ..trial.packed import Packed, run_packed

logger = logging.getLogger(__name__)

LENGTHS = (33, 24, 7)
"""Lengths of the three sequences in tokens. None is a multiple of a usual kernel or chunk size; 33 exceeds a
chunk of 32."""
ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""Maximum change of logits by rounding, relative to the largest logit. Other tokens change the group sizes of
experts, and so the rounding."""
PLAIN_LAYERS = tuple(
    getattr(cache_utils, name)
    for name in ("DynamicLayer", "DynamicSlidingWindowLayer", "DummyLayer")
    if hasattr(cache_utils, name)
)
"""Cache layers that hold only keys and values. A `DummyLayer` belongs to a layer that uses another layer's
keys and values, as in Gemma 3n and 4; transformers 5.17 does not have it yet."""

INDEXED_LAYERS = tuple(
    getattr(cache_utils, name) for name in ("DynamicIndexedLayer",) if hasattr(cache_utils, name)
)
"""Cache layers that also hold index keys, by which a layer selects the tokens that it attends to."""

STATELESS = frozenset({"moe", "mlp"})
"""Types of layers that store nothing. For these layers, transformers 5.17 has a cache layer for states, which
stays empty; later versions have a `DummyLayer`."""


def check_cache(
    model: nn.Module, states: Sequence[StateLayer] = (), index_sizes: Mapping[int, int] | None = None
) -> None:
    """Raise ModelError if a model's layers store more between steps than keys, values, the states that
    `state_probe` found, and the index keys that `index_probe` found.
    """
    # Layers without index keys of their own may select what an earlier layer has selected.
    plain = (*PLAIN_LAYERS, *INDEXED_LAYERS) if index_sizes else PLAIN_LAYERS
    skipped = {layer.model_index for layer in states} | _stateless_layers(model)
    kinds: dict[str, list[int]] = {}
    for index, layer in enumerate(_cache_layers(model)):
        if index in skipped:
            continue
        if hasattr(layer, "conv_states") or hasattr(layer, "recurrent_states"):
            kinds.setdefault("a recurrent state or that of a convolution", []).append(index)
        elif type(layer) not in plain and hasattr(layer, "keys"):
            kinds.setdefault(f"a {type(layer).__name__}", []).append(index)
    for kind, found in kinds.items():
        listed = ", ".join(map(str, found[:8])) + (", …" if len(found) > 8 else "")
        which = f"layers {listed} keep" if len(found) > 1 else f"layer {listed} keeps"
        raise refused(model, f"{which} {kind} in a way that llmfw does not know")


def check_isolation(model: nn.Module, vocab_size: int) -> None:
    """Refuse a model in which a sequence's logits depend on other sequences in the row.

    Raises:
        ModelError: the logits depend on other sequences, are not finite, or are all equal.
    """
    sequences = _sequences(vocab_size)
    poisoned = _poisoned_logits(model, sequences)
    if poisoned is not None and bool(poisoned.isfinite().all()):
        _refuse_equal(model, poisoned)
        return
    before = _middle(run_packed(model, sequences, Packed(LENGTHS)))
    if not bool(before.isfinite().all()):
        raise refused(model, not_finite(model, "its logits"))
    if poisoned is not None or _depends_on_others(model, sequences, vocab_size, before):
        raise refused(
            model, "something other than attention mixes the tokens of a row (a convolution or a state)"
        )


def _refuse_equal(model: nn.Module, logits: torch.Tensor) -> None:
    """Raise ModelError if, at each position, the logits of all tokens are equal.

    The output of such a model would be random.
    """
    smallest, largest = torch.aminmax(logits, dim=-1)
    if logits.shape[-1] > 1 and bool((smallest == largest).all()):
        raise refused(
            model,
            "its logits are all equal; its embeddings, its last norm or its head is zero throughout",
        )


def _cache_layers(model: Any) -> Sequence[object]:
    """Return the layers of the cache that transformers would use; empty if it cannot create a cache from the
    config."""
    try:
        return list(DynamicCache(config=model.config).layers)
    except Exception as error:  # noqa: BLE001 - families with their own cache classes do not support this
        logger.debug("No cache from the config of %s: %s", type(model).__name__, first_line(error))
        return []


def _stateless_layers(model: Any) -> set[int]:
    """Return the indices of the layers that store nothing by their type."""
    types = getattr(model.config.get_text_config(decoder=True), "layer_types", None) or ()
    return {index for index, kind in enumerate(types) if kind in STATELESS}


def _sequences(vocab_size: int) -> list[list[int]]:
    return [[(7 * i + 11 * n + 3) % vocab_size for i in range(length)] for n, length in enumerate(LENGTHS)]


def _depends_on_others(
    model: nn.Module, sequences: Sequence[Sequence[int]], vocab_size: int, before: torch.Tensor
) -> bool:
    """Return whether the logits of the middle sequence depend on the tokens of the other two sequences.

    Ignores rounding errors.
    """
    first, _, last = ([(token + vocab_size // 2) % vocab_size for token in ids] for ids in sequences)
    after = _middle(run_packed(model, [first, sequences[1], last], Packed(LENGTHS)))
    tolerance = ROUNDING[next(model.parameters()).dtype]
    return bool((after - before).abs().max() > tolerance * before.abs().max())


def _middle(logits: torch.Tensor) -> torch.Tensor:
    return logits[LENGTHS[0] : -LENGTHS[2]]


def _poisoned_logits(model: Any, sequences: Sequence[Sequence[int]]) -> torch.Tensor | None:
    """Run the model with NaN as embeddings of the first and last sequence; return the middle one's logits.

    Returns None if the model fails, or if the outer logits are not all NaN, because the result then proves
    nothing.
    """
    try:
        with _poison(model.get_input_embeddings()):
            logits = run_packed(model, sequences, Packed(LENGTHS))
    except Exception as error:  # noqa: BLE001 - a model may refuse to compute with NaN
        logger.debug("%s does not run with NaN: %s", type(model).__name__, first_line(error))
        return None
    outer = torch.cat([logits[: LENGTHS[0]], logits[-LENGTHS[2] :]])
    return _middle(logits) if bool(outer.isnan().all()) else None


@contextmanager
def _poison(embedding: nn.Module) -> Iterator[None]:
    """Within the block, replace the embeddings of all tokens outside the middle sequence with NaN."""

    def poison(module: nn.Module, args: object, output: torch.Tensor) -> torch.Tensor:
        poisoned = output.clone()
        poisoned[..., : LENGTHS[0], :] = torch.nan
        poisoned[..., -LENGTHS[2] :, :] = torch.nan
        return poisoned

    handle = embedding.register_forward_hook(poison)
    try:
        yield
    finally:
        handle.remove()
