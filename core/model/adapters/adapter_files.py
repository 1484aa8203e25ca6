"""Reads an adapter that PEFT has saved, and checks that it fits the base model: names, shapes and values."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_tensors

from llmfw.core.base.errors import ModelError

from ..files.stored_dtypes import torch_dtype
from .adapter_config import CONFIG_FILE, AdapterConfig, is_small, read_adapter_config
from .low_rank import LowRank

WEIGHTS_FILE = "adapter_model.safetensors"
MAX_NAMES = 3
_TENSOR = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
_OTHERS = {
    "lora_embedding_": "it adapts embeddings, which is not served",
    "lora_magnitude_vector": "it is a DoRA adapter, which scales the base's own weights",
    ".bias": "it has biases, which are not served",
    "modules_to_save": "it brings whole modules of its own",
}
"""Part of a tensor's name → description of an adapter with such a tensor."""
_CHANGED = "its files changed while they were read; load it again"


@dataclass(frozen=True, slots=True)
class BaseLinears:
    """The facts about a base model's linear layers that an adapter's files must match.

    Attributes:
        sizes: name of each layer that can be adapted → the layer's numbers of inputs and outputs.
        refused: name of each other linear layer → why it cannot be adapted.
        heads: names of the output layers.
        modules: names of all modules.
    """

    sizes: Mapping[str, tuple[int, int]]
    refused: Mapping[str, str]
    heads: Collection[str] = ()
    modules: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class AdapterWeights:
    """The weights of one adapter, on the CPU.

    Attributes:
        layers: name of each adapted layer → the matrices that the adapter adds to it.
        rank: highest rank of a layer.
        digest: hash of the adapter's files.
    """

    layers: Mapping[str, LowRank]
    rank: int
    digest: str


def read_adapter(path: str, base: BaseLinears, dtype: torch.dtype, max_rank: int) -> AdapterWeights:
    """Read an adapter, and check it against the base model.

    Args:
        path: the adapter's folder.
        base: the base model's linear layers.
        dtype: dtype in which to return the weights.
        max_rank: highest rank that a layer may have.

    Raises:
        ModelError: the files cannot be read, or the adapter does not fit the base or cannot be served.
    """
    folder = Path(path)
    before = _hash_of_config(folder)
    config = read_adapter_config(folder)
    file = folder / WEIGHTS_FILE
    if not file.is_file():
        raise ModelError(
            f"adapter {path!r} has no {WEIGHTS_FILE}; save it by PEFT's save_pretrained, which writes this file"
        )
    try:
        names = _checked_names(file, config, base, max_rank)
        content = _content(file)
        layers = _layers(content, names, config, dtype)
    except ModelError as error:
        raise ModelError(f"adapter {path!r} cannot be served: {error}") from error
    except (OSError, SafetensorError) as error:
        raise ModelError(f"adapter {path!r} has a damaged {WEIGHTS_FILE}: {error}") from error
    if _hash_of_config(folder) != before:
        raise ModelError(f"adapter {path!r} cannot be served: {_CHANGED}")
    rank = max(each.rank for each in layers.values())
    digest = hashlib.sha256(before + hashlib.sha256(content).digest()).hexdigest()[:16]
    return AdapterWeights(layers, rank, digest)


def _hash_of_config(folder: Path) -> bytes:
    """Return a hash of an adapter's config; empty if it cannot be read."""
    try:
        return hashlib.sha256((folder / CONFIG_FILE).read_bytes()).digest() if is_small(folder) else b""
    except OSError:
        return b""


def _checked_names(
    file: Path, config: AdapterConfig, base: BaseLinears, max_rank: int
) -> dict[str, dict[str, str]]:
    """Check the names, dtypes and shapes in the header of a file, which bounds the size of the file.

    Returns:
        For each adapted module, the names of its tensors A and B.
    """
    with safe_open(file, "pt") as opened:
        names = _tensor_names(opened.keys())
        chosen = set(config.targets.chosen([*base.sizes, *base.refused], base.heads, config.time))
        _check_modules(chosen, names, base)
        for module in sorted(chosen):
            _check_tensors(opened, module, names[module], config, base.sizes[module], max_rank)
        return {module: names[module] for module in sorted(chosen)}


