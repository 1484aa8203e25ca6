"""Reads from config.json whether a model was trained so that its vectors may be cut (Matryoshka)."""

from __future__ import annotations

from typing import Any

from llmfw.core.base.errors import ModelError


def load_matryoshka(model: str, config: Any, size: int) -> tuple[int, ...] | None:
    """Return the numbers of dimensions that vectors may be cut to; (): any number; None: they may not be cut.

    Args:
        config: transformers' config, whose fields are `is_matryoshka` and `matryoshka_dimensions`, as in vLLM.
        size: number of dimensions of an uncut vector.

    Raises:
        ModelError: a field has a wrong value.
    """
    flag = getattr(config, "is_matryoshka", None)
    given = getattr(config, "matryoshka_dimensions", None)
    if flag is not None and not isinstance(flag, bool):
        raise ModelError(
            f"model {model!r}: is_matryoshka in config.json is {flag!r:.80}; it must be true or false"
        )
    if given is None:
        return () if flag else None
    if not isinstance(given, list | tuple) or not given or not all(_is_size(each, size) for each in given):
        raise ModelError(
            f"model {model!r}: matryoshka_dimensions in config.json is {given!r:.80}; it must be a list of whole numbers from 1 "
            f"to {size}"
        )
    return tuple(sorted(set(given)))


def _is_size(value: Any, size: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= size
