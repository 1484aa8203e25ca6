"""Finds the modules of a model that select tokens for attention, and checks that llmfw can split them.

transformers' modules keep a key for each token in a cache, by `update_indexer`. `find_indexers` replaces their
`forward` with an `IndexMixer`, runs the model on a few tokens to learn the size of these keys, and refuses a module
that needs more than the keys of earlier tokens.
"""

from __future__ import annotations

import inspect
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from ..failure.refusal import refused, refusing
from ..states.index_mixer import TABLES, IndexCall, IndexMixer, seen_from
from ..states.module_code import names_in
from ..states.module_mixer import CACHE_NAMES, ModuleCall, Part, RunningStep
from ..states.row_states import starting_parts
from ..trial.packed import Packed, run_packed
from .isolation import ROUNDING

INDEX_METHOD = "update_indexer"
LENGTHS = (37, 21)
"""Lengths of the two sequences in tokens."""
CUTS = (0, 20, 35, 36, 37)
"""Bounds of the pieces in which the first sequence is computed."""
MAX_OTHER = 0.1
"""Maximum share of tokens that may select others in pieces. Scores that are almost equal change places by rounding."""


def find_indexers(model: nn.Module, vocab_size: int) -> dict[int, int]:
    """Make a model's layers keep their index keys in llmfw's storage. Most models have none.

    Returns:
        The size of the index keys, by the layer's position among all layers of the model.

    Raises:
        ModelError: a module selects tokens in a way that cannot be served; the message gives the reason.
    """
    running = RunningStep()
    found = [module for module in model.modules() if INDEX_METHOD in names_in(module)]
    if not found:
        return {}
    for module in found:
        _install(model, module, running)
    running.follow(model)
    recorder = _Recorder()
    ids = [[(7 * i + 11 * n + 3) % vocab_size for i in range(size)] for n, size in enumerate(LENGTHS)]
    with refusing(model, "running it to find the keys of its selection"):
        run_packed(model, ids, recorder)
        for module in found:
            _check_pieces(model, module, recorder.calls.get(id(module.forward)))
    return index_sizes(model)


def index_sizes(model: nn.Module) -> dict[int, int]:
    """Return what `find_indexers` found in a model."""
    replaced = (vars(module).get("forward") for module in model.modules())
    return {each.model_index: each.size for each in replaced if isinstance(each, IndexMixer)}


def _install(model: nn.Module, module: nn.Module, running: RunningStep) -> None:
    parameters = inspect.signature(module.forward).parameters
    name = next((name for name in CACHE_NAMES if name in parameters), None)
    number = getattr(module, "layer_idx", None)
    if name is None or not isinstance(number, int) or number in index_sizes(model):
        raise refused(
            model,
            f"{type(module).__name__} selects tokens, but takes no cache, or its layer is unknown or has two",
        )
    module.forward = IndexMixer(module, name, running, number)


class _Recorder(Packed):
    """Runs packed sequences from position 0, and records the call of each module that selects."""

    def __init__(self) -> None:
        super().__init__(LENGTHS)
        self.calls: dict[int, IndexCall] = {}

    def mix(self, call: ModuleCall) -> Any:
        if isinstance(call, IndexCall):
            self.calls[id(call.mixer)] = call
        return super().mix(call)


def _check_pieces(model: nn.Module, module: nn.Module, call: IndexCall | None) -> None:
    """Note the size of a module's keys; refuse it if pieces of a sequence give other keys or selections.

    Args:
        call: call of the module for a packed row of two sequences that start, of `LENGTHS` tokens.

    Raises:
        ModelError: the results differ, or are no positions, or the module was not called.
    """
    name = type(module).__name__
    if call is None:
        raise refused(model, f"{name} selects tokens, and did not when the model ran on a few tokens")
    call.mixer.takes_all_tables = TABLES in call.arguments
    try:
        problem = _problem(call)
    except Exception:  # noqa: BLE001 - most modules take the tables of the new tokens alone
        problem = "fails"
    if problem and call.mixer.takes_all_tables:
        call.mixer.takes_all_tables = False
        problem = _problem(call)
    if problem:
        raise refused(model, f"{name} {problem}")


def _problem(call: IndexCall) -> str:
    """Note the size of a module's keys; return what is wrong with its selection, "" if nothing is."""
    kept: dict[int, list[torch.Tensor]] = {}

    def keep(new: torch.Tensor, first: int) -> torch.Tensor:
        columns = kept.setdefault(first, [])
        columns.append(new)
        return torch.cat(columns, dim=1)

    with torch.inference_mode():
        whole = _select(call, starting_parts(LENGTHS)[0], 0, keep)
        keys = _columns(kept)
        kept.clear()
        pieces = [
            _select(call, Part(slice(a, b), 1, b - a, continues=a > 0), a, keep) for a, b in pairwise(CUTS)
        ]
    if any(each.dtype not in (torch.int32, torch.int64) or each.dim() != 3 for each in (whole, *pieces)):
        return "selects tokens by something other than their positions"
    call.mixer.size = keys.shape[-1]
    again = _columns(kept)
    distance = (again - keys).float().abs().max() / keys.float().abs().max()
    before = _chosen_sets(whole, 0)
    after = [each for start, piece in zip(CUTS, pieces, strict=False) for each in _chosen_sets(piece, start)]
    num_other = sum(a != b for a, b in zip(before, after, strict=True))
    is_other = num_other > MAX_OTHER * len(before)
    if again.shape != keys.shape or not distance <= ROUNDING.get(keys.dtype, 0) or is_other:
        return "selects other tokens if a sequence is computed in pieces"
    return ""


def _columns(kept: dict[int, list[torch.Tensor]]) -> torch.Tensor:
    """Return all columns of the index keys that were kept for a sequence: [1, L, size]."""
    return torch.cat([torch.cat(kept[first], dim=1) for first in sorted(kept)], dim=-1)


def _select(call: IndexCall, part: Part, start: int, keep: Any) -> torch.Tensor:
    return call.select(part, seen_from(start, part.num_tokens, 1, call.device), keep)


def _chosen_sets(selected: torch.Tensor, start: int) -> list[set[int]]:
    """Return the positions up to its own that each token of a sequence selects.

    Args:
        selected: [1, T, K].
        start: position of the first token.
    """
    rows: list[list[int]] = selected[0].tolist()
    return [{place for place in row if 0 <= place <= start + i} for i, row in enumerate(rows)]
