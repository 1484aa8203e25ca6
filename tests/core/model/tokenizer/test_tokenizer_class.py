"""A tokenizer.json that transformers would replace by one of another kind is refused; nothing else is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from llmfw.core.base.errors import ModelError
from llmfw.core.model.tokenizer.tokenizer_class import KINDS
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer

PIECES = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "hello", "world", "##s", ","]


@pytest.fixture(params=["BPE", "WordPiece"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The kind of the tokenizer.json in `tmp_path`."""
    if request.param == "BPE":
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        backend = tokenizers.Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        vocabulary = {piece: i for i, piece in enumerate(PIECES)}
        backend = tokenizers.Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "eos_token_id": 1}))
    return str(request.param)


def load(folder: Path, name: object) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    load_tokenizer(str(folder))


@pytest.mark.parametrize("name", ["BertTokenizer", "BertTokenizerFast", "T5Tokenizer", "Qwen2Tokenizer"])
def test_a_class_of_another_kind_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    wanted = KINDS[name.removesuffix("Fast")]
    if wanted == kind:
        load(tmp_path, name)
        return
    with pytest.raises(ModelError) as caught:
        load(tmp_path, name)
    assert f"tokenizer_class is '{name}', of the kind {wanted}, and tokenizer.json is a {kind}" in str(
        caught.value
    )
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        *("LlamaTokenizer", "LlamaTokenizerFast", "PreTrainedTokenizerFast", "PreTrainedTokenizer"),
        *("TokenizersBackend", "CodeLlamaTokenizer", "GemmaTokenizer", "NoSuchTokenizer", None, 5, ""),
    ],
)
def test_other_classes_pass(tmp_path: Path, kind: str, name: object) -> None:
    load(tmp_path, name)


def test_what_transformers_loads_as_it_is_passes(tmp_path: Path, kind: str) -> None:
    """Of some types of models transformers ignores the class, since many files name a wrong one."""
    config = {"model_type": "internlm2", "eos_token_id": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    load(tmp_path, "BertTokenizer" if kind == "BPE" else "GPT2Tokenizer")


def test_kinds_are_those_of_transformers() -> None:
    from transformers.models.auto.tokenization_auto import tokenizer_class_from_name

    for name, kind in KINDS.items():
        found = getattr(tokenizer_class_from_name(name), "model", None)
        assert getattr(found, "__name__", kind) == kind, name
