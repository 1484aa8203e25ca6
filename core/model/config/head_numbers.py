"""Refuses a config if attention cannot use its numbers of heads, widths of heads or sliding window.

transformers would build such a model. Its first forward pass would fail with an error about shapes that are
in no file, or compute with keys and values that belong to no query.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llmfw.core.base.errors import ModelError

LATENT = "kv_lora_rank"
"""Field of models with latent attention. They have one key head per query head, and ignore the config's
number of key heads."""


def check_heads(path: str, text_config: Any) -> None:
    """Refuse a config if attention cannot use its number of key heads, width of heads or sliding window.

    The number of key heads must divide the number of query heads. A width must be even if the rotary
    embedding rotates all of it. A sliding window must have at least one token.

    Args:
        path: name of the model for the message.
        text_config: the config of the decoder or encoder, as transformers reads it.

    Raises:
        ModelError: a number is wrong; the message names it, and what it must be.
    """
    if getattr(text_config, "is_heterogeneous", False):
        return  # heads differ between layers, and transformers gives no number for all of them
    for reason in (_uneven_groups(text_config), _odd_rotary(text_config), _empty_window(text_config)):
        if reason:
            raise ModelError(f"model {path!r} cannot be served: {reason}")


def _uneven_groups(text_config: Any) -> str | None:
    heads = getattr(text_config, "num_attention_heads", None)
    shared = getattr(text_config, "num_key_value_heads", None)
    is_used = "num_key_value_heads" in getattr(type(text_config), "__dataclass_fields__", {})
    if not is_used or type(heads) is not int or type(shared) is not int or getattr(text_config, LATENT, None):
        return None
    if shared < 1 or heads % shared == 0:
        return None
    return f"num_key_value_heads is {shared} in its config; it must divide {heads}, its num_attention_heads"


def _odd_rotary(text_config: Any) -> str | None:
    """Return an error message if an odd width is rotated as a whole; else None.

    The width is the head's width or, with latent attention, `qk_rope_head_dim`.

    A rotary embedding rotates pairs of numbers. If only a part of a head is rotated, an odd width is no
    error: transformers rounds it up.
    """
    rotary = getattr(text_config, "rope_parameters", None)
    if not isinstance(rotary, dict):
        return None
    wanted = "its rotary embedding needs an even number"
    latent = getattr(text_config, "qk_rope_head_dim", None)
    if type(latent) is int:
        return f"qk_rope_head_dim is {latent} in its config; {wanted}" if latent % 2 else None
    width, source = _head_width(text_config)
    if width is None or width % 2 == 0 or not any(int(width * part) == width for part in _parts(rotary)):
        return None
    return f"{source} in its config; {wanted}"


def _empty_window(text_config: Any) -> str | None:
    window = getattr(text_config, "sliding_window", None)
    types = getattr(text_config, "layer_types", None)
    is_used = types is None or "sliding_attention" in types
    if type(window) is not int or window > 0 or not is_used:
        return None
    return f"sliding_window is {window} in its config; it must be 1 or more, or null for no window"


def _head_width(text_config: Any) -> tuple[int | None, str]:
    """Return the width of a head, and a text with the fields that determine it; (None, "") if unknown."""
    width = getattr(text_config, "head_dim", None)
    if type(width) is int:
        return width, f"head_dim is {width}"
    size, heads = (getattr(text_config, name, None) for name in ("hidden_size", "num_attention_heads"))
    if type(size) is not int or type(heads) is not int or heads < 1:
        return None, ""
    width = size // heads
    return width, f"hidden_size / num_attention_heads is {size} / {heads} = {width}"


def _parts(rotary: dict[str, Any]) -> Iterator[float]:
    """Yield the fraction of a head that is rotated, for each type of layer."""
    by_layer = [each for each in rotary.values() if isinstance(each, dict)]
    for each in by_layer or [rotary]:
        part = each.get("partial_rotary_factor")
        yield 1.0 if part is None else float(part)
