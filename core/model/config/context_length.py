"""Chooses the maximum length of a sequence: `--context-length`, within the limits of the model."""

from __future__ import annotations

from typing import Any

from llmfw.core.base.errors import ConfigError

from .long_rope import has_long_factors

ORIGINAL_LIMIT_TYPES = ("dynamic", "longrope")
"""Kinds of rotary embeddings whose frequencies depend on the longest sequence of a batch if it exceeds the
original limit, unless the long factors are used for all sequences."""

LENGTH_NAMES = ("max_position_embeddings", "max_seq_len", "max_target_positions")
"""Fields of configs that name the longest sequence. The last one is Whisper's, for its decoder."""


def choose_context_length(asked: int | None, text_config: Any, *, long_factors: bool = False) -> int:
    """Return the maximum sequence length in tokens. The default is the model's own limit.

    Args:
        asked: length that the user asks for; None: the default.
        text_config: config of the model's text part.
        long_factors: whether the model will use its long rotary factors for a length above the original one (see
            `long_rope`). If not, the original length is the limit.

    Raises:
        ConfigError: `asked` is too small or exceeds the model's limit, or the model has no limit and `asked`
            is None.
    """
    limit = next(filter(None, (getattr(text_config, name, None) for name in LENGTH_NAMES)), None)
    if limit is not None and limit < 1:  # XLNet's says -1 for "any"
        limit = None
    rope = getattr(text_config, "rope_parameters", None) or {}
    if rope.get("rope_type") in ORIGINAL_LIMIT_TYPES and not (long_factors and has_long_factors(text_config)):
        limit = rope.get("original_max_position_embeddings") or limit
    if "chunked_attention" in (getattr(text_config, "layer_types", None) or ()):
        chunk = getattr(text_config, "attention_chunk_size", None)
        limit = min(
            filter(None, (limit, chunk)), default=None
        )  # within the first chunk, a token sees all earlier tokens
    # up to this length, Doge attends to all tokens; beyond, to those that score best by their values alone
    limit = min(filter(None, (limit, getattr(text_config, "keep_window_size", None))), default=None)
    if asked is None:
        limit = limit or getattr(
            text_config, "seq_length", None
        )  # BLOOM's, for which longer sequences work, too
    if limit is None and asked is None:
        raise ConfigError("the model's config names no longest sequence; give --context-length")
    if asked is None:
        assert limit is not None
        return int(limit)
    if asked < 2 or (limit is not None and asked > limit):
        raise ConfigError(f"--context-length is {asked}; this model can be served with 2 to {limit} tokens")
    return asked


def within_table(asked: int | None, length: int, num_positions: int) -> int:
    """Return the maximum sequence length of a model whose position table has this many rows for tokens.

    Args:
        asked: length that the user asks for; None: the default.
        length: length that `choose_context_length` has chosen.

    Raises:
        ConfigError: `asked` exceeds the number of rows.
    """
    if asked is not None and asked > num_positions:
        raise ConfigError(
            f"--context-length is {asked}; this model can be served with 2 to {num_positions} tokens"
        )
    return min(length, num_positions)
