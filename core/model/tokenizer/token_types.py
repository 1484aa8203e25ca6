"""Finds out whether a model's tokenizer gives types of tokens, which tell the texts of a pair apart."""

from __future__ import annotations

from typing import Any


def gives_types(model: str) -> bool:
    """Return whether transformers' tokenizer of a model returns `token_type_ids`.

    That is for its class or its tokenizer_config.json to say (`model_input_names`), whatever the types in its template.
    Where the model has types and the tokenizer returns none, all are 0.

    Args:
        model: a folder, or a hub id. Without a tokenizer that transformers can load, True is returned.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
    except Exception:  # noqa: BLE001 - such as a folder without a tokenizer; llmfw's own check refuses what is damaged
        return True
    return "token_type_ids" in tokenizer.model_input_names
