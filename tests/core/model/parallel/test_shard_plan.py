"""A rank's plan cuts what transformers' plan names, and nothing else."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import nn
from transformers import AutoModelForCausalLM

from llmfw.core.base.errors import ModelError
from llmfw.core.model.parallel.shard_plan import Join, ShardPlan

from ...engine.generation.tiny_models import SERVABLE, SIZES


def empty_model(family: str, **changes: object) -> nn.Module:
    config_class, own = SERVABLE[family]
    settings = {name: value for name, value in (SIZES | own | changes).items() if value is not None}
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(getattr(transformers, config_class)(**settings))


def planned(family: str, rank: int = 0, size: int = 2, **changes: object) -> tuple[ShardPlan, nn.Module]:
    model, plan = empty_model(family, **changes), ShardPlan(rank, size)
    plan.cut_parameters(model)
    return plan, model


def shapes(model: nn.Module) -> dict[str, list[int]]:
    return {name: list(parameter.shape) for name, parameter in model.named_parameters()}


def test_llama_keeps_norms_and_halves_the_rest() -> None:
    plan, model = planned("llama")
    whole, kept = shapes(empty_model("llama")), shapes(model)
    layer = "model.layers.0"
    assert kept[f"{layer}.self_attn.q_proj.weight"] == [32, 64]
    assert kept[f"{layer}.self_attn.k_proj.weight"] == [16, 64]
    assert kept[f"{layer}.self_attn.o_proj.weight"] == [64, 32]
    assert kept[f"{layer}.mlp.down_proj.weight"] == [64, 48]
    assert kept["lm_head.weight"] == [150, 64]
    unchanged = {name for name in whole if whole[name] == kept[name]}
    embedding = "model.embed_tokens.weight"  # whole by the plan of an older transformers
    assert all("norm" in name or name == embedding for name in unchanged)
    assert plan.joins["lm_head"] is Join.GATHER
    assert plan.joins[f"{layer}.self_attn.o_proj"] is Join.SUM
    assert f"{layer}.self_attn.q_proj" not in plan.joins


def test_names_of_files_lead_to_the_same_cut() -> None:
    plan, _ = planned("llama", rank=1)
    own = plan.cut_of("model.layers.0.mlp.up_proj.weight")
    assert own is not None
    assert plan.cut_of("layers.0.mlp.up_proj.weight") == own
    assert own.range_of(96) == (48, 96)
    assert plan.cut_of("model.norm.weight") is None


def test_one_expert_is_cut_as_the_stack() -> None:
    plan, model = planned("mixtral")
    experts = "model.layers.0.mlp.experts"
    assert shapes(model)[f"{experts}.gate_up_proj"] == [4, 96, 64]
    assert plan.joins[experts] is Join.SUM_OUTPUT
    for name, dim in {"w1": -2, "w2": -1, "w3": -2}.items():
        cut = plan.cut_of(f"model.layers.0.block_sparse_moe.experts.3.{name}.weight")
        assert cut is not None
        assert cut.dim == dim


def test_phi_3_joins_what_its_layers_slice() -> None:
    """Its plan gathers the merged projections, so attention is not divided."""
    plan, model = planned("phi 3")
    layer = "model.layers.0"
    assert shapes(model)[f"{layer}.self_attn.qkv_proj.weight"] == [64, 64]
    assert plan.joins[f"{layer}.self_attn.qkv_proj"] is Join.GATHER
    assert plan.joins[f"{layer}.mlp.down_proj"] is Join.SPLIT


@pytest.mark.parametrize("vocab_size", [300, 301])
def test_head_and_embedding_of_one_weight_agree(vocab_size: int) -> None:
    plan, model = planned("llama", tie_word_embeddings=True, vocab_size=vocab_size)
    is_cut = vocab_size == 300
    assert list(model.get_input_embeddings().weight.shape) == [150 if is_cut else 301, 64]  # type: ignore[operator]
    assert ("lm_head" in plan.joins) == ("model.embed_tokens" in plan.joins) == is_cut


@pytest.mark.parametrize(
    ("family", "changes", "reason"),
    [
        ("gpt-oss (sinks)", {}, "no tensor-parallel plan for its layers"),
        ("llama", {"hidden_size": 48, "num_attention_heads": 3, "num_key_value_heads": 3}, "3 heads"),
        ("llama", {"intermediate_size": 97}, "gate_proj of .97, 64."),
    ],
)
def test_models_that_cannot_be_cut_are_refused(family: str, changes: dict[str, object], reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        planned(family, **changes)


def test_an_unknown_style_is_refused() -> None:
    model = empty_model("llama")
    model._tp_plan["model.layers.*.mlp.up_proj"] = "sideways"  # type: ignore[operator, index]
    with pytest.raises(ModelError, match=r"style sideways for model\.layers\.0\.mlp\.up_proj"):
        ShardPlan(0, 2).cut_parameters(model)
