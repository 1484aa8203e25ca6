"""Of a model that also reads images, what computes with text is kept, and the rest is freed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForMultimodalLM, LlavaForConditionalGeneration

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ModelError
from llmfw.core.model.attention.hf_attention import register_with_transformers
from llmfw.core.model.changes.text_part import keep_text_part
from llmfw.core.model.models import load_model
from llmfw.core.plugin.plugins import load_plugins

from ....models.checkpoint import save_checkpoint
from ....models.tiny_config import VOCAB_SIZE, tiny_config


def num_bytes(module: nn.Module) -> int:
    return sum(parameter.nbytes for parameter in module.parameters())


def text_only(folder: Path) -> nn.Module:
    config = EngineConfig(model=str(folder), device="cpu", dtype="float32", context_length=64)
    return load_model(config, torch.device("cpu"), load_plugins().registry).module


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tiny_config("llava"), tmp_path_factory.mktemp("llava"))


def test_the_encoder_of_images_is_freed(llava: Path) -> None:
    whole = AutoModelForMultimodalLM.from_pretrained(llava, dtype=torch.float32)
    assert isinstance(whole, LlavaForConditionalGeneration)
    unused = num_bytes(whole.model.vision_tower) + num_bytes(whole.model.multi_modal_projector)
    register_with_transformers()
    asked = {"dtype": torch.float32, "attn_implementation": "llmfw"}
    reduced = AutoModelForMultimodalLM.from_pretrained(llava, **asked).eval()
    before = num_bytes(reduced)
    assert keep_text_part(reduced, VOCAB_SIZE) == unused > 0
    assert num_bytes(reduced) == before - unused


def test_a_served_model_has_no_encoder(llava: Path) -> None:
    names = [name for name, _ in text_only(llava).named_parameters()]
    assert names
    assert not [name for name in names if "vision" in name or "projector" in name]


class Gate(nn.Module):
    """A model whose text passes a part that it does not call: it takes the weights of the part."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(VOCAB_SIZE, 8)
        self.side = nn.Linear(8, 8)

    @property
    def base_model(self) -> nn.Module:
        return self

    def forward(self, input_ids: torch.Tensor, **kwargs: Any) -> Any:
        return SimpleNamespace(logits=self.embeddings(input_ids) @ self.side.weight)


class Optional(Gate):
    """A model that computes something else where the part is missing."""

    def forward(self, input_ids: torch.Tensor, **kwargs: Any) -> Any:
        hidden = self.embeddings(input_ids)
        return SimpleNamespace(logits=hidden if self.side is None else hidden @ self.side.weight)


@pytest.mark.parametrize(
    ("made", "why"),
    [(Gate, "running it on text alone failed"), (Optional, "change what it says of a text")],
)
def test_parts_that_texts_need_are_not_dropped(made: type[Gate], why: str) -> None:
    with pytest.raises(ModelError, match=why) as refusal:
        keep_text_part(made(), VOCAB_SIZE)
    assert "\n" not in str(refusal.value)
