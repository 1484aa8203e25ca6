"""Measures models whose layers keep states. Their sizes follow from no fields that all configs have."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmfw.core.base.errors import ModelError

from .choices import DTYPE_BYTES
from .programs import run_program

STATE_KEYS = re.compile(
    "mamba_|ssm_|state_size|linear_(attn|conv|key|num|value)|conv_L_cache|conv_kernel|cca_"
)
"""Fields of config.json that only models with states have, such as those of a convolution."""

MEASURE = """
from llmfw.core.imports.hf import import_modeling
import_modeling()
from llmfw.core.engine.generation.planned_shape import main
main()
"""


@dataclass(frozen=True, slots=True)
class MeasuredStates:
    """What the layers of a model with states store, measured on a model without weights.

    Attributes:
        shapes: dtype → fields of a `ModelShape`, without the size of the weights.
        attention: numbers of heads and of heads of keys, size of a key head and of a value head, for each layer
            with attention.
        takes_pieces: whether snapshots of states are kept by default.
    """

    shapes: dict[str, dict[str, int]]
    attention: list[tuple[int, int, int, int]]
    takes_pieces: bool

    @property
    def num_kv_elements(self) -> int:
        """Number of elements in the keys and values of one token, in all layers."""
        return sum(kv_heads * (key + value) for _, kv_heads, key, value in self.attention)

    @property
    def widest(self) -> tuple[int, int, int, int]:
        """Numbers of the layer that stores most for a token; zeros if no layer has attention."""
        return max(self.attention, key=lambda each: each[1] * (each[2] + each[3]), default=(0, 0, 0, 0))

    def state_bytes(self, dtype: str) -> int:
        """Return the size of one sequence's states in bytes, if weights have this dtype."""
        return self.shapes[dtype]["num_state_bytes"]


def has_states(config: Mapping[str, Any]) -> bool:
    """Return whether a config's layers keep states, or are of kinds other than attention."""
    kinds = [str(kind) for kind in config.get("layer_types") or ()]
    others = [kind for kind in kinds if not kind.endswith("attention") or "linear" in kind]
    return bool(others) or any(map(STATE_KEYS.match, config))


def measure_states(folder: Path) -> MeasuredStates:
    """Measure the model in a folder, in a process of its own.

    Raises:
        ModelError: transformers cannot build the model, or cannot run it without weights.
    """
    try:
        found = json.loads(run_program(folder, MEASURE, *DTYPE_BYTES))
    except ModelError as error:
        raise ModelError(
            f"{folder / 'config.json'}: the states of its layers cannot be measured: {error}; start llmfw serve, whose log has the sizes"
        ) from error
    attention = [(heads, kv_heads, key, value) for heads, kv_heads, key, value in found["attention"]]
    return MeasuredStates(found["shapes"], attention, found["takes_pieces"])
