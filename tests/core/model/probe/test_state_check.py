"""A module whose state lacks something is refused, however little its output counts in the model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from llmfw.core.base.errors import ModelError
from llmfw.core.model.attention.hf_attention import IMPLEMENTATION, register_with_transformers
from llmfw.core.model.probe.isolation import check_cache, check_isolation
from llmfw.core.model.probe.state_probe import find_states, state_layers
from llmfw.core.model.trial.packed import run_in_one_row

from ....models.checkpoint import randomize
from ....models.tiny_config import VOCAB_SIZE, tiny_config

SMALL = {"ssm_out_multiplier": 0.004}
SEQUENCES = [[5, 9, 3] * 12, [4, 8], [7] * 40]


def make(model_type: str, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    register_with_transformers()
    torch.manual_seed(1)
    config = tiny_config(model_type)
    for name, value in changes.items():
        setattr(config, name, value)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=IMPLEMENTATION)
    randomize(model)
    return model.eval().requires_grad_(False)


def mixers(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if hasattr(module, "conv1d")]


@pytest.mark.parametrize(("model_type", "changes"), [("falcon_h1", SMALL), ("mamba2", {})])
def test_packed_sequences_equal_each_alone(model_type: str, changes: dict[str, Any]) -> None:
    model = make(model_type, **changes)
    find_states(model, VOCAB_SIZE)
    check_isolation(model, VOCAB_SIZE)
    packed = run_in_one_row(model, SEQUENCES)
    alone = torch.cat([run_in_one_row(model, [sequence]) for sequence in SEQUENCES])
    assert float((packed - alone).abs().max() / alone.abs().max()) < 1e-5


@pytest.mark.parametrize("model_type", ["lfm2", "qwen3_5_text", "mamba2", "jamba"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_changes_no_verdict(model_type: str, dtype: torch.dtype) -> None:
    """States that a model stores in 16 bits are compared in 32: else each was refused for their rounding."""
    assert find_states(make(model_type, dtype), VOCAB_SIZE)


def test_a_small_multiplier_hides_no_leak() -> None:
    """Without its states split by sequence, a Falcon-H1 is refused though they hardly count."""
    model = make("falcon_h1", **SMALL)
    with pytest.raises(ModelError, match="something other than attention mixes the tokens"):
        check_isolation(model, VOCAB_SIZE)


@pytest.mark.parametrize("method", ["update_recurrent_state", "update_conv_state"])
def test_a_small_multiplier_hides_no_loss(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Falcon-H1 whose states are kept a thousandth too small is refused."""
    from llmfw.core.model.states.state_cache import StateCache

    kept: Any = getattr(StateCache, method)

    def lossy(self: StateCache, state: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        result: torch.Tensor = kept(self, state, *args, **kwargs)
        for tensor in self.states().values():
            tensor.mul_(0.999)
        return result

    monkeypatch.setattr(StateCache, method, lossy)
    model = make("falcon_h1", **SMALL)
    with pytest.raises(ModelError, match="computes other outputs"):
        find_states(model, VOCAB_SIZE)


def test_modules_that_ignore_states_get_single_tokens() -> None:
    """transformers' module of Mamba 1 starts from zero whenever it gets several tokens."""
    model = make("mamba")
    layers = find_states(model, VOCAB_SIZE)
    assert not any(module.forward.takes_pieces for module in mixers(model))
    assert state_layers(model) == tuple(layers)


def test_found_states_have_their_shapes() -> None:
    model = make("qwen3_5_text")
    layers = find_states(model, VOCAB_SIZE)
    check_cache(model, layers)
    for layer, module in zip(layers, mixers(model), strict=True):
        assert layer.model_index == module.layer_idx
        conv, recurrent = layer.states
        assert conv.shape == (module.conv_dim, module.conv_kernel_size)
        assert recurrent.shape == (module.num_v_heads, module.head_k_dim, module.head_v_dim)


def test_layers_of_experts_alone_keep_no_states() -> None:
    """transformers 5.17 has a cache layer for states for Nemotron-H's layers without attention and Mamba, too."""
    model = make("nemotron_h", time_step_min=1e-9)
    assert {"moe", "mlp"} < set(model.config.layer_types)
    check_cache(model, find_states(model, VOCAB_SIZE))


def test_unknown_states_are_refused() -> None:
    with pytest.raises(ModelError, match="in a way that llmfw does not know"):
        check_cache(make("mamba2"))