def _check_tensors(
    opened: Any,
    module: str,
    names: Mapping[str, str],
    config: AdapterConfig,
    size: tuple[int, int],
    max_rank: int,
) -> None:
    """Check the dtypes and shapes of the matrices of one module."""
    rank = config.rank_of(module)
    if rank > max_rank:
        raise ModelError(f"{module} has rank {rank}; the limit is {max_rank}: raise --max-adapter-rank")
    for name, shape in ((names["A"], [rank, size[0]]), (names["B"], [size[1], rank])):
        stored = opened.get_slice(name)
        if (found := list(stored.get_shape())) != shape:
            raise ModelError(
                f"{name} is {found}; for this base and rank {rank} it must be {shape}: serve it with its own base"
            )
        dtype = torch_dtype(stored.get_dtype())
        if dtype is None or not dtype.is_floating_point:
            raise ModelError(f"{name} is {dtype or stored.get_dtype()}; it must have a floating-point dtype")


def _content(file: Path) -> bytes:
    """Return all bytes of a file whose header has been checked.

    The bytes are read once, and hashed and used from memory. A mapped file could be replaced before its hash
    is computed. If another process truncates a mapped file, reading it ends this process.
    """
    with file.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        return opened.read(size)


def _layers(
    content: bytes, names: Mapping[str, Mapping[str, str]], config: AdapterConfig, dtype: torch.dtype
) -> dict[str, LowRank]:
    tensors = load_tensors(content)
    return {module: _read(tensors, module, of_module, config, dtype) for module, of_module in names.items()}


def _tensor_names(keys: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return, for each module, the names of its tensors A and B in the file."""
    names: dict[str, dict[str, str]] = {}
    for key in keys:
        match = _TENSOR.fullmatch(key)
        if match is None:
            reason = next((text for part, text in _OTHERS.items() if part in key), "llmfw does not know it")
            raise ModelError(f"its tensor {_shown(key)} cannot be used: {reason}")
        names.setdefault(match[1], {})[match[2]] = key
    return names


def _check_modules(chosen: Collection[str], names: Mapping[str, Any], base: BaseLinears) -> None:
    """Raise ModelError unless the file has tensors of exactly the chosen modules, and all can be adapted."""
    unknown = sorted(names.keys() - base.sizes.keys() - base.refused.keys())
    if others := [each for each in unknown if each in base.modules]:
        raise ModelError(f"it adapts {_listed(others)}, which is not a linear layer; merge it into its base")
    if unknown:
        raise ModelError(f"it adapts {_listed(unknown)}, which this base lacks; serve it with its own base")
    if not chosen:
        raise ModelError("its target_modules name no linear layer of this base; serve it with its own base")
    if refused := sorted(each for each in chosen | names.keys() if each in base.refused):
        raise ModelError(f"it adapts {_listed(refused)}: {base.refused[refused[0]]}")
    if surplus := sorted(names.keys() - chosen):
        raise ModelError(
            f"it has tensors of {_listed(surplus)}, which its target_modules do not name; save it again"
        )
    incomplete = (each for each in chosen if names.get(each, {}).keys() != {"A", "B"})
    if missing := sorted(incomplete):
        raise ModelError(f"it lacks tensors of {_listed(missing)}; save it again")


def _read(
    tensors: Mapping[str, torch.Tensor],
    module: str,
    names: Mapping[str, str],
    config: AdapterConfig,
    dtype: torch.dtype,
) -> LowRank:
    """Return the matrices that an adapter adds to one module."""
    rank = config.rank_of(module)
    down, up = (tensors.get(names[each]) for each in ("A", "B"))
    if down is None or up is None or len(down) != rank or up.shape[1:] != (rank,):
        raise ModelError(_CHANGED)
    down, up = _finite(names["A"], down, dtype), _finite(names["B"], up, dtype)
    scaled = (up.T * config.scale_of(module)).contiguous()
    return LowRank(down.to(dtype), _finite(names["B"], scaled, dtype).to(dtype))


def _finite(name: str, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor in float32; raise ModelError unless all values are finite in float32 and in `dtype`."""
    wide = tensor.float()
    if not torch.isfinite(wide).all():
        raise ModelError(f"{name} holds NaN or infinity; train it again")
    if not torch.isfinite(wide.to(dtype)).all():
        raise ModelError(
            f"{name} has values that overflow in {str(dtype).removeprefix('torch.')}; try --dtype bfloat16"
        )
    return wide


def _listed(names: Sequence[str]) -> str:
    rest = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(_shown(name) for name in names[:MAX_NAMES]) + rest


def _shown(name: str) -> str:
    """Return a name from a file for a message. A name may hold line ends and terminals' control characters."""
    return f"{name:.100}" if name.isprintable() else f"{name!r:.100}"
