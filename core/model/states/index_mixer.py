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

KeepKeys = Callable[[torch.Tensor], torch.Tensor]
"""Stores the index keys of a part's new tokens, [N, T, size]; returns those of all its sequences' tokens, [N, L, size]."""

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
        size: number of elements of a token's index key; 0 until the model has been probed.
    """

    def __init__(self, module: nn.Module, cache_name: str, running: RunningStep, model_index: int) -> None:
        super().__init__(module, cache_name, running)
        self.model_index = model_index
        self.size = 0

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
        masks = {name: seen for name in self.arguments if "mask" in name}
        selected: torch.Tensor = self.call_module(part, **masks, **{self.mixer.cache_name: _KeyCache(keep)})
        return selected

    def run(self, part: Part, states: States | None) -> tuple[Any, dict[StateKey, torch.Tensor]]:
        """Return what the tokens of sequences that start select; no state is kept."""
        assert states is None
        seen = seen_from(0, part.num_tokens, part.num_sequences, self.device)
        return self.select(part, seen, lambda new: new), {}

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


class _KeyCache:
    """The one method of transformers' cache that modules that select tokens call."""

    def __init__(self, keep: KeepKeys) -> None:
        self._keep = keep

    def update_indexer(self, indexer_key_states: torch.Tensor, layer_idx: int) -> torch.Tensor:
        """Store the index keys of new tokens, and return those of all tokens: [N, T, size] → [N, L, size]."""
        return self._keep(indexer_key_states)
