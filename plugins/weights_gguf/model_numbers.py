"""Decides which numbers in a GGUF file's metadata are accepted.

llama.cpp reads many numbers that config.json of the served architectures cannot express. A number that is not
listed here might change the results, so it is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llmfw.core import ModelError

SIZES = frozenset(
    {
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.layer_norm_rms_epsilon",
        "attention.sliding_window",
        "attention.value_length",
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "rope.dimension_count",
        "rope.freq_base",
        "vocab_size",
    }
)
"""Numbers that transformers or `config_of` takes over, or refuses."""

CAPS_OF = {
    "gemma2": frozenset({"attn_logit_softcapping", "final_logit_softcapping"}),
    "gemma3": frozenset({"final_logit_softcapping"}),
}
"""Numbers that `config_of` takes over for Gemma. Other served architectures have no soft caps."""

EXPERTS_OF = {
    "llama": frozenset({"expert_count", "expert_used_count"}),
    "qwen3moe": frozenset({"expert_count", "expert_used_count", "expert_feed_forward_length"}),
}
"""Numbers that `expert_config` takes over."""

IRRELEVANT = frozenset(
    {
        "attention.layer_norm_epsilon",  # for layers that subtract a mean, which these models lack
        "expert_used_count",  # in files without experts
        "mm.tokens_per_image",
        "pooling_type",  # for embeddings by llama.cpp
        "rope.scaling.finetuned",
        "rope.scaling.original_context_length",  # used only by scaling, which is refused
        "tensor_data_layout",
        "use_parallel_residual",  # of GPT-NeoX
    }
)
"""Numbers that change no result of a served architecture."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    "rope.scaling.attn_factor": (0, 1),
    "rope.scaling.factor": (0, 1),
    "rope.scale_linear": (0, 1),  # an older name of rope.scaling.factor
    "rope.scaling.type": ("none", "linear"),  # linear is llama.cpp's default, and scales by the factor
}
"""Numbers that may change results → values that do not. For all other numbers: 0, False and ""."""

_EXPERTS = {
    "expert_gating_func": (0, 1),  # softmax, which is the default
    "expert_weights_norm": (0, 1, None),  # llama.cpp always norms the weights of these architectures
    "expert_weights_scale": (0, 1),
}
NEUTRAL_OF: dict[str, dict[str, tuple[Any, ...]]] = {
    "llama": _EXPERTS,
    "qwen3moe": _EXPERTS,
    "gemma3": {
        "attention.sliding_window_pattern": (6,),
        "rope.freq_base_swa": (10_000,),
    },
}
"""Architecture → values that transformers assumes for all models of the architecture."""


def check_numbers(file: Path, architecture: str, metadata: dict[str, Any]) -> None:
    """Refuse numbers that change the model's results, but that llmfw does not use.

    Raises:
        ModelError: the metadata has such a number; the message has its name and value.
    """
    prefix = f"{architecture}."
    own = CAPS_OF.get(architecture, frozenset()) | EXPERTS_OF.get(architecture, frozenset())
    read = SIZES | IRRELEVANT | own
    neutral = NEUTRAL | NEUTRAL_OF.get(architecture, {})
    is_scaled = metadata.get(f"{prefix}rope.scaling.type") != "none"
    for key, value in metadata.items():
        name = key.removeprefix(prefix)
        is_read = name in read and not isinstance(value, list)  # a list has a number for each layer
        if name == key or is_read or value in neutral.get(name, (None, 0, "")):
            continue
        if name in ("rope.scaling.factor", "rope.scale_linear") and not is_scaled:
            continue
        raise ModelError(
            f"{file} has the {name:.80} {value!r:.40}, which is not read from GGUF for {architecture}; take the safetensors "
            "checkpoint"
        )
