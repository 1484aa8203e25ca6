"""Reads a model's config.json and refuses impossible numbers in it.

transformers checks the types of most fields, but accepts NaN, an epsilon below 0 and a `rope_theta` of 0. The
model then computes NaN, or wrong values without an error.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from itertools import product
from typing import Any

from llmfw.core.base.errors import ModelError

from ..files.checkpoint import find_file
from ..files.small_files import read_json

EPSILON = re.compile(r"_(eps|epsilon)$")
"""Names of norms' epsilons. ProphetNet's `eps` is not an epsilon, and may be 0."""
ROTARY = re.compile(
    r"(^|_)(theta|factor|low_freq_factor|high_freq_factor|attention_factor|short_factor|long_factor|beta_fast|beta_slow"
    r"|original_max_position_embeddings|base_freq)$"
)
"""Names of rotary parameters that must be above 0. They are in a dictionary of rotary parameters or, as
`rope_theta`, at the top level."""
SOFT_CAP = re.compile(r"^(?!.*router).*(soft_?cap(ping)?|logit_cap)$")
"""Soft caps: a score becomes cap * tanh(score / cap). A cap of 0 would divide by 0, except in routers, where
0 means no cap."""
SCALE = re.compile(
    r"(^|_)(query_pre_attn_scalar|logits?_scal(e|ing)|softmax_scale|scale_(emb|depth)|rout(e|ed|er|ing)_scal(e|ing_factor)"
    r"|(attention|embedding|residual|lm_head|output|key|logits_mup_width)_multiplier|ssm_(in|out)_multiplier)$"
)
"""Factors and divisors of whole layers. If one is 0, the layer has no effect or divides by 0. If it is
negative, the layer's effect is reversed."""
CHOSEN_EXPERTS = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_k")
ALL_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
"""Names of the field for the number of experts in a layer. `CHOSEN_EXPERTS` has the names of the field for
the number of experts that compute a token."""
SIZE = re.compile(
    r"^(hidden_size|intermediate_size|vocab_size|head_dim|max_position_embeddings|n_embd|n_head|n_layer|n_positions|d_model"
    r"|num_(attention_heads|key_value_heads|hidden_layers))$"
)
COUNT = re.compile(r"^(num|n)_(?!.*(token|position|embd|ctx|inner|param|hidden_layers))")
"""Names of counts, such as of labels, heads or experts: transformers creates that many entries or modules."""
MAX_COUNT = 100_000
LAYERS = re.compile(r"^(num_hidden_layers|n_layers?|num_layers)$")
MAX_LAYERS = 10_000
MAX_SIZE = 100_000_000
"""Maximum size of a vocabulary or width of a layer: no machine has the memory for larger weights."""
NEGATIVE_MEANS_ANY = ("max_position_embeddings", "n_positions")
"""Fields in which a negative number is valid: XLNet uses -1 for an unlimited context."""


def read_settings(path: str) -> dict[str, Any]:
    """Return the contents of config.json; {} if the file does not exist.

    Args:
        path: a folder, or a hub id.

    Raises:
        ModelError: the file cannot be read, or is not a JSON object.
    """
    file = find_file(path, "config.json", download=True)
    return read_json(file) if file else {}


def check_numbers(path: str, settings: dict[str, Any]) -> None:
    """Refuse a config with an impossible number, such as NaN, a number that is too large, or a size below 1.

    Args:
        path: name of the model for the message.
        settings: contents of config.json.

    Raises:
        ModelError: a number is wrong, or the type of the rotary embedding is not text. The message names the
            first such field, its value, and what is allowed.
    """
    for field, value in _fields(settings):
        if wanted := _wanted(field, value):
            raise ModelError(
                f"model {path!r} cannot be served: {'.'.join(field)} is {value!r:.60} in its config.json; it must be {wanted}"
            )


