"""A model that llmfw does not serve is refused with what it is, whichever task is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from transformers import AutoModel
from transformers.models.auto import modeling_auto

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ModelError
from llmfw.core.engine.process.build import build_engine
from llmfw.core.model.config.model_kind import generates, other_task, unknown_kind
from llmfw.core.plugin.plugins import load_plugins

from ...engine.embedding.encoders import save_encoder
from ...engine.generation.tiny_models import save_random_model
from ..test_checked_load import load

SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}


def refusal(folder: Path, task: str) -> str:
    with pytest.raises(ModelError) as caught:
        build_engine(EngineConfig(model=str(folder), device="cpu", task=task), load_plugins().registry)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def configure(folder: Path, **changes: Any) -> Path:
    file = folder / "config.json"
    settings = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(settings | changes))
    return folder


@pytest.mark.parametrize("task", ["auto", "generate", "embed"])
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("Qwen2ForRewardModel", "reward model"),
        ("LlamaForTokenClassification", "token classifier"),
        ("BertForQuestionAnswering", "question answering"),
        ("ViTForImageClassification", "reads images"),
        ("Wav2Vec2ForCTC", "audio"),
        ("ThingForNewThings", "is made for NewThings"),
        ("Thing", "names the architecture Thing, which llmfw does not know"),
    ],
)
def test_unserved_model_kinds_are_named(tmp_path: Path, task: str, name: str, what: str) -> None:
    save_encoder(tmp_path, mode=None)
    text = refusal(configure(tmp_path, architectures=[name]), task)
    assert what in text
    assert "--task" not in text


@pytest.mark.parametrize("task", ["generate", "embed"])
def test_a_classifier_serves_no_other_task(tmp_path: Path, task: str) -> None:
    save_encoder(tmp_path, mode=None)
    assert "reranker" in refusal(configure(tmp_path, architectures=["BertForSequenceClassification"]), task)


def test_a_classifier_with_pooling_files_embeds(tmp_path: Path) -> None:
    save_encoder(tmp_path)
    configure(tmp_path, architectures=["BertForSequenceClassification"])
    engine = build_engine(EngineConfig(model=str(tmp_path), device="cpu"), load_plugins().registry)
    assert engine.info.task == "embed"


@pytest.mark.parametrize(
    ("config", "what"),
    [
        (transformers.ViTConfig(**SMALL, image_size=32, patch_size=16), "reads image and no text"),
        (
            transformers.CLIPConfig(text_config=SMALL, vision_config=SMALL),
            "text alone (it reads image, text)",
        ),
        (transformers.T5Config(d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4), "encoder-decoder"),
    ],
)
def test_models_not_of_text_cannot_embed(tmp_path: Path, config: Any, what: str) -> None:
    AutoModel.from_config(config).save_pretrained(tmp_path)
    assert what in refusal(tmp_path, "auto")


@pytest.mark.parametrize("model_type", ["clip", "siglip", "clap"])
def test_pictures_and_audio_are_named(tmp_path: Path, model_type: str) -> None:
    configure(tmp_path, model_type=model_type, architectures=["XForConditionalGeneration"])
    assert "besides text, and transformers has no class that generates text with it" in refusal(
        tmp_path, "auto"
    )


def test_model_kinds_cover_transformers_classes() -> None:
    tables = (
        table for name, table in vars(modeling_auto).items() if name.endswith("CAUSAL_LM_MAPPING_NAMES")
    )
    names = {
        name
        for table in tables
        for names in table.values()
        for name in ([names] if isinstance(names, str) else names)
    }
    assert not [name for name in names if generates(name) and other_task(name)]
    assert not [name for name in ("BertModel", "BertForMaskedLM", "BertForPreTraining") if other_task(name)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"model_type": "zzz"}, "model_type is 'zzz', which transformers"),
        ({"model_type": 5}, "model_type is 5"),
        ({}, "no model_type"),
        ({"_diffusers_version": "0.3", "_class_name": "UNet"}, "a diffusion model (UNet)"),
        ({"model_type": "zzz", "auto_map": {}}, "zzz"),
        ({"model_type": "zzz", "auto_map": {"AutoConfig": "x"}}, None),
        ({"model_type": "llama"}, None),
    ],
)
def test_unknown_model_kinds_are_named(settings: dict[str, Any], expected: str | None) -> None:
    found = unknown_kind(settings)
    assert found is None if expected is None else expected in str(found)


def test_a_differing_class_logs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load(save_random_model(tmp_path, "LlamaConfig", {}))
    assert "names the architecture" not in caplog.text
    load(configure(tmp_path, architectures=["MyForCausalLM"]))
    assert "MyForCausalLM, which is served as LlamaForCausalLM" in caplog.text
