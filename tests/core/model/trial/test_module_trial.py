"""A module that is changed, or computes something else, or hands something else to attention, is found out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaMLP

from llmfw.core.model.attention.hf_attention import IMPLEMENTATION, register_with_transformers
from llmfw.core.model.trial.module_trial import (
    Recording,
    agree,
    attention_input,
    is_of_transformers,
    is_untouched,
    random_input,
    uses_our_attention,
)

HEADS, HEAD_DIM, WIDTH = 4, 8, 32


def config(**changes: Any) -> LlamaConfig:
    sizes = {"hidden_size": WIDTH, "intermediate_size": 48, "num_attention_heads": HEADS}
    return LlamaConfig(**sizes | {"num_key_value_heads": 2, "attn_implementation": IMPLEMENTATION} | changes)


@pytest.fixture
def attention() -> LlamaAttention:
    register_with_transformers()
    torch.manual_seed(0)
    return LlamaAttention(config(), layer_idx=0).eval()


class Derived(LlamaMLP):
    pass


def test_derived_and_torch_classes_are_not_transformers_ones() -> None:
    assert is_of_transformers(LlamaMLP(config()))
    assert not is_of_transformers(Derived(config()))
    assert not is_of_transformers(nn.Linear(2, 2))


@pytest.mark.parametrize(
    "change",
    [
        lambda module: module.register_forward_hook(lambda *_: None),
        lambda module: module.register_forward_pre_hook(lambda *_: None),
        lambda module: setattr(module, "forward", lambda x: x),
    ],
)
def test_hooked_or_patched_modules_are_not_untouched(change: Callable[[nn.Module], Any]) -> None:
    module = LlamaMLP(config())
    assert is_untouched(module)
    change(module)
    assert not is_untouched(module)
    assert not is_of_transformers(module)


def test_the_trial_records_attention_inputs(attention: LlamaAttention) -> None:
    assert uses_our_attention(attention)
    given, step = attention_input(WIDTH, HEAD_DIM, attention.o_proj.weight), Recording()
    attention(**given, llmfw_step=step)
    assert step.given is not None
    assert [tensor.shape[1] for tensor in step.given] == [HEADS, 2, 2]
    assert step.keywords["scaling"] == HEAD_DIM**-0.5


@torch.inference_mode()
def test_changed_attention_inputs_are_detected(
    attention: LlamaAttention,
) -> None:
    """The output is the same, so only the recorded inputs show it."""
    given = attention_input(WIDTH, HEAD_DIM, attention.o_proj.weight)
    steps = [Recording(), Recording(), Recording()]
    outputs = [attention(**given, llmfw_step=steps[0])[0], attention(**given, llmfw_step=steps[1])[0]]
    attention.q_proj.weight.mul_(1.01)  # in `Recording` each token sees its own value only
    outputs.append(attention(**given, llmfw_step=steps[2])[0])
    assert agree(outputs[0], outputs[1])
    assert agree(outputs[0], outputs[2])
    assert steps[0].has_the_same(steps[1])
    assert not steps[0].has_the_same(steps[2])
    assert not steps[0].has_the_same(Recording())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_results_agree_up_to_rounding(dtype: torch.dtype) -> None:
    one = random_input(5, 64, like=torch.zeros(1, dtype=dtype))
    assert agree(one, one.double().mul(1 + torch.finfo(dtype).eps / 4).to(dtype))
    for other in (one * 1.1, one[:4], one.double(), (one,)):
        assert not agree(other, one)
