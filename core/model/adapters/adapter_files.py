"""Reads an adapter that PEFT has saved, and checks that it fits the base model: names, shapes and values."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from llmfw.core.base.errors import ModelError

from .adapter_config import CONFIG_FILE, AdapterConfig, read_adapter_config
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
    config = read_adapter_config(folder)
    file = folder / WEIGHTS_FILE
    if not file.is_file():
        raise ModelError(
            f"adapter {path!r} has no {WEIGHTS_FILE}; save it by PEFT's save_pretrained, which writes this file"
        )
    try:
        layers = _layers(file, config, base, dtype, max_rank)
    except ModelError as error:
        raise ModelError(f"adapter {path!r} cannot be served: {error}") from error
    except (OSError, SafetensorError) as error:
        raise ModelError(f"adapter {path!r} has a damaged {WEIGHTS_FILE}: {error}") from error
    rank = max(each.rank for each in layers.values())
    return AdapterWeights(layers, rank, _digest(folder / CONFIG_FILE, file))


def _layers(
    file: Path, config: AdapterConfig, base: BaseLinears, dtype: torch.dtype, max_rank: int
) -> dict[str, LowRank]:
    with safe_open(file, "pt") as opened:
        names = _tensor_names(opened.keys())
        chosen = set(config.targets.chosen([*base.sizes, *base.refused], base.heads))
        _check_modules(chosen, names, base)
        return {
            module: _read(opened, module, names[module], config, base.sizes[module], dtype, max_rank)
            for module in sorted(chosen)
        }


def _tensor_names(keys: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return, for each module, the names of its tensors A and B in the file."""
    names: dict[str, dict[str, str]] = {}
    for key in keys:
        match = _TENSOR.fullmatch(key)
        if match is None:
            reason = next((text for part, text in _OTHERS.items() if part in key), "llmfw does not know it")
            raise ModelError(f"its tensor {key:.120} cannot be used: {reason}")
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
    opened: Any,
    module: str,
    names: Mapping[str, str],
    config: AdapterConfig,
    size: tuple[int, int],
    dtype: torch.dtype,
    max_rank: int,
) -> LowRank:
    """Read the matrices that an adapter adds to one module; check shapes before values."""
    rank = config.rank_of(module)
    if rank > max_rank:
        raise ModelError(f"{module} has rank {rank}; the limit is {max_rank}: raise --max-adapter-rank")
    for name, shape in ((names["A"], [rank, size[0]]), (names["B"], [size[1], rank])):
        found = list(opened.get_slice(name).get_shape())
        if found != shape:
            raise ModelError(
                f"{name} is {found}; for this base and rank {rank} it must be {shape}: serve it with its own base"
            )
    down, up = (_finite(names[each], opened.get_tensor(names[each]), dtype) for each in ("A", "B"))
    scaled = (up.T * config.scale_of(module)).contiguous()
    return LowRank(_finite(names["A"], down, dtype).to(dtype), _finite(names["B"], scaled, dtype).to(dtype))


def _finite(name: str, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor in float32; raise ModelError unless all values are finite in float32 and in `dtype`.

    A tensor without a floating-point dtype raises ModelError, too.
    """
    if not tensor.is_floating_point():
        raise ModelError(f"{name} is {tensor.dtype}; it must have a floating-point dtype")
    wide = tensor.float()
    if not torch.isfinite(wide).all():
        raise ModelError(f"{name} holds NaN or infinity; train it again")
    if not torch.isfinite(wide.to(dtype)).all():
        raise ModelError(
            f"{name} has values that overflow in {str(dtype).removeprefix('torch.')}; try --dtype bfloat16"
        )
    return wide


def _digest(*files: Path) -> str:
    """Return a hash of files, 16 hexadecimal digits."""
    whole = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            whole.update(hashlib.file_digest(opened, "sha256").digest())
    return whole.hexdigest()[:16]


def _listed(names: Sequence[str]) -> str:
    rest = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(f"{name:.100}" for name in names[:MAX_NAMES]) + rest
