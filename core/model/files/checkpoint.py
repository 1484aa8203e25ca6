"""Inspects the files of a checkpoint without loading weights: names and formats of tensors, adapters,
quantization.

In all functions, `path` is a folder or a hub id. For a hub id, only small files are downloaded; weight files
are read only if they were downloaded before.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING
from transformers.utils import cached_file

from llmfw.core.base.errors import ModelError
from llmfw.core.interfaces.weight_loader import StoredTensor

from .checkpoint_form import ADAPTER_FILES
from .shards import is_inside, shard_names
from .small_files import read_json

WEIGHT_FILES = {"safetensors": "model.safetensors", "bin": "pytorch_model.bin"}
"""Format → name of its file, in the order in which transformers prefers them."""
EXPERT = re.compile(r"^(.*\bexperts\.)(\d+)(\..+)$")


def read_tensors(path: str, file_format: str | None = None) -> dict[str, StoredTensor]:
    """Return the formats of a checkpoint's tensors, by name.

    Empty if there are no weight files, or if a .bin file is damaged or in torch's older format.

    Args:
        file_format: "safetensors" or "bin"; None: the format in the folder that transformers prefers.

    Raises:
        ModelError: the index is invalid, or names a file that is missing or outside the folder; a .bin file
            does not hold named tensors; two files hold different values for the same tensor; or a shard has
            a tensor that is missing from the single file next to it.
    """
    tensors: dict[str, StoredTensor] = {}
    places: dict[str, Path] = {}
    for file in weight_files(path, file_format):
        found = stored_in(file)
        for name in found.keys() & places.keys():
            _refuse_other_copy(name, places[name], file)
        tensors.update(found)
        places.update(dict.fromkeys(found, file))
    return tensors


def expert_gaps(tensors: Mapping[str, StoredTensor]) -> list[str]:
    """Return the names of missing expert tensors whose number is below the highest one in the files.

    transformers stacks experts in numeric order and ignores gaps, so after a gap it would compute with the
    wrong experts. Leaves out experts that are missing at the end. transformers reports these as a shape
    mismatch, and some models omit them by design (LongCat's zero experts).
    """
    numbers: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for name in tensors:
        if found := EXPERT.match(name):
            numbers[found[1]][found[3]].add(int(found[2]))
    missing = []
    for prefix, by_suffix in numbers.items():
        for suffix, present in by_suffix.items():
            missing += [f"{prefix}{i}{suffix}" for i in range(max(present)) if i not in present]
    return missing


def unequal_experts(tensors: Mapping[str, StoredTensor]) -> list[str]:
    """Describe the expert tensors whose shape differs from the shape of the first expert in the same list."""
    first: dict[tuple[str, str], StoredTensor] = {}
    unequal = []
    for name, tensor in tensors.items():
        if found := EXPERT.match(name):
            expected = first.setdefault((found[1], found[3]), tensor)
            if tensor.shape != expected.shape:
                unequal.append(f"{name} is {list(tensor.shape)}, another expert's {list(expected.shape)}")
    return unequal


def missing_scales(tensors: Mapping[str, StoredTensor]) -> list[str]:
    """Return the names of tensors, mostly scales, that are missing from quantized modules.

    A tensor is missing if the same module in another layer has it.

    A scale is also missing if no layer has a scale for an fp8 weight. A module counts as quantized if it has
    a tensor of one-byte elements. transformers does not report all of these tensors as missing.
    """
    leaves: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in tensors:
        module, _, leaf = name.rpartition(".")
        leaves[re.sub(r"\d+", "N", module)][module].add(leaf)
    missing = []
    for modules in leaves.values():
        coded = [module for module, names in modules.items() if _codes(module, names, tensors)]
        usual = set().union(*(modules[module] for module in coded))
        for module in coded:
            missing += [f"{module}.{leaf}" for leaf in usual - modules[module]]
            for leaf in _codes(module, modules[module], tensors):
                has_scale = any(other.startswith(leaf) and "scale" in other for other in usual)
                if tensors[f"{module}.{leaf}"].dtype.upper().startswith(("F8", "FLOAT8")) and not has_scale:
                    missing.append(f"{module}.{leaf}_scale")
    return missing


def _codes(module: str, leaves: Iterable[str], tensors: Mapping[str, StoredTensor]) -> list[str]:
    one_byte = ("F8", "I8", "U8", "FLOAT8", "INT8", "UINT8")
    return [
        leaf
        for leaf in leaves
        if tensors[f"{module}.{leaf}" if module else leaf].dtype.upper().startswith(one_byte)
    ]


def refuse_adapters(path: str) -> None:
    """Raise ModelError for a folder with an adapter, even if the folder also holds a model."""
    found = [name for name in ADAPTER_FILES if find_file(path, name, download=name.endswith(".json"))]
    if not found:
        return
    files = ", ".join(found)
    if find_file(path, "config.json", download=True) is None:
        base = _base_of(path)
        raise ModelError(
            f"model {path!r} is an adapter ({files}) without a model; serve its base model{base} with "
            "--adapter NAME=PATH"
        )
    raise ModelError(
        f"model {path!r} has an adapter ({files}) in addition to its weights; merge it into them (peft: merge_and_unload), "
        "or remove its files to serve the model without it"
    )


def refuse_unknown_quantization(hf_config: Any, path: str, formats: Collection[str] = ()) -> None:
    """Raise ModelError for a checkpoint whose quantization method is unknown to transformers and to plugins.

    transformers would ignore the method.

    Args:
        formats: names of the quantized formats that plugins read.
    """
    found = quantization_of(hf_config)
    if found is None:
        return
    settings = found if isinstance(found, dict) else found.to_dict()
    if settings.get("load_in_8bit") or settings.get("load_in_4bit"):
        return
    method = settings.get("quant_method")
    method = getattr(method, "value", method)
    if method not in AUTO_QUANTIZATION_CONFIG_MAPPING and method not in formats:
        known = ", ".join(sorted({*AUTO_QUANTIZATION_CONFIG_MAPPING, *formats}))
        raise ModelError(
            f"model {path!r} is quantized by quant_method {method!r}, which transformers does not know; "
            f"use a checkpoint that is not quantized, or by one of {known}"
        )


def quantization_of(hf_config: Any) -> Any:
    """Return the `quantization_config` of a config or else of its text config; None if neither has one."""
    text_config = hf_config.get_text_config(decoder=True)
    return getattr(hf_config, "quantization_config", None) or getattr(
        text_config, "quantization_config", None
    )


def weight_files(path: str, file_format: str | None = None, *, download: bool = False) -> list[Path]:
    """Return the weight files that transformers reads, in the format that it prefers or in `file_format`.

    Args:
        download: whether to download files of a hub id that are not in the cache.

    Raises:
        ModelError: as in `read_tensors`, about the index.
    """
    for name in [WEIGHT_FILES[file_format]] if file_format else WEIGHT_FILES.values():
        if file := find_file(path, name, download=download):
            if index := find_file(path, f"{name}.index.json"):
                _refuse_other_shards(path, file, index)
            return [file]
        # Downloaded, because the file names in the index must be checked before transformers reads these files.
        if index := find_file(path, f"{name}.index.json", download=True):
            shards = (find_file(path, shard, download=download) for shard in shard_names(path, index))
            return [file for file in shards if file]
    return []


def _refuse_other_shards(path: str, single: Path, index: Path) -> None:
    """Refuse a folder in which a single file and shards hold different tensors.

    transformers would read the single file, and ignore the shards.

    Raises:
        ModelError: a shard has a tensor that is missing from the single file, or has other values there.
    """
    weight_map = read_json(index).get("weight_map")
    names = weight_map.values() if isinstance(weight_map, dict) else ()
    whole = stored_in(single)
    for shard in sorted({name for name in names if is_inside(name) and name != single.name}):
        file = find_file(path, shard)
        for name in stored_in(file) if file else ():
            if name not in whole:
                raise ModelError(
                    f"{name} is in {file} and not in {single}, which would be read; keep the right files"
                )
            _refuse_other_copy(name, single, cast("Path", file))


def stored_in(file: Path) -> dict[str, StoredTensor]:
    """Return the formats of the tensors in one file, by name."""
    return _safetensors(file) if file.suffix == ".safetensors" else _pickled(file)


def _refuse_other_copy(name: str, first: Path, second: Path) -> None:
    """Raise ModelError if two files hold different values for the same tensor."""
    one, other = _tensor(first, name), _tensor(second, name)
    if one.dtype == other.dtype and torch.equal(one, other):
        return
    raise ModelError(f"{name} is in {first} and, with other numbers, in {second}; keep the right file")


def _tensor(file: Path, name: str) -> torch.Tensor:
    if file.suffix == ".safetensors":
        with safe_open(file, "pt") as opened:
            return cast("torch.Tensor", opened.get_tensor(name))
    return cast("torch.Tensor", torch.load(file, map_location="cpu", weights_only=True, mmap=True)[name])


def _safetensors(file: Path) -> dict[str, StoredTensor]:
    with safe_open(file, "pt") as opened:
        slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 - not a mapping
        return {
            name: StoredTensor(part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()
        }


def _pickled(file: Path) -> dict[str, StoredTensor]:
    try:
        state = torch.load(file, map_location="meta", weights_only=True, mmap=True)
    except Exception:  # noqa: BLE001 - if the file is damaged, transformers reports it
        return {}
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise ModelError(
            f"{file} holds a {type(state).__name__} in place of tensors by name; save a state dict"
        )
    return {
        name: StoredTensor(str(value.dtype).removeprefix("torch."), tuple(value.shape))
        for name, value in state.items()
        if isinstance(value, torch.Tensor)
    }


def _base_of(path: str) -> str:
    file = find_file(path, "adapter_config.json")
    base = read_json(file).get("base_model_name_or_path") if file else None
    return f" ({base})" if base else ""


def find_file(path: str, name: str, *, download: bool = False) -> Path | None:
    """Return the path of a model's file; None if the file does not exist.

    Looks in the model's folder or, for a hub id, in the local cache of the hub.

    Args:
        download: whether to download the file from the hub if it is not in the cache.
    """
    if Path(path).is_dir():
        file = Path(path) / name
        return file if file.is_file() else None
    found = cached_file(
        path,
        name,
        local_files_only=not download,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if found is None else Path(found)
