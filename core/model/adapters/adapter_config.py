"""Reads PEFT's adapter_config.json. Refuses adapters that need other computations than LoRA's.

An unknown field could change the results of an adapter. So fields that are unknown here must be unset.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec

from llmfw.core.base.errors import ModelError

from ..files.small_files import read_json
from .module_patterns import MatchTime, ModulePatterns, matching_pattern

CONFIG_FILE = "adapter_config.json"
MAX_CONFIG_BYTES = 2**20
Rank = Annotated[int, msgspec.Meta(ge=1, le=2**16)]

_WITHOUT_EFFECT = frozenset(
    {
        "auto_mapping", "base_model_name_or_path", "buffer_size", "corda_config", "direction", "dirichlet_prior",
        "eva_config", "fan_in_fan_out", "inference_mode", "kl_loss_weight", "loftq_config", "lora_dropout",
        "lora_ga_config", "megatron_core", "num_samples", "peft_version", "qalora_group_size", "revision",
        "runtime_config", "sample_scaler", "scale", "stable_gamma", "use_entropy", "velora_config",
    }
)  # fmt: skip
"""Fields that affect only training, or only fields that are refused."""

_REFUSED = {
    "use_dora": "it is a DoRA adapter, which scales the base's own weights",
    "use_qalora": "it is a QALoRA adapter",
    "use_bdlora": "it is a block-diagonal adapter (use_bdlora)",
    "modules_to_save": "it brings whole modules of its own",
    "trainable_token_indices": "it brings token embeddings of its own",
    "target_parameters": "it adapts parameters that are not those of a linear layer, such as experts",
    "lora_bias": "its low-rank layers have a bias",
    "layer_replication": "it repeats layers of the base model",
    "alora_invocation_tokens": "it is an activated LoRA, which begins in the middle of a prompt",
    "megatron_config": "it is for Megatron's layers",
    "monteclora_config": "it is a MonteCLoRA adapter",
    "arrow_config": "it chooses among other adapters (arrow_config)",
    "kasa_config": "it is a KaSA adapter, which changes the base's weights",
    "ensure_weight_tying": "it ties weights of its own (ensure_weight_tying)",
}
"""Field → description of an adapter that sets the field."""

_CHANGE_THE_BASE = ("pissa", "olora", "loftq", "corda", "lora_ga")
"""Values of `init_lora_weights`, or their prefixes, for which PEFT first changes the base's weights."""

_READ = frozenset(
    {
        "peft_type", "task_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "target_modules",
        "exclude_modules", "layers_to_transform", "layers_pattern", "bias", "init_lora_weights",
    }
)  # fmt: skip


class _Fields(msgspec.Struct, kw_only=True):
    """Fields of adapter_config.json that are read, with PEFT's defaults."""

    peft_type: str | None = None
    task_type: str | None = None
    r: Rank = 8
    lora_alpha: float = 8
    use_rslora: bool = False
    rank_pattern: dict[str, Rank] | None = None
    alpha_pattern: dict[str, float] | None = None
    target_modules: str | list[str] | None = None
    exclude_modules: str | list[str] | None = None
    layers_to_transform: int | list[int] | None = None
    layers_pattern: str | list[str] | None = None
    bias: str = "none"
    init_lora_weights: bool | str | None = True


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """The settings in an adapter's config.

    Attributes:
        targets: the modules that the adapter adapts.
        rank: rank of modules without a rank of their own.
        alpha: alpha of modules without an alpha of their own.
        has_root_scale: whether the scale is alpha / sqrt(rank), as in rsLoRA; if not, alpha / rank.
        ranks, alphas: pattern of module names → the rank, or the alpha, of these modules.
        time: the time for matching all these patterns.
    """

    targets: ModulePatterns
    rank: int
    alpha: float
    has_root_scale: bool = False
    ranks: Mapping[str, int] = field(default_factory=dict)
    alphas: Mapping[str, float] = field(default_factory=dict)
    time: MatchTime = field(default_factory=MatchTime, compare=False)

    def rank_of(self, module: str) -> int:
        """Return the rank of a module's low-rank layers."""
        key = matching_pattern(self.ranks, module, self.time)
        return self.rank if key is None else self.ranks[key]

    def scale_of(self, module: str) -> float:
        """Return the factor for the output of a module's low-rank layers."""
        key, rank = matching_pattern(self.alphas, module, self.time), self.rank_of(module)
        alpha = self.alpha if key is None else self.alphas[key]
        return alpha / (math.sqrt(rank) if self.has_root_scale else rank)


