"""The weight loader `gguf`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmfw.core import ModelError, StoredTensor, WeightLoader

from .convert_metadata import convert
from .experts import expert_tensors, num_experts
from .header import Header, TensorEntry
from .parts import part_files
from .served_files import architecture_of, checked_header

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

SUFFIX = ".gguf"
PLAIN = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""Types of numbers that are not quantized, and torch's names of them."""
NOT_WEIGHTS = ("rope_freqs.weight",)
"""Tensors that are part of the config."""


class GGUFLoader(WeightLoader):
    """Reads a GGUF file, or all parts of a split one. Dequantizes a quantized weight to float32 when the weight is read.

    Weights have the same names and form as in transformers' checkpoints. So the loader undoes two changes
    of llama.cpp: it restores the order of the rows of Llama's queries and keys, and subtracts 1 from Gemma's
    norms.
    """

    def __init__(self, folder: Path, options: WeightLoader.Options) -> None:
        super().__init__(folder, options)
        self._header: Header | None = None
        self._sources: dict[str, TensorEntry] = {}

    @classmethod
    def recognizes(cls, folder: Path) -> bool:
        return any(folder.glob(f"*{SUFFIX}"))

    @classmethod
    def describe(cls, file: Path, folder: Path) -> None:
        checked_header(file)
        convert(file, folder)
        for part in part_files(file)[1:]:
            (folder / part.name).symlink_to(part.resolve())

    def files(self) -> list[str]:
        return [part.name for part in part_files(self._file())]

    def tensors(self) -> Iterator[tuple[str, StoredTensor]]:
        file = self._file()
        self._header = checked_header(file)
        self._sources = _renamed(file, self.folder, self._header)
        _log_sizes(file, self._header)
        for name, entry in self._sources.items():
            yield name, StoredTensor(_dtype(entry), entry.shape)

    def read(self, name: str) -> torch.Tensor:
        import torch

        entry = self._sources[name]
        values = _values(entry)
        processed = self._processor().process(weights=values.float().numpy(), name=entry.name).weights
        return torch.from_numpy(processed.copy()).to(values.dtype)

    def _processor(self) -> Any:
        from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor

        assert self._header is not None  # `tensors` is called first
        metadata, prefix = self._header.metadata, architecture_of(self._header)
        heads = metadata[f"{prefix}.attention.head_count"]
        config = {
            "num_attention_heads": heads,
            "num_key_value_heads": metadata.get(f"{prefix}.attention.head_count_kv", heads),
        }
        return TENSOR_PROCESSORS.get(prefix, TensorProcessor)(config=config)

    def _file(self) -> Path:
        found = sorted(self.folder.glob(f"*{SUFFIX}"))
        if not found or found != part_files(found[0]):
            raise ModelError(
                f"{self.folder} has {len(found)} files *{SUFFIX}; give the one to serve by its own path"
            )
        return found[0]


def _dtype(entry: TensorEntry) -> str:
    """Return the dtype in which a tensor is read."""
    from gguf import GGMLQuantizationType

    return PLAIN.get(GGMLQuantizationType(entry.kind).name, "float32")


def _values(entry: TensorEntry) -> torch.Tensor:
    """Read a tensor from its file, and dequantize it."""
    import numpy as np
    import torch
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

    kind = GGMLQuantizationType(entry.kind)
    data = np.fromfile(entry.file, np.uint8, entry.num_bytes, offset=entry.offset)
    if len(data) != entry.num_bytes:
        raise ModelError(f"{entry.file} ends within {entry.name}; download it again")
    if kind.name in PLAIN:
        return torch.from_numpy(data).view(getattr(torch, PLAIN[kind.name])).reshape(entry.shape)
    block, block_bytes = GGML_QUANT_SIZES[kind]
    rows = data.reshape(*entry.shape[:-1], entry.shape[-1] // block * block_bytes)
    with np.errstate(all="ignore"):  # a scale may be infinite or NaN; llmfw refuses it later
        return torch.from_numpy(dequantize(rows, kind))


def _renamed(file: Path, folder: Path, header: Header) -> dict[str, TensorEntry]:
    """Return the tensors by transformers' names.

    Raises:
        ModelError: the model of the config has no weight for one of the tensors.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import TensorProcessor, get_gguf_hf_weights_map

    config = AutoConfig.from_pretrained(str(folder))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    architecture, kind = architecture_of(header), config.model_type
    experts = num_experts(architecture, header)
    given = architecture if experts else None  # transformers would look for Mixtral's own architecture
    names: Mapping[str, str] = get_gguf_hf_weights_map(model, TensorProcessor(), model_type=given)
    found: dict[str, TensorEntry] = {}
    for name, entry in header.tensors.items():
        if name in NOT_WEIGHTS:
            continue
        if of_experts := expert_tensors(file, entry, kind, experts):
            found |= of_experts
            continue
        if name not in names:
            raise ModelError(
                f"{file} has the tensor {name!r:.80}, which {type(model).__name__} of transformers has not; take the safetensors checkpoint"
            )
        found[names[name]] = entry
    return found


def _log_sizes(file: Path, header: Header) -> None:
    from math import prod

    stored = sum(entry.num_bytes for entry in header.tensors.values())
    numbers = sum(prod(entry.shape) for entry in header.tensors.values())
    logger.info(
        "%s: %.2f GiB are dequantized to %.2f GiB in 16 bits per weight",
        file.name,
        stored / 2**30,
        2 * numbers / 2**30,
    )
