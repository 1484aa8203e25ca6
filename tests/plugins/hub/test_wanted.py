"""The files that are downloaded: what serving reads, once."""

from __future__ import annotations

import pytest

from llmfw.plugins.hub.errors import HubError
from llmfw.plugins.hub.wanted import wanted_files

SMALL = ["chat_template.jinja", "config.json", "tokenizer.json"]


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        (["model.safetensors", "pytorch_model.bin"], ["model.safetensors"]),
        (
            [
                "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors",
                "model.safetensors.index.json",
            ],
            [
                "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors",
                "model.safetensors.index.json",
            ],
        ),
        (["pytorch_model.bin", "flax_model.msgpack", "README.md"], ["pytorch_model.bin"]),
        (["model.safetensors", "consolidated.safetensors", "original/params.json"], ["model.safetensors"]),
        (["model.safetensors", "onnx/model.onnx", "vision/model.safetensors"], ["model.safetensors"]),
    ],
)
def test_weights_are_chosen_once(others: list[str], expected: list[str]) -> None:
    assert wanted_files("m", [*SMALL, *others]) == sorted([*SMALL, *expected])


def test_named_files_replace_the_weights() -> None:
    files = ["config.json", "model.safetensors", "m.Q4_K_M.gguf", "m.Q8_0.gguf"]
    assert wanted_files("m", files, ["*Q4_K_M.gguf"]) == ["config.json", "m.Q4_K_M.gguf"]


@pytest.mark.parametrize(
    ("files", "named"),
    [(["config.json"], "it has none at all"), (["a.gguf", "b.gguf"], "by --include: a.gguf, b.gguf")],
)
def test_a_model_without_weights_is_refused(files: list[str], named: str) -> None:
    with pytest.raises(HubError, match=named):
        wanted_files("m", files)
