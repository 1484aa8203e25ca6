"""Conformance tests of the `ModelSource` interface: the source's folder exists and contains a readable model.

The tests do not run the model, and read only the headers of its weights.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from llmfw.core.interfaces.chat_template import ChatTemplate
from llmfw.core.interfaces.model_source import ModelSource
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.defaults import default_name
from llmfw.core.plugin.plugins import load_plugins

from .parsing import solid

TEXT = "hello, world"


class ModelSourceTests:
    """Conformance tests of a model source. Derive from this class and override the fixture `source`."""

    @pytest.fixture
    def source(self) -> ModelSource:
        """Return the model source under test."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture source")

    def test_the_folder_is_absolute_and_stable(self, source: ModelSource) -> None:
        folder = folder_of(source)
        assert isinstance(source.folder(), str)
        assert folder.is_absolute(), f"{folder} depends on where the server is started"
        assert source.folder() == str(folder)
        if not type(source).Options.__struct_fields__:  # a source with options cannot be rebuilt here
            assert type(source)().folder() == str(folder)

    def test_transformers_reads_its_config(self, source: ModelSource) -> None:
        from transformers import AutoConfig

        folder, config = folder_of(source), config_of(source)
        assert config.get("architectures"), "config.json names no architecture"
        found = AutoConfig.from_pretrained(folder, local_files_only=True)
        assert found.model_type == config["model_type"]

    def test_its_weights_are_complete(self, source: ModelSource) -> None:
        folder = folder_of(source)
        files = sorted(folder.glob("*.safetensors"))
        assert files, f"there are no weights (*.safetensors) in {folder}"
        found = {name: path for path in files for name in tensors_of(path)}
        index = folder / "model.safetensors.index.json"
        if index.is_file():
            listed = json.loads(index.read_text("utf-8"))["weight_map"]
            absent = [name for name, file in listed.items() if found.get(name) != folder / file]
            assert absent == []

    def test_its_tokenizer_encodes_and_decodes_text(self, source: ModelSource) -> None:
        tokenizer = tokenizer_of(source)
        tokens = tokenizer.encode(TEXT, add_special_tokens=False)
        unknown = tokenizer.token_id(tokenizer.special_tokens.get("unk_token", ""))
        if unknown in tokens:
            pytest.skip(
                f"the tokenizer does not have the capability to write {TEXT!r} (it has no such words)"
            )
        assert tokens
        assert solid(tokenizer.decode(tokens)).lower() == solid(TEXT)

    def test_its_tokenizer_has_an_end_token(self, source: ModelSource) -> None:
        tokenizer = tokenizer_of(source)
        assert tokenizer.eos_token_ids, "no token ends an output (eos_token_id)"
        assert max(tokenizer.eos_token_ids) < tokenizer.num_ids

    def test_its_logits_cover_the_tokenizer(self, source: ModelSource) -> None:
        config = config_of(source)
        text = config.get("text_config", config)
        if "vocab_size" not in text:
            pytest.skip("the config does not have the capability vocab_size")
        assert text["vocab_size"] >= tokenizer_of(source).num_ids

    @pytest.mark.parametrize("kind", ["tool_parser", "reasoning_parser"])
    def test_its_parsers_are_registered(self, source: ModelSource, kind: str) -> None:
        name = getattr(source, kind)
        if name is None:
            pytest.skip(f"the source does not have the capability {kind} (it names none)")
        registry = load_plugins().registry
        registry.find(kind, default_name(registry, kind, name))

    def test_its_chat_template_renders_a_question(self, source: ModelSource) -> None:
        tokenizer = tokenizer_of(source)
        if not tokenizer.chat_template:
            pytest.skip("the model does not have the capability chat_template (its folder has none)")
        registry = load_plugins().registry
        jinja = default_name(registry, "chat_template", "jinja")
        made: type[ChatTemplate] = registry.find("chat_template", jinja).load()
        template = made(tokenizer.chat_template, tokenizer.special_tokens)
        prompt = template.render([{"role": "user", "content": "What is the weather?"}])
        assert "What is the weather?" in prompt
        assert tokenizer.encode(prompt, add_special_tokens=False)


def folder_of(source: ModelSource) -> Path:
    """Return the model's folder, which must exist."""
    folder = Path(source.folder())
    assert folder.is_dir(), f"{folder} is not a folder"
    return folder


def config_of(source: ModelSource) -> dict[str, Any]:
    """Return the contents of the model's config.json."""
    path = folder_of(source) / "config.json"
    assert path.is_file(), f"there is no {path}"
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def tokenizer_of(source: ModelSource) -> Tokenizer:
    """Return the model's tokenizer."""
    return load_tokenizer(str(folder_of(source)))


def tensors_of(path: Path) -> list[str]:
    """Return the names of the tensors in a safetensors file.

    Asserts that the file's size matches its header.
    """
    with path.open("rb") as file:
        head = file.read(8)
        assert len(head) == 8, f"{path} is cut off"
        (length,) = struct.unpack("<Q", head)
        size = path.stat().st_size
        assert length <= size, (
            f"{path} is not a file of safetensors, or is cut off (a pointer of Git LFS, perhaps)"
        )
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    end = max((tensor["data_offsets"][1] for tensor in header.values()), default=0)
    assert size == 8 + length + end, f"{path} is cut off: {size} bytes of {8 + length + end}"
    return list(header)
