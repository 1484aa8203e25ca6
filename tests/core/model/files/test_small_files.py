"""A small file of a model that is not what it should be is refused on one line that names it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from llmfw.core.base.errors import ModelError
from llmfw.core.model.files.small_files import OBJECTS, OTHERS, check_files
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer

CONTENTS: dict[str, tuple[bytes, str]] = {
    "latin-1": ('{"a": "é"}'.encode("latin-1"), "is not UTF-8"),
    "byte order mark": (b"\xef\xbb\xbf{}", "byte order mark"),
    "utf-16": ("{}".encode("utf-16"), "UTF-16 with a byte order mark"),
    "empty": (b" \n", "is empty"),
    "list": (b"[1]", "holds a list; it must hold a JSON object"),
    "number": (b"1e400", "holds a number"),
    "null": (b"null", "holds null"),
    "broken": (b"{", "cannot be read: Expecting"),
    "deep": (b'{"a":' * 100_000, "nested too deeply"),
    "digits": (b'{"a": ' + b"9" * 5000 + b"}", "has a whole number of more than 4300 digits"),
    "surrogate": (b'{"eos_token": "\\ud800"}', "half of a surrogate pair"),
    "nul": (b'{"a": "\x00"}', "cannot be read: Invalid control character"),
}


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("content", CONTENTS)
def test_a_wrong_object_is_one_line(tmp_path: Path, name: str, content: str) -> None:
    raw, expected = CONTENTS[content]
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(ModelError) as caught:
        check_files(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / name} ")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


KINDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "folder": (Path.mkdir, "is a folder"),
    "pipe": (os.mkfifo, "is a pipe or device"),
    "link": (lambda path: path.symlink_to("nowhere"), "is a link to nothing"),
}


@pytest.mark.parametrize("name", [*OBJECTS, *OTHERS])
@pytest.mark.parametrize("kind", KINDS)
def test_non_files_are_not_opened(tmp_path: Path, name: str, kind: str) -> None:
    make, expected = KINDS[kind]
    make(tmp_path / name)
    with pytest.raises(ModelError, match=f"{expected}"):
        check_files(tmp_path)


@pytest.mark.parametrize("content", ["latin-1", "byte order mark", "utf-16"])
def test_a_template_not_in_utf_8_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(CONTENTS[content][0])
    _write_tokenizer(tmp_path)
    with pytest.raises(ModelError, match=r"chat_template\.jinja is (not )?UTF"):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize(
    "content",
    [b"", b"[1]", b"{}", b"null", b"\xff\xfe{", b'{"model": {"type": "BPE"}}', b'{"version": "\\ud800"}'],
)
def test_a_wrong_tokenizer_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"cannot be read|UTF-16 with a byte order mark") as caught:
        load_tokenizer(str(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("template", [1, {"a": 2}, [{"name": "default", "template": 3}], [[]] * 2, True])
def test_a_non_text_template_is_refused(tmp_path: Path, template: object) -> None:
    _write_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    with pytest.raises(
        ModelError,
        match=r"tokenizer_config\.json: chat_template is .*(must be a text|needs a name and a template)",
    ):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize("size", ["256", None, [1], 1.5])
def test_a_dummy_tokenizer_needs_an_integer_vocabulary(tmp_path: Path, size: object) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": size}))
    with pytest.raises(ModelError, match="vocab_size is"):
        load_tokenizer(str(tmp_path), "dummy")


def _write_tokenizer(folder: Path) -> None:
    import tokenizers

    tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a")).save(
        str(folder / "tokenizer.json")
    )
