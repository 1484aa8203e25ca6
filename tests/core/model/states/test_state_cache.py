"""The cache of one layer that modules with states get."""

from __future__ import annotations

import torch

from llmfw.core.interfaces.state_layer import StateKey
from llmfw.core.model.states.state_cache import StateCache


def test_a_module_finds_its_layer_by_number() -> None:
    """transformers 5.17's modules read the states from `layers[layer_idx]`, those of 5.23 by methods."""
    state = torch.ones(2, 3, 4)
    cache = StateCache({StateKey("conv", 0): state, StateKey("recurrent", 0): state})
    layer = cache.layers[17]
    assert layer.conv_states[0] is cache.get_conv_state(17) is state
    assert layer.recurrent_states[0] is cache.get_recurrent_state(17) is state
    assert not layer.record_past
    assert len(cache.layers) == 1
