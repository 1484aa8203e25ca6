"""Encoders that embed or classify are quantized by any scheme, and stay close to what they were."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from llmfw.core.base.errors import ComponentError, ModelError
from llmfw.core.base.request import EmbedRequest, FinishReason
from llmfw.core.plugin.registry import Entry

from ....doubles.row_codes import RowCodes, example
from ....doubles.six_bit_scheme import SixBit
from ...model.quantization.schemes import bundled, entry
from ...model.quantization.test_chosen_scheme import NaNs
from ...model.quantization.test_quantize import Listing
from ..generation.test_quantization_schemes import BAD, Fragile
from ..generation.tiny_models import SIZES
from .encoders import build, embed, save_encoder, write

PROMPTS = [[5, 6, 7, 8], [9, 10], list(range(20, 60))]
ENTRIES = (*bundled(), entry(SixBit, "six"), entry(NaNs), entry(Listing), entry(Fragile))


def save_classifier(folder: Path) -> str:
    torch.manual_seed(1)
    config = transformers.BertConfig(**SIZES, num_labels=3)
    module = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)
    module.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(("name", "bound"), [("int8", 0.02), ("int4", 0.2), ("six", 0.05)])
@pytest.mark.parametrize("classifies", [False, True])
def test_quantized_encoders_stay_close(classifies: bool, name: str, bound: float, tmp_path: Path) -> None:
    folder = save_classifier(tmp_path) if classifies else save_encoder(tmp_path)
    expected = embed(build(folder, classifies=classifies), PROMPTS)
    engine = build(folder, *ENTRIES, classifies=classifies, quantization=name)
    assert engine.info.quantization == name
    found = embed(engine, PROMPTS)
    assert 0 < (found - expected).norm() < bound * expected.norm()


def test_the_log_counts_quantized_weights(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    folder = save_encoder(tmp_path)
    build(folder, *ENTRIES, quantization="six")
    assert re.search(r"quantization=six, avail mem=[\d.]+ GB, mem usage=", caplog.text)


def test_a_classification_head_is_a_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Listing, "seen", [])
    build(save_classifier(tmp_path), *ENTRIES, classifies=True, quantization="Listing")
    assert [layer.name for layer in Listing.seen if layer.is_head] == ["classifier"]


def test_a_fault_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(ComponentError, match=r"'NaNs' of plugin 'ext' .*returned NaN or infinity"):
        build(save_encoder(tmp_path), *ENTRIES, quantization="NaNs")


def test_quantized_encoders_are_not_quantized_again(tmp_path: Path) -> None:
    folder = Path(save_encoder(tmp_path))
    config = transformers.AutoConfig.from_pretrained(folder).to_dict()
    write(folder / "config.json", config | {"quantization_config": {"quant_method": "gptq", "bits": 4}})
    with pytest.raises(ModelError, match=r"quantized already \(gptq\)"):
        build(str(folder), *ENTRIES, quantization="int8")


def test_a_module_failing_in_steps_is_blamed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The engine goes on with the next request."""
    engine = build(save_encoder(tmp_path), *ENTRIES, quantization="Fragile")
    engine.add(EmbedRequest(id="bad", prompts=[[5] * BAD, [5] * BAD]))
    [event] = engine.step()
    assert (event.finish_reason, event.error_kind) == (FinishReason.ERROR, "ComponentFailedError")
    assert event.error is not None
    assert event.error.startswith("quantization scheme 'Fragile' of plugin 'ext' failed on this request")
    assert "ZeroDivisionError: no such shape" in caplog.text
    assert not engine.has_work
    assert len(embed(engine, PROMPTS)) == len(PROMPTS)


@pytest.mark.parametrize("config_class", ["BertConfig", "Qwen3Config"])
def test_quantized_encoders_embed_as_their_weights(config_class: str, tmp_path: Path) -> None:
    """A format's layers are found by the names of a model without a head."""
    folders = [Path(save_encoder(tmp_path / name, config_class)) for name in ("quantized", "plain")]
    quantized, plain = (load_file(folder / "model.safetensors") for folder in folders)
    for i, (name, weight) in enumerate(list(plain.items())):
        if weight.dim() == 2 and "embed" not in name:
            layer = example(*weight.shape, i)
            plain[name] = layer.weight
            del quantized[name]
            quantized |= {name.replace("weight", leaf): each for leaf, each in layer.tensors.items()}
    for folder, tensors in zip(folders, (quantized, plain), strict=True):
        save_file(tensors, folder / "model.safetensors")
    config = transformers.AutoConfig.from_pretrained(folders[0]).to_dict()
    settings = {"quantization_config": {"quant_method": "row-codes", "bits": 8}}
    write(folders[0] / "config.json", config | settings)
    path = f"{RowCodes.__module__}:{RowCodes.__qualname__}"
    reader = Entry("quantized_format", "row-codes", path, "ext", "llmfw-ext", "1.2")
    found, expected = (embed(build(str(folder), reader), PROMPTS) for folder in folders)
    assert torch.equal(found, expected)
