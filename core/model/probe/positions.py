"""Refuses models that ignore the positions that they receive, or do not count positions from 0.

llmfw packs sequences into one row and passes their positions to the model. BART ignores them, and numbers the
tokens of a row itself. `own_positions` makes models count from an offset of their own, such as RoBERTa's. The
check compares the queries of the first attention layer, and stops the forward pass there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import nn

from ..failure.refusal import not_finite, refused, refusing
from ..states.module_mixer import ModuleCall
from ..states.row_states import RowStates, starting_parts
from ..trial.module_trial import agree

BEFORE, IDS = slice(4), slice(4, 7)
"""Tokens of two sequences among those of `plain_ids`, which `check_positions` runs in one row."""


class _FirstCallError(Exception):
    """Stops a forward pass at the first attention layer, and carries the layer's queries."""

    def __init__(self, given: torch.Tensor) -> None:
        super().__init__("the first attention layer is reached")
        self.given = given


class _FirstCall:
    """A step that stops the forward pass at the first attention layer.

    Args:
        lengths: number of tokens of each sequence in the row.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self._states = RowStates(starting_parts(lengths))

    def mix(self, call: ModuleCall) -> Any:
        return self._states.mix(call)

    def attend(self, module: nn.Module, query: torch.Tensor, *args: object, **kwargs: object) -> NoReturn:
        raise _FirstCallError(query)


def check_positions(model: nn.Module) -> None:
    """Refuse a model that ignores the positions that it receives, or does not count them from 0.

    The queries of the first attention layer must be the same in three runs: without positions, with explicit
    positions, and with another sequence before them in the row.

    Raises:
        ModelError: the queries differ, or are not finite.
    """
    before, ids = (plain_ids(model)[part] for part in (BEFORE, IDS))
    with refusing(model, "running it on a few tokens"):
        own = first_queries(model, ids)
        given = first_queries(model, ids, range(len(ids)))
        places = [*range(len(before)), *range(len(ids))]
        both = first_queries(model, before + ids, places, [len(before), len(ids)])
    if own is None or given is None or both is None:
        return
    if not bool(own.isfinite().all()):
        raise refused(model, not_finite(model, "the queries of its first layer"))
    if not agree(own, given):
        raise refused(model, "its first token is not at position 0")
    if not agree(own, both[:, :, len(before) :]):
        raise refused(model, "it numbers the tokens of a row itself, not by the positions that it is given")


def plain_ids(model: nn.Module) -> list[int]:
    """Return a few small token ids, none of which is for padding in any of the model's tables."""
    paddings = {module.padding_idx for module in model.modules() if isinstance(module, nn.Embedding)}
    return [token for token in range(2, 20) if token not in paddings][:7]


def first_queries(
    model: nn.Module,
    ids: Sequence[int],
    positions: Sequence[int] | None = None,
    lengths: Sequence[int] | None = None,
) -> torch.Tensor | None:
    """Return the queries of the first attention layer, [1, heads, T, head_dim].

    Returns None if no layer calls llmfw's attention.
    """
    device = next(model.parameters()).device
    given = {} if positions is None else {"position_ids": torch.tensor([list(positions)], device=device)}
    try:
        with torch.inference_mode():
            model(
                input_ids=torch.tensor([list(ids)], device=device),
                use_cache=False,
                llmfw_step=_FirstCall(lengths or [len(ids)]),
                **given,
            )
    except _FirstCallError as call:
        return call.given
    return None
