"""A model that carries one sequence's tokens into another is refused, however little it carries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from transformers import AutoModelForCausalLM

from llmfw.core.base.errors import ModelError
from llmfw.core.model.attention.hf_attention import IMPLEMENTATION, register_with_transformers
from llmfw.core.model.probe.isolation import check_cache, check_isolation

from ...engine.generation.tiny_models import SERVABLE, SIZES, STATEFUL

MIXES = "something other than attention mixes the tokens of a row"
DTYPES = (torch.float32, torch.bfloat16)


class Leaky(nn.Module):
    """A model without attention that adds a share of a neighbor's hidden state to each token's.

    Args:
        strength: the share.
        shift: 1: the token before, -1: the one after, 16: the sixteenth before.
    """

    def __init__(self, strength: float, shift: int) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embedding = nn.Embedding(50, 8)
        self.head = nn.Linear(8, 50)
        self.strength, self.shift = strength, shift

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def forward(self, input_ids: torch.Tensor, **kwargs: Any) -> SimpleNamespace:
        hidden = self.embedding(input_ids)
        hidden = hidden + self.strength * hidden.roll(self.shift, dims=1)
        return SimpleNamespace(logits=self.head(hidden))


class Picky(Leaky):
    """A model that does not run on NaN."""

    def forward(self, input_ids: torch.Tensor, **kwargs: Any) -> SimpleNamespace:
        if self.embedding(input_ids).isnan().any():
            raise ValueError("NaN")
        return super().forward(input_ids)


def make(config_class: str, changes: dict[str, Any], dtype: torch.dtype = torch.float32) -> Any:
    register_with_transformers()
    torch.manual_seed(1)
    settings = {name: value for name, value in (SIZES | changes).items() if value is not None}
    config = getattr(transformers, config_class)(**settings)
    return AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=IMPLEMENTATION).eval()


@pytest.mark.parametrize("family", SERVABLE)
@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_and_experts_isolate_sequences(family: str, dtype: torch.dtype) -> None:
    model = make(*SERVABLE[family], dtype=dtype)
    check_cache(model)
    check_isolation(model, SIZES["vocab_size"])


@pytest.mark.parametrize("multiplier", [1.0, 0.005, 1e-4, 1e-9])
@pytest.mark.parametrize("dtype", DTYPES)
def test_falcon_h1_is_refused_at_any_multiplier(multiplier: float, dtype: torch.dtype) -> None:
    """Log probabilities were off by 0.29 where the old tolerance, 5 %, let the model pass."""
    config_class, changes, reason = STATEFUL["falcon-h1"]
    model = make(config_class, changes | {"ssm_out_multiplier": multiplier}, dtype)
    with pytest.raises(ModelError, match=reason):
        check_cache(model)
    with pytest.raises(ModelError, match=MIXES):
        check_isolation(model, SIZES["vocab_size"])


@pytest.mark.parametrize("shift", [1, -1, 3, 16, 30])
@pytest.mark.parametrize("strength", [1.0, 1e-3, 1e-6])
def test_the_smallest_leak_is_detected(shift: int, strength: float) -> None:
    for dtype in DTYPES:
        with pytest.raises(ModelError, match=MIXES):
            check_isolation(Leaky(strength, shift).to(dtype), 50)


def test_models_that_reject_nan_are_compared() -> None:
    check_isolation(Picky(0.0, 1), 50)
    with pytest.raises(ModelError, match=MIXES):
        check_isolation(Picky(1e-3, 1), 50)


def test_damaged_weights_are_not_called_a_leak() -> None:
    model = Leaky(0.0, 1)
    with torch.no_grad():
        model.head.weight[3, 3] = torch.nan
    with pytest.raises(ModelError, match="not finite numbers"):
        check_isolation(model, 50)
