"""Determines which tokens a model's attention masks make visible.

transformers describes a mask by a rule: a function (batch, head, query position, key position) → bool. While
llmfw probes a model, the model receives a marker in place of each mask. The marker that a layer passes to
attention identifies the layer's rule. Masks that no layer uses are ignored.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch

MaskFunction = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

FAR = 1 << 22
"""Largest distance between query and key position that is checked."""
_QUERIES = (FAR, FAR + 1, FAR + 12_345, FAR + 99_999)
"""Query positions to check. For any chunk size, some of them are inside a chunk, not at its start."""


class MaskMarkers:
    """Creates a marker for each mask that a model requests, and finds the mask's rule by the marker."""

    def __init__(self) -> None:
        self._markers: list[tuple[torch.Tensor, MaskFunction]] = []

    def mark(
        self,
        rule: MaskFunction,
        q_length: int,
        kv_length: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> torch.Tensor:
        """Return a marker for a rule: a mask [1, 1, q_length, kv_length] that hides no token."""
        marker = torch.zeros(1, 1, q_length, kv_length, dtype=dtype, device=device)
        self._markers.append((marker, rule))
        return marker

    def rule_of(self, mask: torch.Tensor) -> MaskFunction | None:
        """Return the rule of a marker or of a slice of a marker; None if the model made the mask itself."""
        place = mask.untyped_storage().data_ptr()
        for marker, rule in self._markers:
            if marker.untyped_storage().data_ptr() == place:
                return rule
        return None


def window_of(rule: MaskFunction) -> int | None:
    """Return the sliding window of a rule, in tokens; None for plain causal attention.

    Raises:
        ValueError: the rule is neither a sliding window nor plain causal attention.
    """
    rule = _without_images(rule)
    window = None
    if not _are_seen(rule, FAR, [FAR])[0]:
        window = _first_unseen(rule)
    edge = FAR if window is None else window
    distances = {-FAR, -2, -1, 0, 1, 2, edge // 2, edge - 1, edge, edge + 1, 2 * edge, FAR}
    distances |= {1 << i for i in range(FAR.bit_length())}
    looked_at = sorted(d for d in distances if d <= FAR)
    expected = [d >= 0 and (window is None or d < window) for d in looked_at]
    if any(_are_seen(rule, query, looked_at) != expected for query in _QUERIES):
        raise ValueError("is neither causal nor a sliding window")
    return window


def _first_unseen(rule: MaskFunction) -> int:
    """Return the smallest distance at which a token is hidden from the query. Uses binary search.

    The token at distance 0 must be visible, and the token at distance FAR hidden.
    """
    seen, unseen = 0, FAR
    while unseen - seen > 1:
        middle = (seen + unseen) // 2
        if _are_seen(rule, FAR, [middle])[0]:
            seen = middle
        else:
            unseen = middle
    return unseen


def _are_seen(rule: MaskFunction, query: int, distances: list[int]) -> list[bool]:
    zero = torch.zeros((), dtype=torch.long, device="cpu")
    seen = rule(zero, zero, zero + query, query - torch.tensor(distances, dtype=torch.long, device="cpu"))
    result: list[bool] = seen.expand(len(distances)).tolist()
    return result


def _without_images(rule: MaskFunction) -> MaskFunction:
    """Remove the part of a rule that concerns images, if the probed row has no images.

    transformers adds a rule by which the tokens of an image attend to each other. That rule looks tokens up
    in a table of the row, so it cannot be called for positions beyond the row. Rules are recognized by the
    names of their functions. Other rules are returned unchanged.
    """
    parts = _closed_over(rule, "mask_functions")
    if getattr(rule, "__name__", "") != "or_mask" or not isinstance(parts, tuple):
        return rule
    left = [part for part in parts if not _is_empty_table(part)]
    return left[0] if len(left) == 1 else rule


def _is_empty_table(rule: MaskFunction) -> bool:
    table = _closed_over(rule, "block_sequence_ids")
    return isinstance(table, torch.Tensor) and bool((table < 0).all())


def _closed_over(rule: MaskFunction, name: str) -> object:
    """Return the value of a variable in a function's closure; None if the closure lacks it."""
    return inspect.getclosurevars(rule).nonlocals.get(name) if inspect.isfunction(rule) else None
