"""A GGUF file becomes a folder with config, tokenizer and template."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from llmfw.core.base.errors import ModelError
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.model_name import resolve_model

pytest.importorskip("gguf")

from llmfw.plugins.weights_gguf import gguf_loader
from llmfw.plugins.weights_gguf.config import config_of
from llmfw.plugins.weights_gguf.convert_metadata import write_described
from llmfw.plugins.weights_gguf.header import read_header
from llmfw.plugins.weights_gguf.llama3_rope import llama3_scaling

from ...doubles.gguf_file import END, reads_vocabularies, tiny_model, write_gguf
from .test_served_models import REGISTRY

TEXT = "hé the <|im_end|> 12345\n\n x"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file; the folder that it becomes is in the cache after the first test."""
    found = tmp_path_factory.mktemp("models") / "Tiny-Q8_0.gguf"
    write_gguf(found, tiny_model("qwen2", num_hidden_layers=1), "Q8_0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield found


@reads_vocabularies
def test_tokens_and_template_are_the_file_s(file: Path) -> None:
    """The vocabulary is of bytes, in the order of their characters, so the expected ids are known."""
    resolved = resolve_model(str(file), REGISTRY)
    assert resolved.served_name == "Tiny-Q8_0"
    tokenizer = load_tokenizer(resolved.path)
    ids = tokenizer.encode(TEXT)
    assert END in ids
    assert tokenizer.decode(ids) == TEXT.replace("<|im_end|>", "") or tokenizer.decode(ids) == TEXT
    assert tokenizer.eos_token_ids == (END,)
    assert "<|im_end|>" in (tokenizer.chat_template or "")


@reads_vocabularies
def test_the_dtype_follows_the_weights(file: Path) -> None:
    assert (
        json.loads((Path(resolve_model(str(file), REGISTRY).path) / "config.json").read_text())["dtype"]
        == "bfloat16"
    )


@reads_vocabularies
def test_a_second_start_finds_the_folder(file: Path) -> None:
    first = resolve_model(str(file.parent), REGISTRY).path
    (Path(first) / "marked").touch()
    assert (Path(resolve_model(str(file), REGISTRY).path) / "marked").exists()


@reads_vocabularies
def test_a_changed_file_is_converted_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_loader, "convert", write_described)
    first = resolve_model(str(file), REGISTRY).path
    changed = file.with_name("changed.gguf")
    write_gguf(changed, tiny_model("qwen2", num_hidden_layers=2))
    original = file.rename(file.with_suffix(".original"))
    changed.rename(file)
    try:
        assert resolve_model(str(file), REGISTRY).path != first
    finally:
        original.rename(file)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_factors_of_llama_3_are_recognized(factor: float) -> None:
    scaling = llama3_scaling(_factors(factor), 500_000.0)
    assert scaling is not None
    assert scaling["factor"] == factor
    changed = _factors(factor)
    changed[20] *= 1.01
    assert llama3_scaling(changed, 500_000.0) is None


def _factors(factor: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Return the factors by transformers: plain frequencies by scaled ones."""
    rope = {"rope_theta": 500_000.0, "rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0}
    rope |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    config = AutoConfig.for_model("llama", head_dim=128, rope_parameters=rope)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = 500_000.0 ** (-np.arange(64) / 64)
    return (plain / scaled.numpy()).astype(np.float32)


@pytest.mark.parametrize(
    ("model_type", "window", "expected"),
    [
        ("qwen2", 8, "window of 8 tokens"),
        ("llama", 8, "window of 8 tokens"),
        ("gemma2", 0, "no sliding window"),
    ],
)
def test_other_windows_are_refused(tmp_path: Path, model_type: str, window: int, expected: str) -> None:
    write_gguf(tmp_path / "m.gguf", tiny_model(model_type, num_hidden_layers=1))
    header = read_header(tmp_path / "m.gguf")
    header.metadata[f"{model_type}.attention.sliding_window"] = window
    with pytest.raises(ModelError, match=expected):
        config_of(tmp_path / "m.gguf", header)


def test_a_window_of_zero_is_none(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", tiny_model("phi3", num_hidden_layers=1))
    header = read_header(tmp_path / "m.gguf")
    header.metadata["phi3.attention.sliding_window"] = 0
    assert config_of(tmp_path / "m.gguf", header)["sliding_window"] is None
