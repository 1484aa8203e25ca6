"""The number of a decoder's layers is not taken for that of an encoder."""

from __future__ import annotations

import pytest
from transformers import CONFIG_MAPPING

from llmfw.core.model.config.layer_count import layer_count_name


@pytest.mark.parametrize("model_type", ["bart", "blenderbot", "whisper", "trocr"])
def test_layers_of_the_decoder_count(model_type: str) -> None:
    config = CONFIG_MAPPING[model_type](encoder_layers=2, decoder_layers=5)
    assert getattr(config, layer_count_name(config)) == 5


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "bloom"])
def test_other_configs_have_one_number(model_type: str) -> None:
    config = CONFIG_MAPPING[model_type](num_hidden_layers=5)
    assert getattr(config, layer_count_name(config)) == 5