def read_adapter_config(folder: Path) -> AdapterConfig:
    """Read an adapter's config.

    Raises:
        ModelError: there is no such file, it cannot be read, or the adapter is of a kind that is not served.
    """
    if not is_small(folder):
        raise ModelError(
            f"adapter {str(folder)!r} has a {CONFIG_FILE} of more than {MAX_CONFIG_BYTES} bytes; save it again"
        )
    found = read_json(folder / CONFIG_FILE)
    if not found:
        raise ModelError(f"adapter {str(folder)!r} has no {CONFIG_FILE}; give a folder that PEFT has saved")
    try:
        return config_of(found)
    except ModelError as error:
        raise ModelError(f"adapter {str(folder)!r} cannot be served: {error}") from error


def is_small(folder: Path) -> bool:
    """Return whether an adapter's config, if it is a file, has at most `MAX_CONFIG_BYTES`."""
    file = folder / CONFIG_FILE
    return not file.is_file() or file.stat().st_size <= MAX_CONFIG_BYTES


def config_of(found: Mapping[str, Any]) -> AdapterConfig:
    """Build the config from the fields of an adapter_config.json.

    Raises:
        ModelError: the adapter is of a kind that is not served; the message is the reason.
    """
    if found.get("peft_type") != "LORA":
        raise ModelError(f"its peft_type is {found.get('peft_type')!r:.60}; it must be LORA")
    for name, value in found.items():
        if name in _REFUSED and value:
            raise ModelError(f"{_REFUSED[name]}; merge it into its base (peft: merge_and_unload)")
        if value and name not in _READ and name not in _WITHOUT_EFFECT and name not in _REFUSED:
            raise ModelError(
                f"its field {name!r:.60} is {value!r:.60}, which llmfw does not know; merge it into its base (peft: "
                "merge_and_unload)"
            )
    try:
        fields = msgspec.convert(dict(found), _Fields)
    except msgspec.ValidationError as error:
        raise ModelError(f"{CONFIG_FILE}: {error}") from error
    _check(fields)
    return AdapterConfig(
        targets=ModulePatterns(
            fields.target_modules or (),
            fields.exclude_modules or (),
            fields.layers_to_transform,
            fields.layers_pattern or (),
        ),
        rank=fields.r,
        alpha=fields.lora_alpha,
        has_root_scale=fields.use_rslora,
        ranks=fields.rank_pattern or {},
        alphas=fields.alpha_pattern or {},
    )


def _check(fields: _Fields) -> None:
    if fields.task_type not in (None, "CAUSAL_LM"):
        raise ModelError(f"its task_type is {fields.task_type!r:.60}; it must be CAUSAL_LM")
    if fields.bias != "none":
        raise ModelError(f"its bias is {fields.bias!r:.60}; only adapters without biases (none) are served")
    if not fields.target_modules:
        raise ModelError("it names no target_modules; save it again")
    initial = fields.init_lora_weights
    if isinstance(initial, str) and initial.lower().startswith(_CHANGE_THE_BASE):
        raise ModelError(
            f"its init_lora_weights is {initial!r:.60}, with which the base's weights were changed before training; save "
            "it as a plain LoRA (peft: path_initial_model_for_weight_conversion)"
        )
    numbers = [fields.lora_alpha, *(fields.alpha_pattern or {}).values()]
    if not all(map(math.isfinite, numbers)):
        raise ModelError(f"its alpha is {fields.lora_alpha}; it must be a finite number")
