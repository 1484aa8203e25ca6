"""Models with random weights for tests of module passes: several families, some with unusual modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers
from torch import nn
from transformers import AutoModelForCausalLM

from llmfw.core.model.attention.hf_attention import IMPLEMENTATION, register_with_transformers
from llmfw.core.model.trial.packed import run_in_one_row

VOCAB = 96
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,  # not a power of two
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "max_position_embeddings": 64,
    "rms_norm_eps": 0.05,  # large enough that a pass which ignores it fails
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "llama, other activation": ("LlamaConfig", {"hidden_act": "gelu"}),
    "mistral": ("MistralConfig", {"sliding_window": 4}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {}),
    "gemma2": ("Gemma2Config", {"sliding_window": 4, "query_pre_attn_scalar": 12}),
    "gemma3": ("Gemma3TextConfig", {"sliding_window": 4}),
    "phi3": ("Phi3Config", {}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
}


def build_model(family: str, device: str, dtype: torch.dtype) -> nn.Module:
    """Return a model of a family with random weights and biases and llmfw's attention, in evaluation mode."""
    register_with_transformers()
    config_class, changes = FAMILIES[family]
    config = getattr(transformers, config_class)(**SIZES | changes)
    model: nn.Module = AutoModelForCausalLM.from_config(
        config, dtype=torch.float32, attn_implementation=IMPLEMENTATION
    )
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, device="cpu")
            parameter.copy_(0.15 * noise if parameter.dim() > 1 else parameter + 0.1 * noise)
    return model.to(device, dtype).eval().requires_grad_(False)


def logits_of(model: nn.Module, lengths: Sequence[int], first_token: int = 2) -> torch.Tensor:
    """Return the logits of sequences of these lengths, packed into one row: [T, vocab].

    Args:
        first_token: offset added to all token ids.
    """
    sequences = [[(5 * i + 7 * n + first_token) % VOCAB for i in range(n)] for n in lengths]
    return run_in_one_row(model, sequences)


def parameters_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return a model's weights by name. A tied weight occurs under each of its names."""
    return dict(model.named_parameters(remove_duplicate=False))


class Unusual:
    """Modifies all modules of one type in a Llama model so that passes must not replace them.

    Counts the calls of the modified modules.

    Args:
        model: model of the family "llama".
        kind: one of `unusual_kinds`, such as "MLP with a hook".
    """

    def __init__(self, model: nn.Module, kind: str) -> None:
        self.calls = 0
        ending, change = _KINDS[kind]
        for module in list(model.modules()):
            if type(module).__name__.endswith(ending):
                change(self, module)


def unusual_kinds() -> list[str]:
    """Return all valid values of `Unusual`'s `kind`."""
    return list(_KINDS)


def _hook_output(unusual: Unusual, module: nn.Module) -> None:
    def hook(module: nn.Module, args: object, output: Any) -> Any:
        unusual.calls += 1
        return _changed(output)

    module.register_forward_hook(hook)


def _hook_input(unusual: Unusual, module: nn.Module) -> None:
    def hook(module: nn.Module, args: Any, kwargs: Any) -> Any:
        unusual.calls += 1
        return tuple(_changed(given) for given in args), kwargs

    module.register_forward_pre_hook(hook, with_kwargs=True)


def _subclass(unusual: Unusual, module: nn.Module) -> None:
    kind: Any = type(module)

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        unusual.calls += 1
        return _changed(kind.forward(self, *args, **kwargs))

    module.__class__ = type(kind.__name__, (kind,), {"forward": forward, "__module__": "elsewhere"})


def _override(unusual: Unusual, module: nn.Module) -> None:
    forward = module.forward

    def changed(*args: Any, **kwargs: Any) -> Any:
        unusual.calls += 1
        return _changed(forward(*args, **kwargs))

    module.forward = changed


def _changed(output: Any) -> Any:
    if isinstance(output, tuple):
        return (_changed(output[0]), *output[1:])
    return output.clamp(-1.0, 1.0) * 1.5 if isinstance(output, torch.Tensor) else output


_CHANGES: dict[str, Callable[[Unusual, nn.Module], None]] = {
    "with a hook": _hook_output,
    "with a hook before": _hook_input,
    "of a subclass": _subclass,
    "with a method of its own": _override,
}
_KINDS = {
    f"{ending} {how}": (ending, change)
    for ending in ("RMSNorm", "MLP", "Attention", "DecoderLayer", "Linear", "SiLUActivation")
    for how, change in _CHANGES.items()
}
