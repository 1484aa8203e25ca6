"""Encoders whose positions start after the padding token embed and classify as transformers does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ....length import also
from .encoders import build as build_encoder
from .encoders import embed, embed_alone, save_encoder
from .test_classifier import build, classify, expected, save_classifier
from .test_embedding_engine import CLOSE, prompts_of

OTHER = (
    "CamembertConfig",
    "Data2VecTextConfig",
    "RobertaPreLayerNormConfig",
    "XLMRobertaXLConfig",
    "XmodConfig",
)
FAMILIES = ["RobertaConfig", "XLMRobertaConfig", *also(OTHER)]
XMOD: dict[str, Any] = {"default_language": "en_XX"}


@pytest.mark.parametrize("config_class", FAMILIES)
def test_vectors_are_those_of_transformers(config_class: str, tmp_path: Path) -> None:
    changes = XMOD if config_class == "XmodConfig" else {}
    folder = save_encoder(tmp_path, config_class, pad_token_id=1, **changes)
    prompts = prompts_of(4)
    for vector, prompt in zip(embed(build_encoder(folder), prompts), prompts, strict=True):
        torch.testing.assert_close(vector, embed_alone(folder, prompt, "mean_tokens"), **CLOSE)


@pytest.mark.parametrize("config_class", FAMILIES)
def test_scores_are_those_of_transformers(config_class: str, tmp_path: Path) -> None:
    changes = XMOD if config_class == "XmodConfig" else {}
    folder = save_classifier(tmp_path, config_class, pad_token_id=1, **changes)
    prompts = prompts_of(3)
    for scores, prompt in zip(classify(build(folder), prompts), prompts, strict=True):
        torch.testing.assert_close(scores, expected(folder, prompt), **CLOSE)
