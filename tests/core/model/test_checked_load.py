"""Weights that do not fit the config, adapters and unknown quantization are refused with names and a remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ModelError
from llmfw.core.model.files.checkpoint import StoredTensor, missing_scales
from llmfw.core.model.models import load_model
from llmfw.core.model.trial.packed import packed_logits
from llmfw.core.plugin.registry import Registry

from ..engine.generation.tiny_models import SERVABLE, save_random_model
from .quantization.schemes import bundled

DEEPSEEK = SERVABLE["deepseek v3 (value heads of another size)"]
GLM: tuple[str, dict[str, Any]] = (
    "Glm4MoeConfig",
    {
        "num_hidden_layers": 46,
        "first_k_dense_replace": 46,
        "hidden_size": 16,
        "intermediate_size": 16,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 8,
    },
)
"""As many layers as GLM-4.5-Air, of which transformers knows that number 46 is a head for another token."""


def load(folder: Path, **settings: Any) -> torch.nn.Module:
    settings = {"module_passes": "none", "dtype": "float32"} | settings
    config = EngineConfig(model=str(folder), device="cpu", **settings)
    return load_model(config, torch.device("cpu"), Registry(bundled())).module


def refusal(folder: Path, **settings: Any) -> str:
    with pytest.raises(ModelError) as caught:
        load(folder, **settings)
    text = str(caught.value)
    assert "\n" not in text
    return text


def change(folder: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Path:
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file)
    return folder


def configure(folder: Path, **changes: Any) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return folder


def add_layer(number: int, source: int, extra: str | None) -> Callable[[Any], Any]:
    """Return a change that copies a layer to another number, with a tensor of its own."""

    def copied(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        old, new = f"model.layers.{source}.", f"model.layers.{number}."
        layer = {n.replace(old, new): t.clone() for n, t in tensors.items() if n.startswith(old)}
        return tensors | layer | ({f"{new}{extra}": torch.ones(4)} if extra else {})

    return copied


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return save_random_model(tmp_path, *SERVABLE["llama"])


def test_at_most_ten_names_are_listed(llama: Path) -> None:
    text = refusal(change(llama, lambda t: t | {f"extra_{n}.weight": torch.ones(1) for n in range(16)}))
    assert text.count("extra_") == 10
    assert text.endswith(" and 6 more")


def test_tensors_of_all_layers_are_listed_once(llama: Path) -> None:
    text = refusal(change(llama, lambda t: {n: x for n, x in t.items() if "down_proj" not in n}))
    assert text.endswith("missing: model.layers.0.mlp.down_proj.weight (and in 2 other layers)")


def test_both_shapes_are_named(llama: Path) -> None:
    text = refusal(configure(llama, intermediate_size=80))
    assert "model.layers.0.mlp.down_proj.weight is [64, 96], the config says [64, 80]" in text


@pytest.mark.parametrize("count", [2, 4])
def test_both_numbers_of_layers_are_named(llama: Path, count: int) -> None:
    assert f"the config has {count} layers, the files 3" in refusal(configure(llama, num_hidden_layers=count))


@pytest.mark.parametrize("is_sharded", [False, True])
def test_pickled_files_are_checked_too(llama: Path, is_sharded: bool) -> None:
    tensors = load_file(llama / "model.safetensors")
    expected = packed_logits(load(llama), 300)
    (llama / "model.safetensors").unlink()
    shards = [dict(list(tensors.items())[i::2]) for i in (0, 1)] if is_sharded else [tensors]
    names = [f"pytorch_model{f'-{i}' if is_sharded else ''}.bin" for i in range(len(shards))]
    for name, shard in zip(names, shards, strict=True):
        torch.save(shard, llama / name)
    if is_sharded:
        placed = {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
        (llama / "pytorch_model.bin.index.json").write_text(
            json.dumps({"metadata": {}, "weight_map": placed})
        )
    assert torch.equal(packed_logits(load(llama), 300), expected)
    shards[0]["model.norm.weight"] = torch.ones(64)
    shards[0]["model.layers.1.extra"] = torch.ones(64)
    torch.save(shards[0], llama / names[0])
    assert "surplus: model.layers.1.extra" in refusal(llama)


def test_a_stale_pickle_beside_safetensors_is_unread(llama: Path) -> None:
    expected = packed_logits(load(llama), 300)
    tensors = load_file(llama / "model.safetensors")
    torch.save({name: tensor + 1 for name, tensor in tensors.items()}, llama / "pytorch_model.bin")
    assert torch.equal(packed_logits(load(llama), 300), expected)


@pytest.mark.parametrize(("family", "number"), [(DEEPSEEK, 3), (DEEPSEEK, 61), (GLM, 46)])
def test_mtp_heads_are_ignored(family: tuple[str, dict[str, Any]], number: int, tmp_path: Path) -> None:
    """They are numbered as another layer: transformers hides the usual numbers, other numbers are told by their parts."""
    folder = save_random_model(tmp_path, *family)
    expected = packed_logits(load(folder), 300)
    change(folder, add_layer(number, 1, "eh_proj.weight"))
    assert torch.equal(packed_logits(load(folder), 300), expected)


@pytest.mark.parametrize(("family", "number"), [(DEEPSEEK, 3), (DEEPSEEK, 61), (GLM, 46)])
def test_layers_hidden_by_transformers_are_refused(
    family: tuple[str, dict[str, Any]], number: int, tmp_path: Path
) -> None:
    folder = change(save_random_model(tmp_path, *family), add_layer(number, 1, None))
    assert f"surplus: model.layers.{number}." in refusal(folder)


def test_experts_out_of_sequence_are_refused(tmp_path: Path) -> None:
    """transformers stacks experts in the order of their numbers, so that 0, 2, 3, 4 would become 0, 1, 2, 3."""
    folder = save_random_model(tmp_path, *SERVABLE["qwen3-moe"])
    change(
        folder,
        lambda t: {n.replace("layers.1.mlp.experts.1.", "layers.1.mlp.experts.4."): x for n, x in t.items()},
    )
    assert "missing: model.layers.1.mlp.experts.1.down_proj.weight" in refusal(folder)


def test_an_expert_of_another_shape_is_named(tmp_path: Path) -> None:
    folder = save_random_model(tmp_path, *SERVABLE["qwen3-moe"])
    name = "model.layers.1.mlp.experts.2.down_proj.weight"
    change(folder, lambda t: t | {name: t[name][1:].contiguous()})
    assert f"experts differ in shape: {name} is [63, 32], another expert's [64, 32]" in refusal(folder)


def test_quantization_on_load_is_checked_too(llama: Path) -> None:
    load(llama, quantization="int8")
    change(llama, lambda t: {n: x for n, x in t.items() if n != "model.norm.weight"})
    assert "missing: model.norm.weight" in refusal(llama, quantization="int8")


@pytest.mark.parametrize("load_format", ["auto", "dummy"])
def test_an_unknown_quantization_is_named(llama: Path, load_format: str) -> None:
    configure(llama, quantization_config={"quant_method": "exl3", "bits": 4.0})
    text = refusal(llama, load_format=load_format)
    assert "quantized by quant_method 'exl3', which transformers does not know" in text
    configure(llama, quantization_config={"bits": 4.0})
    assert "quant_method None" in refusal(llama)


def test_codes_without_scales_are_detected() -> None:
    """transformers would compute with the codes themselves, or with a scale from uninitialized memory."""
    codes, scale = StoredTensor("F8_E4M3", (128, 128)), StoredTensor("F32", (1, 1))
    module = "model.layers.{}.self_attn.k_proj.weight{}"
    tensors = {module.format(i, ""): codes for i in range(3)}
    assert missing_scales(tensors) == [module.format(i, "_scale") for i in range(3)]
    tensors |= {module.format(i, "_scale_inv"): scale for i in range(3)}
    tensors |= {"lm_head.weight": StoredTensor("BF16", (128, 128))}
    assert missing_scales(tensors) == []
    del tensors[module.format(1, "_scale_inv")]
    assert missing_scales(tensors) == [module.format(1, "_scale_inv")]


def test_codes_in_place_of_weights_are_refused(llama: Path) -> None:
    change(
        llama,
        lambda t: {n.replace("_proj.weight", "_proj.trellis"): x.to(torch.int16) for n, x in t.items()},
    )
    text = refusal(llama)
    assert "missing: model.layers.0.mlp.down_proj.weight" in text
    assert "surplus: model.layers.0.mlp.down_proj.trellis" in text


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"])
@pytest.mark.parametrize("has_peft", [True, False])
def test_an_adapter_in_addition_to_weights_is_refused(
    llama: Path, name: str, has_peft: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers.models.auto.auto_factory, "is_peft_available", lambda: has_peft)
    (llama / name).write_text("{}")
    text = refusal(llama)
    assert f"has an adapter ({name}) in addition to its weights" in text
    assert "merge_and_unload" in text
    assert "remove its files" in text


def test_an_adapter_alone_is_refused_with_its_base(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "some/base"}')
    (tmp_path / "adapter_model.safetensors").write_text("")
    text = refusal(tmp_path)
    assert "is an adapter (adapter_config.json, adapter_model.safetensors) without a model" in text
    assert "serve its base model (some/base) with --adapter NAME=PATH" in text


@pytest.mark.parametrize(
    "error",
    [RuntimeError("a\nb"), KeyError("x"), AttributeError("no x"), IndexError(), TypeError("not\nthis")],
)
def test_every_loading_error_is_one_line(
    llama: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", fail)
    assert f"model {str(llama)!r} cannot be loaded: {type(error).__name__}" in refusal(llama)
    monkeypatch.setattr(AutoModelForCausalLM, "from_config", fail)
    assert f"cannot be built: {type(error).__name__}" in refusal(llama, load_format="dummy")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "3", "{}", '{"model_type": "llama", "num_hidden_layers": "x"}', '{"model_type": 5}', "\x00"],
)
def test_a_broken_config_is_one_line(llama: Path, text: str) -> None:
    (llama / "config.json").write_text(text)
    assert str(llama) in refusal(llama)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"num_hidden_layers": 10**4}, "10000 layers, and its files have"),
        ({"hidden_act": "zzz"}, "hidden_act is 'zzz' in its config"),
        ({"rope_parameters": {"rope_type": "zzz", "factor": 2.0}}, "rope_parameters.rope_type is 'zzz'"),
    ],
)
def test_a_wrong_config_value_is_named(llama: Path, change: dict[str, Any], expected: str) -> None:
    file = llama / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert expected in refusal(llama)


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    """transformers would ask on standard input whether to run it."""
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "model_type": "mine",
                "auto_map": {"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"},
            }
        )
    )
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'was_run')!r}, 'w').close()")
    assert "brings Python code of its own" in refusal(tmp_path)
    assert not (tmp_path / "was_run").exists()


def test_one_damaged_number_is_detected(tmp_path: Path) -> None:
    """Only prompts that reach it would be answered wrongly."""

    def damage(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        tensors["model.embed_tokens.weight"][7, 3] = torch.nan
        return tensors

    save_random_model(tmp_path, *SERVABLE["llama"])
    assert "hold NaN or infinity: model.embed_tokens.weight" in refusal(change(tmp_path, damage))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_damaged_number_is_detected(llama: Path, value: float, dtype: torch.dtype) -> None:
    name = "model.layers.1.mlp.up_proj.weight"

    def damage(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        tensors = {name: tensor.to(dtype) for name, tensor in tensors.items()}
        tensors[name][-1, -1] = value
        return tensors

    assert f"hold NaN or infinity: {name}" in refusal(change(llama, damage), dtype="auto")


def test_an_all_zero_matrix_logs_a_warning(llama: Path, caplog: pytest.LogCaptureFixture) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    load(change(llama, lambda tensors: tensors | {name: tensors[name] * 0}))
    assert f"Every number of {name} is 0" in caplog.text


@pytest.mark.parametrize("name", ["lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"])
def test_a_model_without_a_choice_is_refused(llama: Path, name: str) -> None:
    assert "its logits are all equal" in refusal(
        change(llama, lambda tensors: tensors | {name: tensors[name] * 0})
    )
