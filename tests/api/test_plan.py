"""`llmfw plan` says what fits, by the same numbers as the engine, and what would help where something does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from transformers import AutoModelForMultimodalLM

from llmfw.api.cli import build_cli
from llmfw.api.commands.plan import choices
from llmfw.api.commands.plan.assess import Model, Settings
from llmfw.api.commands.plan.devices import DEVICES, GIB
from llmfw.api.commands.plan.numbers import read_numbers, weight_bytes
from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ModelError
from llmfw.core.engine.generation import capacity
from llmfw.core.engine.generation.memory_plan import CONTEXT_BYTES
from llmfw.core.interfaces.kv_storage import bytes_per_token
from llmfw.core.model.adapters import adapter_room
from llmfw.core.model.models import load_model
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Registry

from ..core.engine.generation.tiny_models import SERVABLE, save_random_model
from ..docs.gpu_script import gpu_script
from ..models.tiny_config import tiny_config
from ..plugins.quantized_formats.test_gptq import make

CPU = torch.device("cpu")
NO_COMPONENTS = Registry([])
LLAMA_8B_WEIGHTS = 8_030_261_248
REGISTER_SIX = """
@hookimpl
def register_quantization_schemes(register):
    register("six", "tests.doubles.six_bit_scheme:SixBit")
