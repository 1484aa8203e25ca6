"""Refuses modules whose states lack information that later tokens need.

Each module is compared with itself on two sequences: each alone, as transformers computes it, and both
packed, cut into pieces and decoded together, with their states handed over by a `StateStorage`. The module is
compared alone and in float32. So a small multiplier after the module (Falcon-H1's `ssm_out_multiplier`)
cannot hide a difference.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from llmfw.core.interfaces.state_layer import StateLayer
from llmfw.core.interfaces.state_storage import StateStorage

from ..failure.refusal import refused, refusing
from ..states.module_mixer import Part
from ..states.row_states import RowStates, starting_parts
from ..states.state_mixer import StateCall

logger = logging.getLogger(__name__)

LENGTHS = (37, 21)
"""Lengths of the two sequences in tokens."""
ALONE = ((0, 35, 36, 37), (0, 19, 20, 21))
"""Bounds of the pieces in which each sequence is computed alone: a prompt, then two tokens."""
CUTS = ((0, 20, 35, 36, 37), (0, 1, 19, 20, 21))
"""Bounds of the pieces in which both are computed together."""
SLOTS = (1, 0)
"""Slots of the two sequences' states."""
EXACT = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Dtypes of weights that can be converted to float32."""
TOLERANCE, LOOSE_TOLERANCE = 1e-5, 5e-2
"""Maximum difference, relative to the largest output: in float32, and with quantized weights."""
DECODE_TOLERANCE = 1e-3
"""Maximum difference between a decoded token and the same token in a prompt. Nemotron-H differs by 1e-4: in
transformers 5.23, it limits the time steps of prompts only."""


def check_pieces(model: nn.Module, module: nn.Module, call: StateCall) -> bool:
    """Return whether a module that keeps states gives the same outputs for pieces and for whole sequences.

    If not, the module must receive the tokens after the first piece one by one.

    Args:
        model: the whole model.
        module: a module that keeps states.
        call: call of this module for a packed row of two sequences that start, of `LENGTHS` tokens.

    Raises:
        ModelError: the outputs also differ if these tokens come one by one, or are not finite; or the module
            fails.
    """
    name = f"{type(module).__name__} of layer {call.mixer.layer.model_index}"
    with refusing(model, f"running {name} on pieces of sequences"):
        trial = PieceTrial(module, call)
        decode = trial.decode_difference()
        differences = [(takes, trial.piece_difference(takes_pieces=takes)) for takes in (True, False)]
    if decode > max(trial.tolerance, DECODE_TOLERANCE):
        raise refused(
            model,
            f"{name} computes other outputs for a token after a prompt than in it (by {decode:.1e} of the largest)",
        )
    if decode > trial.tolerance:
        logger.warning(
            "%s computes slightly other outputs for a decoded token than for the same token in a prompt, by %.1e of the "
            "largest: a reply may change when a request is retracted.",
            *(name, decode),
        )
    for takes_pieces, difference in differences:
        if difference <= trial.tolerance:
            return takes_pieces
    raise refused(
        model,
        f"{name} computes other outputs (by {differences[0][1]:.1e} of the largest) if a sequence is cut into pieces; "
        "its state lacks something",
    )


class PieceTrial:
    """Compares the outputs of a copy of a module, in float32 if its weights can be converted.

    Args:
        module: a module that keeps states.
        call: call of this module for a packed row of two sequences that start, of `LENGTHS` tokens.

    Attributes:
        tolerance: maximum difference by rounding.
    """

    def __init__(self, module: nn.Module, call: StateCall) -> None:
        copied: Any = copy.deepcopy(module)
        is_exact = all(parameter.dtype in EXACT for parameter in module.parameters())
        if is_exact:
            copied.float()
        self.tolerance = TOLERANCE if is_exact else LOOSE_TOLERANCE
        self._call = StateCall(copied.forward, _map_floats(call.arguments) if is_exact else call.arguments)
        self._layer = _in_float32(call.mixer.layer) if is_exact else call.mixer.layer
        self._device = next(module.parameters()).device
        steps = [_alone(i, number) for i in (0, 1) for number in range(len(ALONE[0]) - 1)]
        self._expected = self._run(steps)

    def decode_difference(self) -> float:
        """Return the difference of decoded tokens from whole sequences, relative to the largest output."""
        with torch.inference_mode():
            return _difference(self._expected, RowStates(starting_parts(LENGTHS)).mix(self._call))

    def piece_difference(self, *, takes_pieces: bool) -> float:
        """Return the difference of packed pieces from sequences alone, relative to the largest output.

        Args:
            takes_pieces: whether the module gets several tokens at once after the first piece.
        """
        self._call.mixer.takes_pieces = takes_pieces
        steps = [_together(number, self._device) for number in range(len(CUTS[0]) - 1)]
        return _difference(self._expected, self._run(steps))

    def _run(self, steps: list[list[Part]]) -> Any:
        """Return the module's output for the row, computed by parts that together have each token once."""
        storage = StateStorage([self._layer], len(LENGTHS), self._device)
        outputs: list[tuple[Part, Any]] = []
        with torch.inference_mode():
            for part in [part for step in steps for part in step]:
                assert part.slots is not None
                before = storage.take(0, part.slots) if part.continues else None
                output, after = self._call.run(part, before)
                storage.put(0, part.slots, after)
                outputs.append((part, output))
            return self._call.join(outputs)


def _alone(index: int, number: int) -> list[Part]:
    """Return the part of a step that computes a piece of one sequence."""
    return [_piece(index, ALONE[index], number)]


def _together(number: int, device: torch.device) -> list[Part]:
    """Return the parts of a step that computes a piece of each sequence, or one token of both."""
    parts = [_piece(index, cuts, number) for index, cuts in enumerate(CUTS)]
    if any(part.num_tokens > 1 for part in parts):
        return parts
    places = [first + cuts[number] for first, cuts in zip((0, LENGTHS[0]), CUTS, strict=True)]
    slots = torch.tensor(SLOTS, device=device)
    return [Part(torch.tensor(places, device=device), len(places), 1, slots, continues=True)]


def _piece(index: int, bounds: tuple[int, ...], number: int) -> Part:
    begin, end = bounds[number], bounds[number + 1]
    first = sum(LENGTHS[:index])
    slots = slice(SLOTS[index], SLOTS[index] + 1)
    return Part(slice(first + begin, first + end), 1, end - begin, slots, continues=number > 0)


def _difference(expected: Any, found: Any) -> float:
    """Return the largest difference of two outputs, relative to the largest element; infinity for NaN."""
    worst = 0.0
    for theirs, ours in zip(_tensors(expected), _tensors(found), strict=True):
        largest = theirs.abs().max().clamp_min(torch.finfo(torch.float32).tiny)
        difference = float((theirs - ours).abs().max() / largest)
        worst = math.inf if math.isnan(difference) else max(worst, difference)
    return worst


def _in_float32(layer: StateLayer) -> StateLayer:
    """Return a layer whose states are stored in float32, so that no rounding counts as a difference."""
    states = tuple(replace(state, dtype=torch.float32) for state in layer.states)
    return replace(layer, states=states)


def _map_floats(given: Any) -> Any:
    """Return arguments with all tensors of floating-point numbers in float32."""
    if isinstance(given, torch.Tensor):
        return given.float() if given.is_floating_point() else given
    if isinstance(given, tuple):
        return tuple(map(_map_floats, given))
    return {name: _map_floats(each) for name, each in given.items()} if isinstance(given, dict) else given


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, tuple):
        for each in output:
            yield from _tensors(each)
