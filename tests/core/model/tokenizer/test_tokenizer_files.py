"""What is read from a model's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from llmfw.core.base.errors import ModelError
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a model with a tokenizer of five words."""
    words = ["<s>", "</s>", "<turn>", "hello", "world"]
    backend = tokenizers.Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<s>")
    )
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    backend.add_special_tokens(["<s>", "</s>", "<turn>"])
    backend.enable_truncation(2)
    backend.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def write(folder: Path, name: str, content: Any) -> None:
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))


def test_tokenizer_files_decide_on_the_bos_token(folder: Path) -> None:
    tokenizer = load_tokenizer(str(folder))
    assert tokenizer.encode("hello world") == [0, 3, 4]
    assert tokenizer.encode("hello world", add_special_tokens=False) == [3, 4]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"generation_config.json": {"eos_token_id": [1, 2]}, "config.json": {"eos_token_id": 0}}, (1, 2)),
        ({"config.json": {"eos_token_id": 1}}, (1,)),
        ({"config.json": {"text_config": {"eos_token_id": 1}}}, (1,)),
        ({"tokenizer_config.json": {"eos_token": "<turn>"}, "config.json": {"eos_token_id": 1}}, (1, 2)),
        ({"tokenizer_config.json": {"eos_token": {"content": "</s>"}}}, (1,)),
        ({}, ()),
    ],
)
def test_end_tokens_come_from_model_and_tokenizer(
    folder: Path, files: dict[str, Any], expected: tuple[int, ...]
) -> None:
    for name, content in files.items():
        write(folder, name, content)
    assert load_tokenizer(str(folder)).eos_token_ids == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"chat_template.jinja": "file", "tokenizer_config.json": {"chat_template": "config"}}, "file"),
        ({"tokenizer_config.json": {"chat_template": "config"}}, "config"),
        ({"chat_template.json": {"chat_template": "json"}}, "json"),
        (
            {
                "tokenizer_config.json": {
                    "chat_template": [
                        {"name": "rag", "template": "other"},
                        {"name": "default", "template": "named"},
                    ]
                }
            },
            "named",
        ),
        ({}, ""),
    ],
)
def test_the_chat_template_is_found_in_any_file(folder: Path, files: dict[str, Any], expected: str) -> None:
    for name, content in files.items():
        write(folder, name, content)
    assert load_tokenizer(str(folder)).chat_template == expected


def test_special_tokens_have_their_names(folder: Path) -> None:
    write(folder, "tokenizer_config.json", {"bos_token": "<s>", "add_bos_token": True})
    write(folder, "special_tokens_map.json", {"eos_token": {"content": "</s>"}})
    assert load_tokenizer(str(folder)).special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}


def test_a_missing_tokenizer_names_the_expected_files(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no tokenizer.*tokenizer\.json"):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize(("name", "content"), [("tokenizer.json", "{"), ("generation_config.json", "[1]")])
def test_an_unreadable_file_is_named(folder: Path, name: str, content: str) -> None:
    write(folder, name, content)
    with pytest.raises(ModelError, match=r"cannot be read|must hold"):
        load_tokenizer(str(folder))


@pytest.mark.parametrize("eos", ["</s>", 2.0, [[1]], -1, True])
def test_invalid_end_token_ids_are_refused(folder: Path, eos: Any) -> None:
    """The engine ended at each request."""
    write(folder, "generation_config.json", {"eos_token_id": eos})
    with pytest.raises(ModelError, match=r"eos_token_id is .*; it must be a token id"):
        load_tokenizer(str(folder))


def test_an_offline_hub_id_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="nobody/nothing"):
        load_tokenizer("nobody/nothing")


def test_a_tokenizer_without_tokenizer_json_is_converted(tmp_path: Path) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    write(tmp_path, "config.json", {"model_type": "gpt2"})
    write(tmp_path, "vocab.json", {letter: i for i, letter in enumerate([*letters, "ab", "<|endoftext|>"])})
    write(tmp_path, "merges.txt", "#version: 0.2\na b\n")
    tokenizer = load_tokenizer(str(tmp_path))
    assert tokenizer.encode("abab") == [256, 256]


def test_a_dummy_model_gets_a_dummy_tokenizer(tmp_path: Path) -> None:
    """It covers the whole vocabulary."""
    write(tmp_path, "config.json", {"vocab_size": 1000, "eos_token_id": 7})
    tokenizer = load_tokenizer(str(tmp_path), "dummy")
    assert tokenizer.decode(tokenizer.encode("Grüße 🎉")) == "Grüße 🎉"
    assert len({tokenizer.decode([token]) for token in range(256, 1000)}) == 744
    assert tokenizer.eos_token_ids == (7,)
