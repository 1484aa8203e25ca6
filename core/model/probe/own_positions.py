"""Finds models that do not count positions from 0, and makes them add their offset to the positions that they get.

RoBERTa's positions start after the padding index. transformers adds this offset only if the model receives no
positions, and llmfw always gives them. The offset is found in the rows of the position table that a model
looks up without positions and with them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..failure.load_failure import first_line
from .positions import first_queries, plain_ids

logger = logging.getLogger(__name__)

Lookup = tuple[nn.Embedding, torch.Tensor]
"""A table, and the rows that were looked up in it: [1, T]."""


@dataclass(frozen=True, slots=True)
class OwnPositions:
    """Adds an offset to the positions that a model is given. A forward pre-hook of the model.

    Attributes:
        offset: row of the position table for the first token of a sequence.
        num_positions: number of rows from there on, which is the length of the longest sequence.
        uncounted_token: id of a token that takes no position; None: there is none.
    """

    offset: int
    num_positions: int
    uncounted_token: int | None = None

    def __call__(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the arguments of a call of the model, with the offset added to `position_ids`."""
        given = kwargs.get("position_ids")
        return args, kwargs if given is None else kwargs | {"position_ids": given + self.offset}


def keep_own_positions(model: nn.Module) -> None:
    """Make a model that does not count positions from 0 add its offset to those that it is given.

    Leaves other models as they are, and models that cannot be run, for which later checks say why.
    """
    try:
        found = _find(model)
    except Exception as error:  # noqa: BLE001 - any architecture's own code runs here
        logger.debug("%s does not run without positions: %s", type(model).__name__, first_line(error))
        return
    if found is not None:
        logger.info("Positions start at row %d of the position table", found.offset)
        model.register_forward_pre_hook(found, with_kwargs=True)


def own_positions(model: nn.Module) -> OwnPositions | None:
    """Return what `keep_own_positions` has found; None: the model counts from 0."""
    hooks = model._forward_pre_hooks.values()
    return next((hook for hook in hooks if isinstance(hook, OwnPositions)), None)


def _find(model: Any) -> OwnPositions | None:
    ids = plain_ids(model)[:3]
    moved = _moved(_lookups(model, ids), _lookups(model, ids, range(len(ids))))
    offsets = {offset for _, offset in moved}
    if len(offsets) != 1:
        return None
    offset = offsets.pop()
    tables = [table for table, _ in moved]
    uncounted_token = next((padding for table in tables if (padding := table.padding_idx) is not None), None)
    if uncounted_token is not None:
        rows = [
            rows for table, rows in _lookups(model, (ids[0], uncounted_token, ids[1])) if table is tables[0]
        ]
        if rows[0][0].tolist() == list(range(offset, offset + len(ids))):
            uncounted_token = None
    return OwnPositions(offset, min(table.num_embeddings for table in tables) - offset, uncounted_token)


def _moved(own: Sequence[Lookup], given: Sequence[Lookup]) -> list[tuple[nn.Embedding, int]]:
    """Return the tables in which a model looks up other rows without positions, and the distance of these rows.

    Returns an empty list if the rows differ by more than an offset.
    """
    moved: list[tuple[nn.Embedding, int]] = []
    if [table for table, _ in own] != [table for table, _ in given]:
        return []
    for (table, ours), (_, theirs) in zip(own, given, strict=True):
        distances = set((ours - theirs).flatten().tolist()) if ours.shape == theirs.shape else set()
        if len(distances) != 1 or min(distances) < 0:
            return []
        if distance := distances.pop():
            moved.append((table, distance))
    return moved


def _lookups(model: nn.Module, ids: Sequence[int], positions: Sequence[int] | None = None) -> list[Lookup]:
    """Return the lookups in tables up to the first attention layer, in order."""
    found: list[Lookup] = []
    with _recording(model, found):
        first_queries(model, ids, positions)
    return found


@contextmanager
def _recording(model: nn.Module, found: list[Lookup]) -> Iterator[None]:
    """Within the block, record all lookups in a model's tables."""

    def record(table: nn.Embedding, args: tuple[Any, ...]) -> None:
        if args and isinstance(args[0], torch.Tensor):
            found.append((table, args[0].clone()))

    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    handles = [table.register_forward_pre_hook(record) for table in tables]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
