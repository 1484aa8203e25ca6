"""The room for adapters in a loaded model. Adapters are written into slots, and steps read the slots."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from llmfw.core.base.errors import ModelError
from llmfw.core.base.step import Ints

from ..changes.fuse import MergedPart
from .adapted_linear import AdaptedLinear, CurrentRows
from .adapter_files import AdapterWeights, BaseLinears, read_adapter
from .linears import NUM_TRIED, called, heads_of, linears_of, refused_linears
from .low_rank import LowRank
from .row_groups import RowGroups, Sender

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """The place where an adaptable layer is computed.

    Attributes:
        linear: the product that computes the layer.
        part: the layer's index among the projections that are merged in `linear`.
    """

    linear: AdaptedLinear
    part: int


class AdapterSlots:
    """The slots of a model for adapters. Their memory is taken once, for all of the model's linear layers.

    Args:
        places: name of each adaptable layer → the place where the layer is computed.
        base: names and sizes of the model's linear layers.
        num_slots: number of adapters that fit into memory at once.
        max_rank: highest rank of an adapter.
        dtype: dtype of the adapters' weights.
        current: the running step's rows, which the adapted layers read.
    """

    def __init__(
        self,
        places: Mapping[str, Place],
        base: BaseLinears,
        num_slots: int,
        max_rank: int,
        dtype: torch.dtype,
        current: CurrentRows,
    ) -> None:
        self.base = base
        self.num_slots = num_slots
        self.max_rank = max_rank
        self._places = places
        self._linears = list({id(each.linear): each.linear for each in places.values()}.values())
        self._dtype = dtype
        self._current = current

    @property
    def num_bytes(self) -> int:
        """Size of all slots in bytes."""
        return sum(linear.num_bytes for linear in self._linears)

    @property
    def is_on_cpu(self) -> bool:
        """Whether the slots are in the memory of the CPU."""
        return all(linear.down.device.type == "cpu" for linear in self._linears)

    def read(self, path: str) -> AdapterWeights:
        """Read an adapter's files, and check them against the model. Changes nothing; any thread may call it.

        Raises:
            ModelError: the adapter cannot be read or served.
        """
        return read_adapter(path, self.base, self._dtype, self.max_rank)

    @torch.inference_mode()
    def write(self, slot: int, weights: AdapterWeights) -> None:
        """Write an adapter into a slot, from the next step on. No running sequence may use the slot."""
        parts: dict[int, dict[int, LowRank]] = defaultdict(dict)
        for name, layer in weights.layers.items():
            place = self._places[name]
            parts[id(place.linear)][place.part] = layer
        for linear in self._linears:
            linear.write(slot, parts[id(linear)])

    def begin(self, adapters: Ints, counts: Ints, sender: Sender) -> None:
        """Set which rows of the next step belong to which slot.

        Args:
            adapters: number of each sequence's slot, as in `StepInput`: [B].
            counts: number of tokens of each sequence: [B].
            sender: sends indices to the device.
        """
        if not len(adapters):
            self._current.groups = None
        else:
            self._current.groups = RowGroups.of(adapters - 1, counts, sender)

    def check_calls(self, model: nn.Module, vocab_size: int) -> None:
        """Raise ModelError unless each adapted layer of a changed model still computes all rows of a step."""
        calls = called(model, list(self._linears), vocab_size)
        wrong = [each for each in calls.values() if each.count != 1 or each.num_rows != NUM_TRIED]
        if wrong:
            raise ModelError(
                f"{len(wrong)} of {len(calls)} layers with room for adapters are no longer computed after the module "
                "passes; leave passes out with --module-passes"
            )


def add_slots(
    model: nn.Module, num_slots: int, max_rank: int, vocab_size: int, dtype: torch.dtype
) -> AdapterSlots:
    """Make room for adapters in all linear layers of a model that can be adapted.

    Args:
        model: model in evaluation mode, whose projections are merged, and that no module pass has changed.
        vocab_size: upper bound of the token ids to run it with.
        dtype: dtype of the model's hidden states.

    Raises:
        ModelError: no layer of the model can be adapted.
    """
    modules = {name for name, _ in model.named_modules()}
    linears = linears_of(model)
    heads = heads_of(model, linears)
    refused = refused_linears(model, linears, heads, vocab_size, dtype)
    current, like = CurrentRows(), next(model.parameters()).new_empty(0, dtype=dtype)
    adapted: dict[int, AdaptedLinear] = {}  # by the `id()` of the module that computes the layer
    places = {}
    for name, linear in linears.items():
        if name in refused:
            continue
        whole, part = (linear.merged, linear.index) if isinstance(linear, MergedPart) else (linear, 0)
        if id(whole) not in adapted:
            adapted[id(whole)] = _adapt(model, name, linear, num_slots, max_rank, like, current)
        places[name] = Place(adapted[id(whole)], part)
    if not places:
        raise ModelError(
            f"{type(model).__name__} has no linear layers that adapters can adapt; leave out --adapter and --max-adapters"
        )
    sizes_of = {
        name: (each.linear.in_features, each.linear.sizes[each.part]) for name, each in places.items()
    }
    base = BaseLinears(sizes_of, refused, heads, modules)
    return AdapterSlots(places, base, num_slots, max_rank, dtype, current)


def _adapt(
    model: nn.Module,
    name: str,
    linear: nn.Module,
    num_slots: int,
    max_rank: int,
    like: torch.Tensor,
    current: CurrentRows,
) -> AdaptedLinear:
    """Replace a layer, or the merged product that computes it, with a layer that has room for adapters."""
    if isinstance(linear, MergedPart):
        merged = linear.merged
        new = AdaptedLinear(merged.product, merged.sizes, num_slots, max_rank, like, current)
        merged.product = new  # type: ignore[assignment]
        return new
    size = linear.out_features
    assert isinstance(size, int)
    new = AdaptedLinear(linear, [size], num_slots, max_rank, like, current)
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, new)
    return new
