"""Numbers of heads that contradict each other are refused by name, before torch fails on their shapes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from llmfw.core.base.errors import ModelError
from llmfw.core.model.attention.mask_rules import MaskMarkers
from llmfw.core.model.checked_load import read_config
from llmfw.core.model.config.head_numbers import check_heads
from llmfw.core.model.probe.probe import _Recorder

from ....models.tiny_config import default_config, tiny_config


@pytest.mark.parametrize(
    ("model_type", "changes", "expected"),
    [
        ("llama", {"head_dim": 3}, "head_dim is 3 in its config; its rotary embedding needs an even number"),
        ("gpt_oss", {"head_dim": 3}, "head_dim is 3 in its config; its rotary embedding needs an even"),
        ("deepseek_v3", {"qk_rope_head_dim": 3}, "qk_rope_head_dim is 3 in its config; its rotary embedding"),
        ("starcoder2", {"hidden_size": 12}, "hidden_size / num_attention_heads is 12 / 4 = 3 in its config"),
        (
            "llama",
            {"num_key_value_heads": 3},
            "num_key_value_heads is 3 in its config; it must divide 4, its",
        ),
        (
            "qwen3",
            {"num_key_value_heads": 8},
            "num_key_value_heads is 8 in its config; it must divide 4, its",
        ),
        (
            "mistral",
            {"sliding_window": 0},
            "sliding_window is 0 in its config; it must be 1 or more, or null",
        ),
        ("gemma2", {"sliding_window": -1}, "sliding_window is -1 in its config; it must be 1 or more, or"),
    ],
)
def test_numbers_that_attention_cannot_use(
    tmp_path: Any, model_type: str, changes: dict[str, int], expected: str
) -> None:
    tiny_config(model_type, **changes).save_pretrained(tmp_path)
    with pytest.raises(ModelError) as caught:
        read_config(str(tmp_path))
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        ("deepseek_v3", {"num_key_value_heads": 32}),
        ("glm4", {"head_dim": 3}),
        ("llama", {"num_key_value_heads": 1}),
        ("gpt2", {"num_key_value_heads": 3}),
        ("qwen2", {"sliding_window": 0, "use_sliding_window": False}),
    ],
)
def test_numbers_that_a_model_can_compute_with(model_type: str, changes: dict[str, int]) -> None:
    """DeepSeek and GPT-2 do not read num_key_value_heads; GLM 4 rotates a part of a head, which is rounded up."""
    check_heads("m", tiny_config(model_type, **changes))


def test_no_types_own_heads_are_refused() -> None:
    for model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        config = default_config(model_type)
        check_heads(model_type, config.get_text_config(decoder=True))


def test_the_probe_counts_heads_itself() -> None:
    """A config may name its heads in fields that llmfw does not know."""
    recorder = _Recorder(MaskMarkers(), may_lack_masks=False, sizes={})
    layer: nn.Module = SimpleNamespace(layer_idx=0, is_causal=True)  # type: ignore[assignment]
    query, key = torch.ones(1, 2, 5, 4), torch.ones(1, 3, 5, 4)
    assert recorder.attend(layer, query, key, key, None).shape == (1, 5, 2, 4)
    assert recorder.problems[0].startswith("layer 0 has 2 heads for queries and 3 for keys; correct its")
