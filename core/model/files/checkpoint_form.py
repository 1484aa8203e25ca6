"""Everything about a checkpoint but the values of its weights, to tell whether another one can take its place.

Reads the small files and the headers of safetensors files, without torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmfw.core.base.errors import ModelError

from .shards import shard_names
from .small_files import OBJECTS, OTHERS, parse_json, read_json

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
MAX_HEADER_BYTES = 100 * 2**20  # limit of the safetensors format
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")
"""Files of an adapter, which no folder of a served model has."""
MAX_SHOWN = 60
"""Maximum number of characters of a value in a message."""

FILES = sorted(
    {*OBJECTS, *OTHERS, "merges.txt"}
    - {"config.json", "adapter_config.json", INDEX, "pytorch_model.bin.index.json"}
)
"""Small files that the server keeps from the first checkpoint: tokenizer, chat template, sampling defaults and so on."""
_NOTES = {"_name_or_path", "_commit_hash", "transformers_version", "use_cache"}
"""Keys that say where a checkpoint is from, and change nothing that is computed."""

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class CheckpointForm:
    """The form of a checkpoint in safetensors files.

    Attributes:
        config: contents of its config.json, with its dtype as `dtype`, without notes about its origin.
        files: digest of the contents of each small file that exists, by name.
        tensors: dtype and shape of each tensor, by name.
    """

    config: Mapping[str, Any]
    files: Mapping[str, str]
    tensors: Tensors

    @classmethod
    def of(cls, folder: Path) -> CheckpointForm:
        """Read the form of the checkpoint in a folder.

        Raises:
            ModelError: a file is missing, damaged or cut short; the weights are not in safetensors files; or there is an
                adapter next to them, with which no engine starts.
        """
        config = _without_notes(read_json(folder / "config.json"))
        if not config:
            raise ModelError(f"{folder} has no config.json; give the folder of a checkpoint")
        if (dtype := config.pop("torch_dtype", None)) is not None:
            config.setdefault("dtype", dtype)
        if adapter := [name for name in ADAPTER_FILES if (folder / name).exists()]:
            raise ModelError(
                f"{folder} has an adapter ({', '.join(adapter)}) in addition to its weights; merge it into them, or remove its files"
            )
        files = {name: _digest(folder / name) for name in FILES if (folder / name).is_file()}
        return cls(config, files, _tensors(folder))

    def difference(self, other: CheckpointForm) -> str:
        """Return the first difference of another checkpoint that must take this one's place; "": it has none."""
        for key in sorted(self.config.keys() | other.config.keys()):
            ours, theirs = self.config.get(key), other.config.get(key)
            if ours != theirs:
                what = "quantization" if key == "quantization_config" else key
                return f"its {what} is {_shown(theirs)}, and that of the served model is {_shown(ours)}"
        for name in sorted(self.files.keys() | other.files.keys()):
            if self.files.get(name) != other.files.get(name):
                how = "is missing" if name not in other.files else "differs from that of the served model"
                return f"its {name} {how}; the server keeps the one that it was started with"
        return _difference(self.tensors, other.tensors)


def _difference(ours: Tensors, theirs: Tensors) -> str:
    if missing := sorted(ours.keys() - theirs.keys()):
        return f"it lacks {len(missing)} tensors, such as {missing[0]:.80}"
    if extra := sorted(theirs.keys() - ours.keys()):
        return f"it has {len(extra)} tensors more, such as {extra[0]:.80}"
    for name, (dtype, shape) in ours.items():
        if theirs[name] != (dtype, shape):
            their_dtype, their_shape = theirs[name]
            return f"its {name:.80} is {their_dtype} {list(their_shape)}, and that of the served model is {dtype} {list(shape)}"
    return ""


def _tensors(folder: Path) -> Tensors:
    # As transformers, which reads the single file even if there is an index.
    is_sharded = not (folder / SINGLE).is_file() and (folder / INDEX).is_file()
    names = shard_names(str(folder), folder / INDEX) if is_sharded else [SINGLE]
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name in names:
        if not (folder / name).is_file():
            raise ModelError(f"{folder} has no {name}; only weights in safetensors files can be replaced")
        found |= _header(folder / name)
    return found


def _header(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return dtype and shape of the tensors in a safetensors file, whose size must be that of its tensors."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        raw = file.read(size) if size <= MAX_HEADER_BYTES else b""
    try:
        header = json.loads(raw)
        header.pop("__metadata__", None)
        tensors = {name: (str(each["dtype"]), tuple(each["shape"])) for name, each in header.items()}
        end = max((int(each["data_offsets"][1]) for each in header.values()), default=0)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ModelError(f"{path} is damaged: its header cannot be read") from error
    if path.stat().st_size != 8 + size + end:
        raise ModelError(
            f"{path} has {path.stat().st_size} bytes, and its header says {8 + size + end}; copy it again"
        )
    return tensors


def _digest(path: Path) -> str:
    """Return a hash of a small file: of JSON, of its values, however they are written."""
    if path.suffix != ".json":
        return hashlib.sha256(path.read_bytes()).hexdigest()
    content = parse_json(path)
    if isinstance(content, dict):
        content = _without_notes(content)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _without_notes(content: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key not in _NOTES}


def _shown(value: object) -> str:
    text = "not set" if value is None else json.dumps(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