def _wanted(field: tuple[str, ...], value: Any) -> str | None:
    """Return a description of a field's valid values; None if the value is valid."""
    name = field[-1]
    if name in ("rope_type", "type") and _is_in_rotary(field) and not isinstance(value, str):
        return "a name, such as 'default'"
    if isinstance(value, float) and math.isnan(value):
        return "a finite number"
    if isinstance(value, float) and math.isinf(value):
        return None if "limit" in name else "a finite number"  # Mamba 2's time_step_limit ends with infinity
    if value is None:
        return None
    if COUNT.match(name) and isinstance(value, int) and value > MAX_COUNT:
        return f"at most {MAX_COUNT:,}"
    if LAYERS.match(name) and isinstance(value, int) and value > MAX_LAYERS:
        return f"at most {MAX_LAYERS:,}"
    if SIZE.match(name) and name not in NEGATIVE_MEANS_ANY and isinstance(value, int) and value > MAX_SIZE:
        return f"at most {MAX_SIZE:,}"
    is_text = len(field) == 1 or field[0] in ("text_config", "rope_parameters", "rope_scaling")
    if not is_text:
        return None  # numbers of other parts, such as an image encoder, are not checked
    if EPSILON.search(name) or _is_rotary(field):
        return _wanted_positive(value)
    if SOFT_CAP.search(name):
        return _wanted_positive(value, "a number above 0, or null for no cap")
    if SCALE.search(name) and isinstance(value, int | float):
        return _wanted_positive(value)
    if SIZE.match(name) and type(value) is int and value < 1:
        return None if value == -1 and name in NEGATIVE_MEANS_ANY else "1 or more"
    return None


def _wanted_positive(value: Any, wanted: str = "a number above 0") -> str | None:
    """Return a description of valid values; None if the value is a number above 0 that fits into a float."""
    is_right = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    if not is_right:
        return wanted
    return None if value <= sys.float_info.max else "a number that a float can hold"


def _is_in_rotary(field: tuple[str, ...]) -> bool:
    return any(part in ("rope_parameters", "rope_scaling") for part in field[:-1])


def _is_rotary(field: tuple[str, ...]) -> bool:
    name = field[-1]
    return bool(ROTARY.search(name)) and (_is_in_rotary(field) or name.startswith("rope_"))


def check_experts(path: str, text_config: Any) -> None:
    """Refuse a config whose number of experts per token is below 1, or exceeds the number of experts.

    Raises:
        ModelError: the number of experts per token is wrong; the message names both numbers.
    """
    for chosen_name, total_name in product(CHOSEN_EXPERTS, ALL_EXPERTS):
        chosen, total = (getattr(text_config, name, None) for name in (chosen_name, total_name))
        if type(chosen) is int and type(total) is int and total > 0 and not 1 <= chosen <= total:
            raise ModelError(
                f"model {path!r} cannot be served: {chosen_name} is {chosen} in its config; it must be 1 to {total}, its "
                f"{total_name}"
            )


def refuse_named_weights(path: str, settings: dict[str, Any]) -> None:
    """Raise ModelError for a config that names the file of the weights.

    transformers would read that file instead of the files that llmfw checks.
    """
    for field, value in _fields(settings):
        if field[-1] == "transformers_weights" and value is not None:
            raise ModelError(
                f"model {path!r} cannot be served: its config.json names {value!r:.80} as transformers_weights; remove that "
                "field, and rename the file to model.safetensors"
            )


def _fields(settings: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each value with the names of the fields that lead to it, in the file's order.

    Descends into dictionaries and lists, and yields only the values in them.
    """
    # An explicit stack, because JSON may be nested more deeply than Python's recursion limit.
    waiting: list[tuple[tuple[str, ...], Any]] = [((), settings)]
    while waiting:
        field, value = waiting.pop()
        if isinstance(value, dict):
            waiting += reversed([((*field, name), inner) for name, inner in value.items()])
        elif isinstance(value, list):
            waiting += reversed([(field, inner) for inner in value])
        else:
            yield field, value
