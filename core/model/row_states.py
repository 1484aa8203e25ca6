"""Splits the packed row of a step for modules that keep states, and moves the states.

Sequences that decode are computed together, [N, 1, hidden]. Pieces of prompts are computed one sequence after
another, [1, T, hidden].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.interfaces.state_storage import StateStorage

from .state_mixer import Part, StateCall


class RowStates:
    """Runs the calls of modules that keep states, for one step.

    Args:
        parts: parts of the packed row, which together have each token once.
        storage: storage of the states; None: all sequences start, and their states are not kept.
    """

    def __init__(self, parts: Sequence[Part], storage: StateStorage | None = None) -> None:
        self._parts = parts
        self._storage = storage

    def mix(self, call: StateCall) -> Any:
        """Return the module's output for the whole row."""
        return call.join([(part, self._run(call, part)) for part in self._parts])

    def _run(self, call: StateCall, part: Part) -> Any:
        if self._storage is None or part.slots is None:
            return call.run(part, None)[0]
        index = call.mixer.layer.index
        before = self._storage.take(index, part.slots) if part.continues else None
        output, after = call.run(part, before)
        self._storage.put(index, part.slots, after)
        return output


def starting_parts(lengths: Sequence[int]) -> list[Part]:
    """Return a part for each of several sequences that start, packed into one row."""
    ends = np.cumsum(lengths).tolist()
    return [Part(slice(end - length, end), 1, length) for length, end in zip(lengths, ends, strict=True)]


def parts_of(batch: ForwardBatch) -> list[Part]:
    """Return the parts of a step: all sequences that decode, and each of the others."""
    continues = batch.kv_lens > batch.query_lens
    decoding = np.flatnonzero(continues[: batch.num_single])
    parts = []
    if len(decoding) == batch.num_single > 0:
        whole = slice(0, batch.num_single)
        parts.append(Part(whole, batch.num_single, 1, batch.rows[whole], continues=True))
    elif len(decoding):
        places = torch.from_numpy(decoding).to(batch.device)
        parts.append(Part(places, len(decoding), 1, batch.rows[places], continues=True))
    done = set(decoding.tolist())
    ends = np.cumsum(batch.query_lens).tolist()
    for i, (length, end) in enumerate(zip(batch.query_lens.tolist(), ends, strict=True)):
        if i not in done:
            tokens = slice(end - length, end)
            parts.append(Part(tokens, 1, length, batch.rows[i : i + 1], continues=bool(continues[i])))
    return parts
