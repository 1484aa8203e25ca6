"""Popular model types are equal to transformers, or refused for the reason that docs/models.md gives.

All types of transformers are tried by `make model-table`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ...models.tiny_config import tiny_config
from ...models.trial import LOOSE_TOLERANCES, TOLERANCE, try_config

EQUAL = (
    *("llama", "mistral", "ministral", "mixtral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe"),
    *("gemma", "gemma2", "gemma3_text", "gemma4_text", "phi", "phi3", "phimoe", "gpt_oss", "gpt2"),
    *("deepseek_v2", "deepseek_v3", "glm4", "glm4_moe", "granite", "smollm3", "olmo2", "olmo3", "minimax_m2"),
    *("ernie4_5", "hunyuan_v1_dense", "exaone4", "starcoder2", "cohere2", "got_ocr2"),
)
REFUSED = {
    "deepseek_v32": "selected or compressed tokens",
    "falcon": "does not use transformers' attention interface",
    "falcon_h1": "state",
    "lfm2": "state",
    "llama4_text": "the attention mask of layer 0 is neither causal nor a sliding window",
    "mpt": "do not call transformers' attention interface",
    "nemotron_h": "state",
    "qwen3_next": "state",
}
MAX_TOKENS = 6


@pytest.mark.parametrize("model_type", EQUAL)
def test_a_popular_type_is_equal_to_transformers(model_type: str, tmp_path: Path) -> None:
    tolerance = LOOSE_TOLERANCES.get(model_type, TOLERANCE)
    verdict = try_config(tiny_config(model_type), tmp_path, tolerance, MAX_TOKENS)
    assert verdict.outcome == "equal", verdict.reason


@pytest.mark.parametrize("model_type", REFUSED)
def test_a_popular_type_is_refused_in_one_line(model_type: str, tmp_path: Path) -> None:
    verdict = try_config(tiny_config(model_type), tmp_path, max_tokens=MAX_TOKENS)
    assert verdict.outcome == "refused"
    assert REFUSED[model_type] in verdict.reason
    assert "\n" not in verdict.reason