"""


@pytest.fixture(scope="module")
def llama_8b(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The config of Llama-3.1-8B, and the index of its weight files without these."""
    folder = tmp_path_factory.mktemp("llama")
    with gpu_script("sizes") as (sizes,):
        (folder / "config.json").write_text(json.dumps(sizes.LLAMA_8B))
    index = {"metadata": {"total_size": 2 * LLAMA_8B_WEIGHTS}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(build_cli(), ["plan", *map(str, arguments)], prog_name="llmfw")


def found(*arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--json")
    return json.loads(result.stdout)


def test_llama_8b_has_its_known_figures(llama_8b):
    plan = found(llama_8b, "--device", "h200")
    assert plan["model"]["kv_bytes_per_token"] == 131_072
    assert plan["model"]["weight_bytes"] == 2 * LLAMA_8B_WEIGHTS
    assert plan["tokens"] == pytest.approx((0.88 * 139.8 * GIB - 2 * LLAMA_8B_WEIGHTS) / 131_072, abs=2)
    sizes = [item["bytes"] for item in plan["items"]]
    assert sum(sizes) + plan["free_bytes"] == plan["device"]["bytes"] == int(139.8 * GIB)


@pytest.mark.long
@pytest.mark.slow
def test_missing_weights_are_counted_from_the_config(llama_8b, tmp_path):
    (tmp_path / "config.json").write_bytes((llama_8b / "config.json").read_bytes())
    assert weight_bytes(read_numbers(tmp_path), "bfloat16") == (2 * LLAMA_8B_WEIGHTS, "config.json")


@pytest.mark.parametrize("family", SERVABLE)
def test_the_plan_s_numbers_equal_the_engine_s(family, tmp_path):
    config_class, changes = SERVABLE[family]
    if family == "gpt-neox":
        changes = changes | {"num_key_value_heads": None}  # which it does not know, and no config of it has
    folder = save_random_model(tmp_path, config_class, changes)
    model = load_model(EngineConfig(model=str(folder), dtype="float32"), CPU, NO_COMPONENTS)
    numbers = read_numbers(folder)
    assert 4 * numbers.kv_elements == bytes_per_token(model.layers, torch.float32)
    assert weight_bytes(numbers, "float32") == (model.num_bytes, "weight files")
    assert numbers.layers == len(model.layers)
    assert (numbers.vocab, numbers.context) == (model.vocab_size, model.context_length)
    windows = [spec.sliding_window for spec in model.layers if spec.sliding_window]
    assert numbers.windows == {window: windows.count(window) for window in windows}
    weights = {"float32": model.num_bytes}
    assert Model(numbers, weights, "").shape(Settings("float32", "float32")) == capacity.shape_of(model)


@pytest.mark.parametrize("family", ["llama", "gemma 2 (soft cap)", "mixtral"])
def test_planned_adapter_slots_equal_the_engine_s(family, tmp_path):
    folder = save_random_model(tmp_path, *SERVABLE[family])
    config = EngineConfig(model=str(folder), dtype="float32", max_adapters=3, max_adapter_rank=8)
    adapters = load_model(config, CPU, NO_COMPONENTS).adapters
    assert adapters is not None
    settings = Settings("float32", "float32", adapters=3, adapter_rank=8)
    planned = Model(read_numbers(folder), {"float32": 0}, "").shape(settings)
    assert planned.num_adapter_bytes == adapters.num_bytes


def test_planned_tokens_equal_the_engine_s_capacity(monkeypatch):
    total = 2 << 30
    plan = found("demo", "--device", "mine=2", "--dtype", "float32")
    folder = plan["model"]["folder"]
    model = load_model(EngineConfig(model=folder, dtype="float32"), CPU, NO_COMPONENTS)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(capacity, "total_memory", lambda device: total)
    free = total - model.num_bytes - CONTEXT_BYTES
    monkeypatch.setattr(capacity, "available_memory", lambda device: free)
    decided = capacity.decide_capacity(EngineConfig(model=folder), model, torch.device("cuda"))
    assert plan["tokens"] == decided.num_pages
    assert plan["tokens"] < 512 * model.context_length, "memory is what bounds it"


def test_the_defaults_equal_the_engine_s():
    ours = (choices.FRACTION, choices.MAX_RUNNING, choices.CHUNK)
    assert choices.ADAPTER_RANK == adapter_room.LEAST_RANK
    assert choices.MAX_RUNNING == capacity.DEFAULT_GRAPH_SIZE
    assert ours == tuple(
        default["cuda"]
        for default in (
            capacity.DEFAULT_MEM_FRACTION,
            capacity.DEFAULT_MAX_RUNNING,
            capacity.DEFAULT_CHUNK,
        )
    )


def test_a_table_shows_how_many_requests_fit(llama_8b):
    result = run(llama_8b, "--device", "a100-40", "--request-tokens", 4000, "--request-tokens", 20)
    assert result.exit_code == 0, result.output
    rows = [line.split("\t") for line in result.output.splitlines()]
    assert ["4000", "38"] in rows
    assert ["20", "512"] in rows  # more would fit, but not into one step


def test_several_engines_need_several_gpus(llama_8b):
    one = run(llama_8b, "--device", "a100-40", "--json")
    several = run(llama_8b, "--device", "a100-40", "--json", "--replicas", 4)
    assert json.loads(several.output)["tokens"] == (tokens := json.loads(one.output)["tokens"])
    text = run(llama_8b, "--device", "a100-40", "--replicas", 4).output
    assert f"4 engines need 4 such GPUs, and have room for {4 * tokens:,} tokens in all" in text


def test_a_rank_needs_its_share(llama_8b):
    one, rank = (
        json.loads(run(llama_8b, "--device", "a100-40", "--json", "--tp", tp).output) for tp in (1, 4)
    )
    weights = [found["items"][0]["bytes"] for found in (one, rank)]
    assert weights[1] == -(-weights[0] // 4)
    assert rank["tokens"] > 4 * one["tokens"]  # a quarter of the heads, and more memory free
    assert "The table is for one of 4 ranks" in rank["notes"][0]
    result = run(llama_8b, "--device", "a100-40", "--tp", 3)
    assert result.exit_code == 1
    assert "--tp is 3; it must divide the model's 32 heads, and divide its 8 heads of keys" in result.output


def test_an_impossible_plan_suggests_help(llama_8b):
    result = run(llama_8b, "--device", "mine=12")
    assert result.exit_code == 1
    assert "The weights alone have 14.96 GiB, the device has 12.00." in result.output
    assert "--device 4090: " in result.output


@pytest.mark.parametrize(
    ("tight", "flag"),
    [
        ("--device mine=25 --mem-fraction-static 0.7", "--mem-fraction-static 0.95"),
        ("--device mine=23.5", "--chunked-prefill-size 1024"),
        ("--device mine=21.8", "--max-running-requests 32"),
        ("--device mine=36 --dtype float32", "--dtype bfloat16"),
    ],
)
def test_the_suggested_help_works(llama_8b, tight, flag):
    given = [*tight.split(), "--context-length", "32768"]
    plan = found(llama_8b, *given)
    assert "reason" in plan
    assert flag in [each.partition(":")[0] for each in plan["would_help"]]
    assert "reason" not in found(llama_8b, *given, *flag.split())


def test_a_context_too_long_is_reported(llama_8b):
    plan = found(llama_8b, "--device", "4090")
    assert plan["fits"] is True
    assert "a sequence of the whole context of 131,072 tokens does not fit" in plan["reason"]
    assert "reason" not in found(llama_8b, "--device", "4090", "--context-length", 8192)


def test_float32_needs_twice_bfloat16_s_memory(llama_8b):
    plain, wide = (found(llama_8b, "--device", "h100", "--dtype", d) for d in ("bfloat16", "float32"))
    for key in ("weight_bytes", "kv_bytes_per_token"):
        assert wide["model"][key] == 2 * plain["model"][key]


def test_fp8_doubles_the_tokens(llama_8b):
    plain, small = (found(llama_8b, "--device", "h100", "--kv-cache-dtype", d) for d in ("auto", "fp8_e4m3"))
    assert small["tokens"] == pytest.approx(2 * plain["tokens"], abs=4)


@pytest.mark.parametrize("name", ["fp8", "fp8_e4m3", "fp8_e5m2"])
def test_the_cost_of_fp8_is_noted(llama_8b, name):
    assert found(llama_8b, "--device", "h100")["notes"] == []
    [note] = found(llama_8b, "--device", "h100", "--kv-cache-dtype", name)["notes"]
    assert note.startswith(f"Keys and values in {name} change replies a little")


def test_fp8_is_suggested_if_it_helps(llama_8b):
    wanted = found(llama_8b, "--device", "4090", "--context-length", 50_000)
    assert any(help.startswith("--kv-cache-dtype fp8_e4m3: ") for help in wanted["would_help"])
    small = found(llama_8b, "--device", "4090", "--context-length", 50_000, "--kv-cache-dtype", "fp8_e4m3")
    assert "would_help" not in small
    assert small["model"]["kv_bytes_per_token"] == 65536


def test_layers_with_a_window_are_noted(tmp_path):
    folder = save_random_model(tmp_path, *SERVABLE["gemma 3"])
    [note] = found(folder, "--device", "l40s")["notes"]
    assert note.startswith("5 of 6 layers attend to the last 24 tokens only; llmfw stores")


@pytest.mark.usefixtures("counted_here")
def test_weights_of_images_are_counted_and_noted(tmp_path):
    tiny_config("llava").save_pretrained(tmp_path)
    planned = found(tmp_path, "--device", "l40s")
    assert any("those for images or sound, which are freed" in note for note in planned["notes"])
    whole = AutoModelForMultimodalLM.from_config(tiny_config("llava"))
    assert planned["model"]["weight_bytes"] == sum(each.nbytes for each in whole.parameters())


@pytest.mark.parametrize("device", ["h300", "mine=", "mine=0", "=24", "mine=24GB"])
def test_an_unknown_device_is_a_usage_error(llama_8b, device):
    result = run(llama_8b, "--device", device)
    assert result.exit_code == 2
    assert f"{device!r} is neither one of {', '.join(DEVICES)} nor NAME=GiB" in result.output


def test_a_context_past_the_models_is_an_error(llama_8b):
    result = run(llama_8b, "--device", "h100", "--context-length", 200_000)
    assert result.exit_code == 1
    assert "this model can be served with up to 131072 tokens" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("{", "cannot be read"),
        ("[]", "must hold a JSON object"),
        ('{"hidden_size": 8}', "has no num_attention_heads"),
    ],
)
def test_an_incomplete_config_is_an_error(tmp_path, config, reason):
    (tmp_path / "config.json").write_text(config)
    result = run(tmp_path, "--device", "h100")
    assert result.exit_code == 1
    assert reason in result.output


def test_an_invalid_weight_file_is_an_error(llama_8b, tmp_path):
    (tmp_path / "config.json").write_bytes((llama_8b / "config.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"\x10" + bytes(30))
    with pytest.raises(ModelError, match="is not a safetensors file"):
        weight_bytes(read_numbers(tmp_path), "bfloat16")


@pytest.mark.usefixtures("counted_here")
@pytest.mark.parametrize("scheme", ["int8", pytest.param("int4", marks=pytest.mark.long)])
def test_quantized_weights_are_counted_like_the_engine(scheme):
    plan = found("demo", "--device", "mine=2", "--quantization", scheme)
    config = EngineConfig(model=plan["model"]["folder"], dtype="bfloat16", quantization=scheme)
    expected = load_model(config, CPU, Registry(load_plugins().registry.entries("quantization_scheme")))
    assert plan["model"]["weight_bytes"] == expected.num_bytes
    assert plan["settings"]["quantization"] == scheme


@pytest.mark.usefixtures("counted_here")
@pytest.mark.parametrize("group", [32, 64])
def test_a_plugin_s_scheme_is_counted(install_plugin, tmp_path, group):
    install_plugin("six", REGISTER_SIX)
    folder = save_random_model(tmp_path / "llama", *SERVABLE["llama"])
    option = f"quantization_scheme.group={group}"
    plan = found(
        folder, "--device", "mine=2", "--dtype", "bfloat16", "--quantization", "six/six", "-o", option
    )
    config = EngineConfig(
        model=str(folder),
        dtype="bfloat16",
        quantization="six",
        options={"quantization_scheme.group": group},
    )
    expected = load_model(config, CPU, Registry(load_plugins().registry.entries("quantization_scheme")))
    assert plan["model"]["weight_bytes"] == expected.num_bytes


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("quantization_scheme.group=8", "'group' is given, but no scheme is chosen"),
        ("policy.patience=8", "'policy.patience' is for another component"),
    ],
)
def test_options_without_meaning_are_refused(option, reason):
    result = run("demo", "--device", "mine=2", "-o", option)
    assert result.exit_code
    assert reason in " ".join(result.output.split())


@pytest.mark.usefixtures("counted_here")
def test_a_model_of_experts_cannot_be_quantized(tmp_path):
    folder = save_random_model(tmp_path, *SERVABLE["mixtral"])
    result = run(folder, "--device", "mine=2", "--quantization", "int8")
    assert result.exit_code == 1
    assert "MixtralForCausalLM cannot be quantized" in result.output


def test_quantized_checkpoints_are_not_quantized_again(llama_8b, tmp_path):
    config = json.loads((llama_8b / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": {"bits": 4}}))
    result = run(tmp_path, "--device", "mine=2", "--quantization", "int8")
    assert "is quantized already: leave out --quantization" in " ".join(result.output.split())


@pytest.mark.usefixtures("counted_here")
def test_dequantized_weights_are_counted_like_the_engine(tmp_path):
    quantized, plain = make(tmp_path)
    result = run(quantized, "--device", "mine=2", "--json")
    found = json.loads(result.output)["model"]["weight_bytes"]
    loaded = load_model(EngineConfig(model=str(plain), device="cpu"), CPU, load_plugins().registry)
    assert found == loaded.num_bytes
    assert (
        "stored by gptq, and are dequantized when the model is loaded"
        in run(quantized, "--device", "mine=2").output
    )
