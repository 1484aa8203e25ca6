"""A tokenizer that does not fit its own files or its model is refused when it is loaded, not request by request."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from llmfw.core.base.errors import ModelError
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.core.model.tokenizer.tokenizer_check import check_fit
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer

WORDS = {"<s>": 0, "</s>": 1, "hello": 2, "world": 3}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="<s>"))
    backend.add_special_tokens(["<s>", "</s>"])
    backend.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def edit(folder: Path, change: Callable[[Any], object]) -> Path:
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    return folder


def added(content: str, number: int) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": content, "special": True, **flags}


def refusal(folder: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load_tokenizer(str(folder))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_two_tokens_with_one_id_are_refused(folder: Path) -> None:
    text = refusal(edit(folder, lambda content: content["model"]["vocab"].update(other=2)))
    assert "the same id, 2" in text
    assert "'hello'" in text
    assert "'other'" in text


def test_an_empty_vocabulary_is_refused(folder: Path) -> None:
    def clear(content: Any) -> None:
        content["model"]["vocab"].clear()
        content["added_tokens"].clear()

    assert "has no tokens" in refusal(edit(folder, clear))


@pytest.mark.parametrize("number", [1, 5, 5000])
def test_added_tokens_must_keep_their_file_s_id(folder: Path, number: int) -> None:
    """The package gives it the next free one, without a word."""
    edit(folder, lambda content: content["added_tokens"].append(added("<x>", number)))
    assert f"gives the added token '<x>' the id {number}" in refusal(folder)


def test_consecutive_added_tokens_are_accepted(folder: Path) -> None:
    edit(folder, lambda content: content["added_tokens"].append(added("<x>", 4)))
    assert load_tokenizer(str(folder)).encode("<x>") == [4]


def test_a_missing_end_token_is_refused(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<end>", "bos_token": "<start>"}')
    assert "no token '<end>', its eos_token, and no config names another id" in refusal(folder)
    (folder / "generation_config.json").write_text('{"eos_token_id": 1}')
    assert load_tokenizer(str(folder)).eos_token_ids == (1,)
    assert "no token '<start>', which is its bos_token" in caplog.text


@pytest.mark.parametrize("token", [5, True, ["</s>"], {"id": 1}])
def test_a_special_token_must_be_text(folder: Path, token: object) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": token, "add_bos_token": True}))
    assert "eos_token is" in refusal(folder)


@pytest.mark.parametrize(
    "template", [5, [1, 2], {"a": 1}, [{"name": "default"}], [{"name": "x", "template": 3}]]
)
def test_a_chat_template_must_be_text(folder: Path, template: object) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    assert "chat_template is" in refusal(folder)


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json"]
)
@pytest.mark.parametrize("kind", ["loop", "folder", "dangling"])
def test_a_name_that_is_no_file_is_reported(folder: Path, name: str, kind: str) -> None:
    file = folder / name
    file.unlink(missing_ok=True)
    if kind == "folder":
        file.mkdir()
    else:
        file.symlink_to(file if kind == "loop" else folder / "nothing")
    said = refusal(folder)
    assert f"{file} is a " in said or f"{file} cannot be read: " in said


def test_bytes_that_are_not_text_are_named(folder: Path) -> None:
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe")
    assert "chat_template.jinja is UTF-16" in refusal(folder)


def test_an_unconvertible_tokenizer_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("a\n")
    assert "cannot be read" in refusal(folder)


@pytest.mark.parametrize("number", [4, 2**31])
def test_a_tokenizer_beyond_the_model_is_refused(folder: Path, number: int) -> None:
    edit(folder, lambda content: content["model"]["vocab"].update(new=number))
    with pytest.raises(
        ModelError, match=rf"1 tokens beyond the model's, which go from 0 to 3: 'new' \({number}\)"
    ):
        check_fit(load_tokenizer(str(folder)), "m", 4)


def test_added_tokens_beyond_the_model_log_a_warning(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Many models have a padding token that their embeddings lack."""
    edit(folder, lambda content: content["added_tokens"].append(added("<pad>", 4)))
    check_fit(load_tokenizer(str(folder)), "m", 4)
    assert "'<pad>' (4). Prompts with them are refused" in caplog.text


def test_an_end_token_beyond_the_model_is_refused() -> None:
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="<s>"))
    check_fit(Tokenizer(backend, eos_token_ids=(3,)), "m", 4)
    with pytest.raises(ModelError, match="eos_token_id is 4, and its tokens go from 0 to 3"):
        check_fit(Tokenizer(backend, eos_token_ids=(4,)), "m", 4)


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("WordLevel", {"unk_token": "zz"}),
        ("WordPiece", {"unk_token": "zz"}),
        ("BPE", {"unk_token": "zz"}),
        ("Unigram", {"unk_id": None}),
    ],
)
def test_unencodable_unknown_text_is_refused(folder: Path, kind: str, model: dict[str, Any]) -> None:
    """Such a tokenizer answered each request with a 500."""
    vocabulary: Any = [[word, -1.0] for word in WORDS] if kind == "Unigram" else WORDS
    made = {"type": kind, "vocab": vocabulary, **model}
    if kind == "BPE":
        made["merges"] = []
    if kind == "WordPiece":
        made |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    text = refusal(edit(folder, lambda content: content.update(model=made)))
    assert "cannot encode text that its vocabulary lacks" in text


def test_dropout_is_switched_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    letters = {letter: number for number, letter in enumerate(["a", "b", "ab", "abab"])}
    merges = [("a", "b"), ("ab", "ab")]
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(letters, merges, dropout=0.5))
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(str(tmp_path))
    assert {tuple(tokenizer.encode("abab" * 8)) for _ in range(20)} == {(3,) * 8}
    assert "dropout 0.5, which is for training: it is off" in caplog.text
