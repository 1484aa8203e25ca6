"""Reads the small files of a model's folder: UTF-8 text, and JSON objects. Reports each error in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from llmfw.core.base.errors import ModelError
from llmfw.core.base.unreadable import unreadable

OBJECTS = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
    "adapter_config.json",
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
)
"""Files that must hold a JSON object if they exist. Most of them are read by transformers."""

OTHERS = (
    "chat_template.jinja",
    "modules.json",
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
)
"""Small files with other contents."""

MAX_BYTES = 2**28
_MARKS = {b"\xef\xbb\xbf": "UTF-8 with", b"\xff\xfe": "UTF-16 with", b"\xfe\xff": "UTF-16 with"}
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def check_files(folder: Path) -> None:
    """Raise ModelError if a small file of a model folder is not a regular file, or should be JSON but is not.

    Call this before libraries read the files: some wait forever if a file is a pipe, others raise errors of
    100 lines.
    """
    for name in OBJECTS:
        read_json(folder / name)
    for name in OTHERS:
        _is_there(folder / name)


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; {} if the file does not exist.

    Raises:
        ModelError: the file cannot be read, or does not hold a JSON object.
    """
    if not _is_there(path):
        return {}
    content = parse_json(path)
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds {_kind(content)}; it must hold a JSON object")
    return content


def parse_json(path: Path) -> Any:
    """Return the contents of a JSON file.

    Raises:
        ModelError: the file cannot be read, is not JSON, or has a string that is not valid Unicode.
    """
    text = read_text(path)
    if not text.strip():
        raise ModelError(f"{path} is empty; it must hold JSON")
    try:
        content = json.loads(text)
        if _HALF.search(text):
            json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ModelError(f"{path} has half of a surrogate pair, which is not a character: {error}") from error
    except (RecursionError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {unreadable(error)}") from error
    return content


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        ModelError: the file cannot be read, is too large, is not UTF-8, or starts with a byte order mark.
    """
    _is_there(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ModelError(f"{path} has {path.stat().st_size} bytes; at most {MAX_BYTES} are read")
        raw = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error
    for mark, encoding in _MARKS.items():
        if raw.startswith(mark):
            raise ModelError(f"{path} is {encoding} a byte order mark; save it as UTF-8 without one")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not UTF-8 ({error}); save it as UTF-8") from error


def _is_there(path: Path) -> bool:
    """Return whether a file exists; raise ModelError if the path exists but is not a file."""
    try:
        if path.is_file() or not (path.exists() or path.is_symlink()):
            return path.is_file()
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    kind = "a folder" if path.is_dir() else "a link to nothing" if path.is_symlink() else "a pipe or device"
    raise ModelError(f"{path} is {kind}; it must be a file")


def _kind(content: object) -> str:
    names = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(content), "a number")
