"""Finds out whether a model's tokenizer gives types of tokens, which distinguish the texts of a pair."""

from __future__ import annotations

from typing import Any


def gives_types(model: str) -> bool:
    """Return whether transformers' tokenizer of a model returns `token_type_ids`.

    The tokenizer's class or its tokenizer_config.json decides this (`model_input_names`), not the types in
    its template. If the model has types and the tokenizer returns none, all types are 0.

    Args:
        model: a folder, or a hub id. If transformers cannot load the tokenizer, the result is True.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
    except Exception:  # noqa: BLE001 - such as a folder without a tokenizer; llmfw's own check refuses damaged files
        return True
    return "token_type_ids" in tokenizer.model_input_names
