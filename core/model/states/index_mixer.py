"""Calls the modules that select tokens for attention (indexers), one part of the packed row at a time.

Models with sparse attention, such as DeepSeek V3.2, have a module in some layers that scores all earlier tokens
of a sequence for each new token, and selects the best. It takes sequences of equal length and transformers'
cache, in which it keeps a key of its own for each token. `IndexMixer` takes the place of such a module's
`forward`; the running step keeps the keys (see `index_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from llmfw.core.interfaces.state_layer import StateKey
from llmfw.core.interfaces.state_storage import States

from .module_mixer import ModuleCall, ModuleMixer, Part, RunningStep

KeepKeys = Callable[[torch.Tensor, int], torch.Tensor]
"""Stores columns of the index keys of a part's new tokens, [N, T, num], from a column on; returns those of all its
sequences' tokens, [N, L, num]."""

TABLES = "position_embeddings"
"""Name of the parameter by which modules take rotary tables, a tuple of [N, T, width]."""

NOTHING = -1
"""Number that stands for no token in a selection."""


class IndexMixer(ModuleMixer):
    """Replacement of the `forward` of a module that selects tokens.

    Args:
        module: the module.
        cache_name: name of the parameter by which it takes the cache.
        running: the step that the model runs.
        model_index: position of the module's layer among all layers of the model.

    Attributes:
        model_index: the constructor's argument.
        size: number of elements of a token's index key, with its tables; 0 until the model has been probed.
        takes_all_tables: whether the module takes the rotary tables of all tokens so far, in place of those of the new
            tokens. They are then kept as a part of the index keys (Qwen4-Exp, which selects blocks of tokens).
        returns_mask: whether the module returns a mask in place of positions, and so its layer's attention gets no
            positions.
    """

    def __init__(self, module: nn.Module, cache_name: str, running: RunningStep, model_index: int) -> None:
        super().__init__(module, cache_name, running)
        self.model_index = model_index
        self.size = 0
        self.takes_all_tables = False
        self.returns_mask = False

    def make_call(self, arguments: Mapping[str, Any]) -> IndexCall:
        """Return a call of the module.

        Args:
            arguments: arguments of the call by name.
        """
        return IndexCall(self, arguments)


class IndexCall(ModuleCall):
    """One call of a module that selects tokens, for the whole packed row.

    Args:
        mixer: replacement of the module's `forward`.
        arguments: arguments of the call by name. Tensors [1, total, ...] are rows of tokens.
    """

    def __init__(self, mixer: IndexMixer, arguments: Mapping[str, Any]) -> None:
        super().__init__(mixer, arguments)
        self.mixer = mixer

    @property
    def device(self) -> torch.device:
        """Device of the row."""
        found: torch.device = next(iter(self.arguments.values())).device
        return found

    def select(self, part: Part, seen: torch.Tensor, keep: KeepKeys) -> torch.Tensor:
        """Return the positions that each token of a part selects: [N, T, K], in any order.

        Args:
            seen: whether each token may select each position of its sequence: [N, T, L].
            keep: stores the part's index keys.
        """
        replaced: dict[str, Any] = {
            name: seen if value is None or value.dim() == 3 else seen[:, None]
            for name, value in self.arguments.items()
            if "mask" in name
        }
        first = 0
        if self.mixer.takes_all_tables:
            tables = self._cut(TABLES, self.arguments[TABLES], part)
            widths = [table.shape[-1] for table in tables]
            first = sum(widths)
            replaced[TABLES] = keep(torch.cat(tables, dim=-1), 0).split(widths, dim=-1)
        replaced[self.mixer.cache_name] = _KeyCache(keep, first)
        selected: torch.Tensor = self.call_module(part, **replaced)
        if selected.dtype == torch.bool and selected.dim() == 4:
            self.mixer.returns_mask = True
            return _positions(selected[:, 0])
        return selected

    def answer(self, output: torch.Tensor) -> torch.Tensor:
        """Return what the module returns: the selection, [1, total, K], or a mask that hides nothing."""
        return output.new_ones((1, 1, 1, 1), dtype=torch.bool) if self.mixer.returns_mask else output

    def run(self, part: Part, states: States | None) -> tuple[Any, dict[StateKey, torch.Tensor]]:
        """Return what the tokens of sequences that start select; no state is kept."""
        assert states is None
        seen = seen_from(0, part.num_tokens, part.num_sequences, self.device)
        return self.select(part, seen, lambda new, _: new), {}

    def join(self, parts: Sequence[tuple[Part, torch.Tensor]]) -> torch.Tensor:
        """Return the selection for the whole row, [1, total, K], filled up with `NOTHING`."""
        most = max(selected.shape[-1] for _, selected in parts)
        row = parts[0][1].new_full((1, self.total, most), NOTHING)
        for part, selected in parts:
            flat = selected.reshape(-1, selected.shape[-1])
            row[0, part.tokens] = functional.pad(flat, (0, most - flat.shape[-1]), value=NOTHING)
        return row


def seen_from(start: int, num_tokens: int, num_sequences: int, device: torch.device) -> torch.Tensor:
    """Return which positions tokens may select that continue sequences at `start`: [N, T, start + T]."""
    places = torch.arange(start + num_tokens, device=device)
    return (places <= places[start:, None]).expand(num_sequences, -1, -1)


def _positions(mask: torch.Tensor) -> torch.Tensor:
    """Return the positions where a mask [N, T, L] is True, filled up with `NOTHING`: [N, T, K]."""
    most = int(mask.sum(dim=-1).max())
    found = mask.to(torch.uint8).topk(most, dim=-1)
    return found.indices.masked_fill(found.values == 0, NOTHING)


class _KeyCache:
    """The one method of transformers' cache that modules that select tokens call.

    Args:
        keep: stores index keys.
        first: column of the index keys from which the module's own keys are stored.
    """

    def __init__(self, keep: KeepKeys, first: int) -> None:
        self._keep = keep
        self._first = first

    def update_indexer(self, indexer_key_states: torch.Tensor, layer_idx: int) -> torch.Tensor:
        """Store the index keys of new tokens, and return those of all tokens: [N, T, size] → [N, L, size]."""
        return self._keep(indexer_key_states, self._first)
