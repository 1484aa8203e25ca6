"""The longest sequence is found under each name that configs have for it."""

from __future__ import annotations

import pytest
from transformers import CONFIG_MAPPING

from llmfw.core.base.errors import ConfigError
from llmfw.core.model.config.context_length import choose_context_length


@pytest.mark.parametrize(
    ("model_type", "name"),
    [("llama", "max_position_embeddings"), ("mpt", "max_seq_len"), ("whisper", "max_target_positions")],
)
def test_tables_of_positions_end_sequences(model_type: str, name: str) -> None:
    """Beyond the table's end, a step would fail on a CPU, and end the process on a GPU."""
    config = CONFIG_MAPPING[model_type](**{name: 48})
    assert choose_context_length(None, config) == 48
    with pytest.raises(ConfigError, match="2 to 48 tokens"):
        choose_context_length(49, config)
