"""A model is loaded by the class that generates text with all tensors of its files."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import AutoModelForCausalLM, AutoModelForMultimodalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from llmfw.core.base.errors import ModelError
from llmfw.core.model.config.text_class import class_for_text


@pytest.mark.parametrize(
    ("model_type", "named", "expected"),
    [
        ("llama", "LlamaForCausalLM", AutoModelForCausalLM),
        ("llava", "LlavaForConditionalGeneration", AutoModelForMultimodalLM),
        ("llama4", "Llama4ForCausalLM", AutoModelForCausalLM),
        ("llama4", "Llama4ForConditionalGeneration", AutoModelForMultimodalLM),
        ("qwen3_5", "Qwen3_5ForConditionalGeneration", AutoModelForMultimodalLM),
        ("gemma3", "Gemma3ForConditionalGeneration", AutoModelForCausalLM),
        ("llava", None, AutoModelForMultimodalLM),
    ],
)
def test_the_named_class_decides(model_type: str, named: str | None, expected: Any) -> None:
    config = CONFIG_MAPPING[model_type](architectures=[named] if named else None)
    assert class_for_text("folder", config) is expected


@pytest.mark.parametrize(
    ("model_type", "what"),
    [("t5", "encoder-decoder"), ("clip", "class that generates"), ("distilbert", "not a causal")],
)
def test_other_models_are_refused(model_type: str, what: str) -> None:
    with pytest.raises(ModelError, match=what):
        class_for_text("folder", CONFIG_MAPPING[model_type]())
