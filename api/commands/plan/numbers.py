"""Reads the sizes that determine a model's memory from config.json and, if there are any, from weight files.

Without weight files, the weights are counted on a model that transformers builds on the meta device. This
happens in a separate process, because it imports torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from llmfw.core.base.errors import ModelError
from llmfw.core.base.setting_types import OptionValue
from llmfw.core.model.files.small_files import read_json

from .choices import DTYPE_BYTES
from .programs import run_program
from .states import MeasuredStates, has_states, measure_states

STORED_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "BF16": 2, "F16": 2}
"""Bytes per element of safetensors' types; all other types count as one byte."""

OTHER_NAMES = {
    "hidden_size": ("n_embd", "d_model"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
    "intermediate_size": ("n_inner", "ffn_dim", "ffn_hidden_size"),
    "max_position_embeddings": ("n_positions", "n_ctx"),
}
"""Maps a field of config.json to its names in older architectures."""

COUNT = """
import sys
from llmfw.core.imports.hf import import_modeling
import_modeling()
import torch, transformers
from llmfw.core.model.config.text_class import class_for_text
transformers.utils.logging.set_verbosity_error()
config = transformers.AutoConfig.from_pretrained(sys.argv[1], trust_remote_code=False)
with torch.device("meta"):
    model = class_for_text(sys.argv[1], config).from_config(config)
print(sum(parameter.numel() for parameter in model.parameters()))
"""

COUNT_QUANTIZED = """
import json, sys
from llmfw.core.imports.hf import import_modeling
import_modeling()
import torch, transformers
from llmfw.core.base.config import EngineConfig
from llmfw.core.model.quantization.chosen_scheme import choose_scheme
from llmfw.core.model.quantization.quantize import planned_size
from llmfw.core.model.config.text_class import class_for_text
from llmfw.core.plugin.plugins import load_plugins
settings = EngineConfig(model=sys.argv[1], quantization=sys.argv[2], options=json.loads(sys.argv[3]))
scheme = choose_scheme(settings, load_plugins().registry)
transformers.utils.logging.set_verbosity_error()
config = transformers.AutoConfig.from_pretrained(sys.argv[1], trust_remote_code=False)
with torch.device("meta"):
    model = class_for_text(sys.argv[1], config).from_config(config)
for dtype in sys.argv[4:]:
    print(*planned_size(model, scheme, getattr(torch, dtype)))
"""


@dataclass(frozen=True, slots=True)
class ModelNumbers:
    """Sizes from a model's config.json.

    Attributes:
        folder: folder of config.json.
        architecture: name of the model's class.
        dtype: dtype of the checkpoint; one of `DTYPE_BYTES`.
        layers, heads, kv_heads, head_dim, v_head_dim, hidden, intermediate, vocab: dimensions of the model.
            The number of KV heads and the head sizes are as stored in the KV cache.
        context: longest sequence, in tokens, that the model supports; None if the config does not give it.
        quantized: whether the weights are stored in a quantized type.
        dequantized: whether a plugin reads that type, and dequantizes the weights when the model is loaded.
        windows: length of a sliding window in tokens → number of layers with such a window.
        notes: further remarks, one sentence per item.
        has_experts: whether the MLP consists of experts.
        reads_images: whether the model has parts that read images.
        states: what the layers store, if some of them keep states; None: all layers have attention alone.
    """

    folder: Path
    architecture: str
    dtype: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    hidden: int
    intermediate: int
    vocab: int
    context: int | None
    quantized: bool
    dequantized: bool
    windows: dict[int, int]
    notes: list[str]
    has_experts: bool = False
    reads_images: bool = False
    states: MeasuredStates | None = None

    @property
    def kv_elements(self) -> int:
        """Number of elements in the keys and values of one token, in all layers."""
        if self.states is not None:
            return self.states.num_kv_elements
        return self.layers * self.kv_heads * (self.head_dim + self.v_head_dim)

    @property
    def adapter_elements(self) -> int:
        """Number of elements of a rank-1 adapter for all linear layers except those of experts."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        values = self.kv_heads * self.v_head_dim
        attention = 3 * self.hidden + queries + keys + values + self.heads * self.v_head_dim + self.hidden
        mlp = 0 if self.has_experts else 3 * (self.hidden + self.intermediate)
        return self.layers * (attention + mlp)


def read_numbers(folder: Path, formats: Collection[str] = ()) -> ModelNumbers:
    """Read config.json.

    Args:
        formats: names of the quantized formats that plugins read.

    Raises:
        ModelError: the file cannot be read, lacks a size, or describes a model that llmfw does not serve.
    """
    path = folder / "config.json"
    if not path.exists():
        raise ModelError(f"{path} cannot be read: No such file or directory")
    whole = read_json(path)
    inner = whole.get("text_config")
    config = whole | inner if isinstance(inner, dict) else whole
    if has_states(config):
        return _numbers_with_states(path, whole, config, formats)
    kinds = [str(kind) for kind in config.get("layer_types") or ()]
    heads, hidden = _number(config, "num_attention_heads", path), _number(config, "hidden_size", path)
    layers = _number(config, "num_hidden_layers", path)
    notes = _notes(whole)
    kv_heads, head_dim, v_head_dim = _heads(config, heads, hidden, notes)
    return ModelNumbers(
        folder=folder,
        architecture=str((whole.get("architectures") or ["unknown"])[0]),
        dtype=_dtype(config, notes),
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        v_head_dim=v_head_dim,
        hidden=hidden,
        intermediate=_intermediate(config, hidden),
        vocab=_number(config, "vocab_size", path),
        context=_find(config, "max_position_embeddings"),
        quantized="quantization_config" in config,
        dequantized=_is_dequantized(config, formats, notes),
        windows=_windows(config, kinds, layers),
        notes=notes,
        has_experts=bool(_find(config, "num_experts_per_tok")),
        reads_images="vision_config" in whole,
    )


def _notes(whole: Mapping[str, Any]) -> list[str]:
    if any(name in whole for name in ("vision_config", "audio_config")):
        return [
            "Its weights include those for images or sound, which are freed after loading if it is served with text alone."
        ]
    return []


def _numbers_with_states(
    path: Path, whole: Mapping[str, Any], config: Mapping[str, Any], formats: Collection[str]
) -> ModelNumbers:
    """Return the numbers of a model whose layers keep states; raise ModelError if they cannot be measured."""
    measured, notes = measure_states(path.parent), _notes(whole)
    heads, kv_heads, head_dim, v_head_dim = measured.widest
    dtype = _dtype(config, notes)
    shape = measured.shapes[dtype]
    return ModelNumbers(
        folder=path.parent,
        architecture=str((whole.get("architectures") or ["unknown"])[0]),
        dtype=dtype,
        layers=len(measured.attention),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        v_head_dim=v_head_dim,
        hidden=shape["hidden_size"],
        intermediate=shape["intermediate_size"],
        vocab=shape["vocab_size"],
        context=_find(config, "max_position_embeddings"),
        quantized="quantization_config" in config,
        dequantized=_is_dequantized(config, formats, notes),
        windows=_windows(config, [str(kind) for kind in config.get("layer_types") or ()], 0),
        notes=notes,
        has_experts=bool(_find(config, "num_experts_per_tok")),
        reads_images="vision_config" in whole,
        states=measured,
    )


def _is_dequantized(config: Mapping[str, Any], formats: Collection[str], notes: list[str]) -> bool:
    settings = config.get("quantization_config")
    method = settings.get("quant_method") if isinstance(settings, dict) else None
    if method not in formats:
        return False
    notes.append(f"Its weights are stored by {method}, and are dequantized when the model is loaded.")
    return True


def _find(config: Mapping[str, Any], name: str) -> int | None:
    found = (config.get(key) for key in (name, *OTHER_NAMES.get(name, ())))
    return next((int(value) for value in found if isinstance(value, int | float) and value > 0), None)


def _number(config: Mapping[str, Any], name: str, path: Path) -> int:
    found = _find(config, name)
    if found is None:
        raise ModelError(f"{path} has no {name}, which a decoder's memory follows from: add it")
    return found


def _heads(config: Mapping[str, Any], heads: int, hidden: int, notes: list[str]) -> tuple[int, int, int]:
    """Return the number of KV heads, the size of a key head and the size of a value head, as stored."""
    if config.get("kv_lora_rank"):
        notes.append("Its latent attention is stored as plain keys and values of every head.")
        head_dim = int(config["qk_nope_head_dim"]) + int(config["qk_rope_head_dim"])
        return heads, head_dim, int(config["v_head_dim"])
    head_dim = _find(config, "head_dim") or hidden // heads
    kv_heads = 1 if config.get("multi_query") else _find(config, "num_key_value_heads") or heads
    return kv_heads, head_dim, head_dim


def _dtype(config: Mapping[str, Any], notes: list[str]) -> str:
    """Return the checkpoint's dtype. A quantized model computes in this dtype, too."""
    found = str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")
    if found in DTYPE_BYTES:
        return found
    notes.append(f"llmfw does not serve in its dtype {found!r}; float32 is assumed.")
    return "float32"


def _intermediate(config: Mapping[str, Any], hidden: int) -> int:
    """Return the MLP's intermediate size; for a mixture of experts, the total of one token's experts."""
    plain = _find(config, "intermediate_size") or 4 * hidden
    experts = config.get("num_experts_per_tok")
    if not isinstance(experts, int) or not experts:
        return plain
    return max(plain, experts * (_find(config, "moe_intermediate_size") or plain))


def _windows(config: Mapping[str, Any], kinds: list[str], layers: int) -> dict[int, int]:
    window = _find(config, "sliding_window")
    if window is None or config.get("use_sliding_window") is False:
        return {}
    count = sum(kind == "sliding_attention" for kind in kinds) if kinds else layers
    return {window: count} if count else {}


def weight_bytes(numbers: ModelNumbers, dtype: str) -> tuple[int, str]:
    """Return the size in bytes of all weights in a dtype, and the source of this number.

    Weights that are stored quantized keep their size, unless a plugin dequantizes them.

    Raises:
        ModelError: weight files cannot be read; or there are none, and the model is quantized, or
            transformers cannot build it.
    """
    folder = numbers.folder
    if numbers.dequantized:
        return _count(folder, COUNT)[0][0] * DTYPE_BYTES[dtype], "config.json"
    if files := sorted(folder.glob("*.safetensors")):
        tensors = [tensor for file in files for tensor in _tensors(file)]
        if numbers.quantized:
            return sum(
                math.prod(shape) * STORED_BYTES.get(kind, 1) for kind, shape in tensors
            ), "weight files"
        return sum(math.prod(shape) for _, shape in tensors) * DTYPE_BYTES[dtype], "weight files"
    index = folder / "model.safetensors.index.json"
    if index.is_file() and (total := _total_size(index)):
        stored = DTYPE_BYTES[dtype] if numbers.quantized else DTYPE_BYTES[numbers.dtype]
        return total * DTYPE_BYTES[dtype] // stored, index.name
    if numbers.quantized:
        raise ModelError(f"{folder} is quantized and has no weight files: its size follows from these alone")
    return _count(folder, COUNT)[0][0] * DTYPE_BYTES[dtype], "config.json"


def quantized_bytes(
    numbers: ModelNumbers, scheme: str, options: Mapping[str, OptionValue] = MappingProxyType({})
) -> dict[str, int]:
    """Return the size of all weights with `--quantization`: dtype of the unquantized weights → bytes.

    Args:
        scheme: name of the quantization scheme.
        options: options of components, "kind.key" → value.

    Raises:
        ModelError: the model is quantized already or cannot be quantized, or transformers cannot build it, or the
            scheme cannot be used.
    """
    if numbers.quantized:
        raise ModelError(f"{numbers.folder} is quantized already: leave out --quantization")
    sizes = _count(numbers.folder, COUNT_QUANTIZED, scheme, json.dumps(dict(options)), *DTYPE_BYTES)
    return {
        name: codes + others * size
        for (name, size), (codes, others) in zip(DTYPE_BYTES.items(), sizes, strict=True)
    }


def _total_size(index: Path) -> int | None:
    try:
        return int(json.loads(index.read_text(encoding="utf-8"))["metadata"]["total_size"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _tensors(path: Path) -> Iterator[tuple[str, list[int]]]:
    """Yield the type and shape of each tensor of a safetensors file. Reads only the header."""
    try:
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        for name, about in header.items():
            if name != "__metadata__":
                yield about["dtype"], about["shape"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ModelError(f"{path} is not a safetensors file: {error}") from error


def _count(folder: Path, program: str, *arguments: str) -> list[list[int]]:
    """Run a program on a model in a separate process; return the integers of each line that it prints."""
    printed = run_program(folder, program, *arguments)
    return [[int(number) for number in line.split()] for line in printed.splitlines()]
