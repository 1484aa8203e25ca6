"""Modules that select tokens are found by their code; one that needs more than earlier tokens' keys is refused."""

from __future__ import annotations

from types import MethodType
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.models.deepseek_v32.modeling_deepseek_v32 import DeepseekV32Indexer

from llmfw.core.base.errors import ModelError
from llmfw.core.model.attention.hf_attention import IMPLEMENTATION, register_with_transformers
from llmfw.core.model.probe.index_probe import find_indexers
from llmfw.core.model.probe.isolation import check_cache, check_isolation
from llmfw.core.model.probe.probe import probe

from ....models.checkpoint import randomize
from ....models.tiny_config import NUM_LAYERS, VOCAB_SIZE, tiny_config

own_forward = DeepseekV32Indexer.forward


def make(model_type: str = "deepseek_v32") -> Any:
    register_with_transformers()
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(
        tiny_config(model_type), dtype=torch.float32, attn_implementation=IMPLEMENTATION
    )
    randomize(model)
    return model.eval().requires_grad_(False)


def test_each_layer_s_index_keys_are_found() -> None:
    model = make()
    sizes = find_indexers(model, VOCAB_SIZE)
    assert sizes == dict.fromkeys(range(NUM_LAYERS), 16)
    check_cache(model, index_sizes=sizes)
    check_isolation(model, VOCAB_SIZE)
    layers = probe(model, NUM_LAYERS, VOCAB_SIZE)
    assert all(layer.selects and layer.index_size == 16 for layer in layers)


def test_models_without_indexers_are_left_alone() -> None:
    assert find_indexers(make("deepseek_v3"), VOCAB_SIZE) == {}


def test_index_keys_that_are_not_kept_are_refused() -> None:
    with pytest.raises(ModelError, match="keep a DynamicIndexedLayer"):
        check_cache(make())


def _select(
    self: Any,
    hidden_states: torch.Tensor,
    q_resid: torch.Tensor,
    position_embeddings: Any,
    attention_mask: torch.Tensor,
    position_ids: Any,
    past_key_values: Any = None,
) -> torch.Tensor:
    """Select tokens as an indexer does, with what it reads and selects changed."""
    given = self.change_hidden(hidden_states)
    selected = own_forward(
        self, given, q_resid, position_embeddings, attention_mask, position_ids, past_key_values
    )
    return self.change_selected(selected)


CHANGES: dict[str, tuple[Any, Any, str]] = {
    "keys of all tokens before": (
        lambda hidden: hidden.cumsum(1),
        lambda selected: selected,
        "selects other tokens if a sequence is computed in pieces",
    ),
    "places in the piece": (
        lambda hidden: hidden,
        lambda selected: (selected + selected.shape[1]) % 7,
        "selects other tokens if a sequence is computed in pieces",
    ),
    "a mask": (
        lambda hidden: hidden,
        lambda selected: selected > 3,
        "selects tokens by something other than their positions",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_other_indexers_are_refused(name: str) -> None:
    model = make()
    change_hidden, change_selected, reason = CHANGES[name]
    for module in model.modules():
        if isinstance(module, DeepseekV32Indexer):
            module.change_hidden, module.change_selected = change_hidden, change_selected
            module.forward = MethodType(_select, module)
    with pytest.raises(ModelError, match=reason):
        find_indexers(model, VOCAB_SIZE)


def test_a_layer_that_hides_its_selection_is_refused() -> None:
    """Its config says that it selects, and it calls attention without positions."""
    model = make("llama")
    model.config.layer_types = ["indexed_attention"] * NUM_LAYERS
    with pytest.raises(ModelError, match="does not say which tokens it selects"):
        probe(model, NUM_LAYERS, VOCAB_SIZE)
