"""`llmfw plan` counts the states of models with convolutions or recurrences as the engine does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from llmfw.api.cli import build_cli
from llmfw.api.commands.plan.assess import Model, Settings
from llmfw.api.commands.plan.numbers import read_numbers, weight_bytes
from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError, ModelError
from llmfw.core.engine.generation import capacity
from llmfw.core.engine.generation.memory_plan import CONTEXT_BYTES
from llmfw.core.model.models import LoadedModel, load_model
from llmfw.core.plugin.registry import Registry

from ..models.checkpoint import save_checkpoint
from ..models.tiny_config import CONTEXT, tiny_config

CPU = torch.device("cpu")
FAMILIES = ("qwen3_5_text", "lfm2", "granitemoehybrid", "mamba2", "falcon_h1")
OTHERS = (
    *("jamba", "qwen3_next", "nemotron_h", "kimi_linear", "bamba", "mamba", "falcon_mamba", "olmo_hybrid"),
    *("zaya", "lfm2_moe", "qwen3_5_moe_text", "qwen3_5"),
)
WITHOUT_LIMIT = ("mamba", "mamba2", "falcon_mamba")

pytestmark = pytest.mark.usefixtures("counted_here")


def save(family: str, folder: Path) -> Path:
    return save_checkpoint(tiny_config(family), folder)


def load(folder: Path, dtype: str = "float32") -> LoadedModel:
    settings = EngineConfig(model=str(folder), dtype=dtype, context_length=CONTEXT, image_cache_mb=0)
    return load_model(settings, CPU, Registry([]))


def plan(*arguments: object) -> dict[str, Any]:
    arguments = ("plan", *arguments, "--json")
    printed = CliRunner().invoke(build_cli(), [str(each) for each in arguments], prog_name="llmfw")
    return json.loads(printed.stdout)


@pytest.mark.parametrize(
    "family", [*FAMILIES, *(pytest.param(each, marks=pytest.mark.long) for each in OTHERS)]
)
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.long)])
def test_states_are_counted_like_the_engine(family, dtype, tmp_path):
    folder = save(family, tmp_path)
    model = load(folder, dtype)
    numbers = read_numbers(folder)
    assert numbers.states is not None
    planned = Model(numbers, {dtype: model.num_bytes}, "").shape(Settings(dtype, dtype))
    assert planned == capacity.shape_of(model)
    assert planned.num_state_bytes > 0
    assert numbers.states.takes_pieces == (
        capacity.max_snapshots(EngineConfig(model=str(folder)), model) is None
    )
    if (
        family in FAMILIES
    ):  # files of others have buffers or weights for images, too, which the engine does not count
        assert weight_bytes(numbers, dtype)[0] == model.num_bytes


@pytest.mark.parametrize("family", ["lfm2", pytest.param("jamba", marks=pytest.mark.long)])
@pytest.mark.parametrize("most", [None, 7])
def test_planned_tokens_and_snapshots_equal_the_engine(family, most, tmp_path, monkeypatch):
    total = int(1.32 * (1 << 30))
    folder = save(family, tmp_path)
    model = load(folder)
    given = () if most is None else ("--max-state-snapshots", most)
    planned = plan(
        folder, "--device", "mine=1.32", "--context-length", CONTEXT, "--chunked-prefill-size", 512, *given
    )
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(capacity, "total_memory", lambda device: total)
    free = total - model.num_bytes - CONTEXT_BYTES
    monkeypatch.setattr(capacity, "available_memory", lambda device: free)
    settings = EngineConfig(model=str(folder), chunked_prefill_size=512, max_state_snapshots=most)
    decided = capacity.decide_capacity(settings, model, torch.device("cuda"))
    assert planned["tokens"] == decided.num_pages
    assert planned["tokens"] < 512 * CONTEXT, "memory is what bounds it"
    assert planned["snapshots"] == decided.num_snapshots
    sizes = {item["what"]: item["bytes"] for item in planned["items"]}
    states = planned["model"]["state_bytes_per_sequence"]
    assert sizes["states of 512 sequences"] == 512 * states
    assert sum(sizes.values()) + planned["free_bytes"] == total
    if planned["snapshots"]:
        assert sizes[f"{planned['snapshots']} snapshots of states"] == planned["snapshots"] * states


def test_what_states_do_not_allow_is_refused(tmp_path):
    numbers = read_numbers(save("lfm2", tmp_path))
    model = Model(numbers, {"float32": 0}, "")
    with pytest.raises(ConfigError, match="--tp is 2, and the model's layers keep states"):
        model.shape(Settings("float32", "float32", tp=2))
    with pytest.raises(ConfigError, match="leave out --max-adapters"):
        model.shape(Settings("float32", "float32", adapters=1))
    refused = plan(tmp_path, "--device", "mine=24", "--tp", 2)
    assert (refused["fits"], "which are not divided" in refused["reason"]) == (False, True)
    assert not [note for note in refused["notes"] if "for one of 2 ranks" in note]


def test_a_model_without_limit_needs_one(tmp_path):
    model = Model(read_numbers(save("mamba2", tmp_path)), {"float32": 0}, "")
    with pytest.raises(ConfigError, match="give --context-length"):
        model.context(Settings("float32", "float32"))
    assert model.context(Settings("float32", "float32", context=99)) == 99


def test_states_that_cannot_be_measured_are_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "ssm_state": 3}))
    with pytest.raises(ModelError, match=r"the states of its layers cannot be measured: .*store no states"):
        read_numbers(tmp_path)
