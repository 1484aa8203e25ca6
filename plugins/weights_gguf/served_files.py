"""Decides which GGUF files are served: which architectures, number types and kinds of files.

All others are refused, because their results have not been compared with transformers.
"""

from __future__ import annotations

from pathlib import Path

from llmfw.core import ModelError

from .experts import MIXTURES, num_experts
from .header import Header
from .model_numbers import check_numbers
from .parts import read_parts

ARCHITECTURES = ("gemma2", "gemma3", "llama", "phi3", "qwen2", "qwen3", "qwen3moe")
TYPES = (
    *("F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q3_K", "Q2_K"),
    *("Q5_1", "Q5_0", "Q4_1", "Q4_0", "IQ4_NL", "IQ4_XS", "IQ3_S", "IQ3_XXS"),
    *("IQ2_S", "IQ2_XS", "IQ2_XXS"),
)


def checked_header(file: Path) -> Header:
    """Return the header of a file that llmfw serves, with the tensors of all its parts.

    Raises:
        ModelError: the file is damaged, or is an image projector or an adapter. Or a part of a split model is
            missing. Or llmfw does not serve the file's architecture, number type or rotary scaling.
    """
    if "mmproj" in file.name.lower():
        raise _refused(file, "is the projector of a model that reads images; give the model's own file")
    header = read_parts(file)
    _check_kind(file, header)
    _check_types(file, header)
    _check_rotary(file, header)
    check_numbers(file, architecture_of(header), header.metadata)
    return header


def architecture_of(header: Header) -> str:
    """Return llama.cpp's name of the architecture."""
    return str(header.metadata.get("general.architecture"))


def _check_kind(file: Path, header: Header) -> None:
    metadata = header.metadata
    architecture = architecture_of(header)
    if metadata.get("general.type", "model") != "model" or architecture == "clip":
        what = f"{metadata.get('general.type', 'model')} of architecture {architecture}"
        raise _refused(file, f"holds a {what:.80}; give a file that holds a model")
    if architecture not in ARCHITECTURES:
        raise _refused(
            file,
            f"has the architecture {architecture!r:.60}; GGUF files of {', '.join(ARCHITECTURES)} are served; for others take the "
            "safetensors checkpoint",
        )
    experts = num_experts(architecture, header)
    if experts < 0 or (experts and architecture not in MIXTURES):
        raise _refused(
            file,
            f"holds a mixture of experts of {architecture}; those of {', '.join(MIXTURES)} are read from GGUF; take the "
            "safetensors checkpoint",
        )
    if not experts and architecture == "qwen3moe":
        raise _refused(file, "has no qwen3moe.expert_count; download it again")


def _check_types(file: Path, header: Header) -> None:
    from gguf import GGMLQuantizationType

    for tensor in header.tensors.values():
        name = GGMLQuantizationType(tensor.kind).name
        if name not in TYPES:
            raise _refused(
                file,
                f"has {tensor.name} in {name}; {', '.join(TYPES)} are read; take another quantization of the model",
            )


def _check_rotary(file: Path, header: Header) -> None:
    """Refuse rotary factors, which transformers does not read from GGUF.

    Without them, long texts would be garbled.
    """
    for name in header.tensors:
        if name.startswith("rope_factors"):
            raise _refused(
                file,
                f"has {name}, factors of a rotary embedding, which are not read from GGUF; take the safetensors checkpoint",
            )


def _refused(file: Path, reason: str) -> ModelError:
    return ModelError(f"{file} {reason}")
