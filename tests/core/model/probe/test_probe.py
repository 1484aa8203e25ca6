"""What is refused when a model is probed, and in which words; transformers' own architectures are in test_model_table."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from llmfw.core.base.errors import ConfigError, ModelError
from llmfw.core.model.attention.hf_attention import IMPLEMENTATION, register_with_transformers
from llmfw.core.model.config.layer_types import check_layer_types
from llmfw.core.model.failure.refusal import refusing
from llmfw.core.model.probe.positions import check_positions
from llmfw.core.model.probe.probe import probe

from ....models.tiny_config import VOCAB_SIZE, WINDOW, tiny_config


def build(model_type: str, **changes: Any) -> nn.Module:
    from transformers import AutoModelForCausalLM

    register_with_transformers()
    torch.manual_seed(0)
    config = tiny_config(model_type, **changes)
    return AutoModelForCausalLM.from_config(config, attn_implementation=IMPLEMENTATION).eval()


def windows_of(model: nn.Module, num_layers: int = 4) -> list[int | None]:
    return [layer.sliding_window for layer in probe(model, num_layers, VOCAB_SIZE)]


def test_unused_masks_do_not_matter() -> None:
    """Qwen2-MoE's config turns the window of its sliding mask into 0."""
    assert windows_of(build("qwen2_moe")) == [None] * 4


def test_a_window_only_in_the_mask_counts() -> None:
    """Phi-MoE's layers do not hand the window to attention."""
    assert windows_of(build("phimoe")) == [WINDOW] * 4


def test_layer_windows_are_those_of_their_masks() -> None:
    assert windows_of(build("gemma2")) == [WINDOW, None, WINDOW, None]


def test_contradicting_layer_and_mask_windows_are_refused() -> None:
    model = build("gemma2")
    model.model.layers[2].self_attn.sliding_window = WINDOW + 1
    with pytest.raises(ModelError, match=r"layer 2 names a sliding window of 25, its mask has one of 24"):
        windows_of(model)


@pytest.mark.parametrize(("name", "field"), [("soft cap", "attn_logit_softcapping"), ("scale", "scaling")])
@pytest.mark.parametrize("value", [0.0, -5.0])
def test_nonpositive_score_factors_are_refused(name: str, field: str, value: float) -> None:
    model = build("gemma2")
    setattr(model.model.layers[1].self_attn, field, value)
    with pytest.raises(ModelError, match=f"layer 1 gives attention a {name} of {value}; correct its config"):
        windows_of(model)


@pytest.mark.parametrize(
    ("model_type", "reason"),
    [
        ("bart", "it numbers the tokens of a row itself"),
        ("roberta", "its first token is not at position 0"),
    ],
)
def test_models_with_their_own_positions_are_refused(model_type: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        check_positions(build(model_type))


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "opt"])
def test_unmodified_positions_are_accepted(model_type: str) -> None:
    check_positions(build(model_type))


def test_non_finite_numbers_name_their_cause() -> None:
    """transformers makes the frequencies from the config; they are in no file."""
    model = build("llama")
    model.model.rotary_emb.inv_freq.fill_(torch.nan)
    with pytest.raises(ModelError, match=r"not finite numbers \(model\.rotary_emb\.inv_freq is NaN"):
        check_positions(model)


def test_a_model_s_exception_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    model = build("llama")

    def fail(*args: object) -> None:
        raise AttributeError("'NoneType' object has no attribute 'to'\nand more")

    model.model.layers[1].register_forward_pre_hook(fail)
    with pytest.raises(ModelError) as caught:
        windows_of(model)
    assert str(caught.value) == (
        "LlamaForCausalLM cannot be served: running it on a few tokens failed: "
        "AttributeError: 'NoneType' object has no attribute 'to'; compare its config.json with the original"
    )
    [record] = [record for record in caplog.records if record.exc_info]
    assert record.levelno == logging.DEBUG


@pytest.mark.parametrize("error", [ConfigError("said already"), KeyboardInterrupt()])
def test_our_errors_and_interrupts_pass_unchanged(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, refusing(nn.Identity(), "it"):
        raise error
    assert caught.value is error


def test_compressed_attention_is_refused_by_the_config() -> None:
    with pytest.raises(ModelError, match=r"deepseek_v4 cannot be served: .* compressed tokens or blocks"):
        check_layer_types("deepseek_v4", tiny_config("deepseek_v4"))


@pytest.mark.parametrize(
    "kind", ["compressed_sparse_attention", "heavily_compressed_attention", "minimax_m3_sparse"]
)
def test_each_version_s_sparse_layers_are_refused(kind: str) -> None:
    """transformers 5.17 and 5.23 have other names for the same layers."""
    config = SimpleNamespace(layer_types=["full_attention", kind])
    with pytest.raises(
        ModelError, match=rf"attention to compressed tokens or blocks \({kind}\) in layer 1 of 2"
    ):
        check_layer_types("any", config)


def test_layers_of_single_tokens_are_served() -> None:
    for model_type in ("llama", "gemma3_text", "gpt_oss", "deepseek_v32"):
        check_layer_types(model_type, tiny_config(model_type))
