"""Which attention backend is taken, and what is said of those that are not."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ComponentError, ConfigError
from llmfw.core.engine.generation import build
from llmfw.core.engine.generation.attention_choice import (
    attention_bytes,
    check_attention,
    choose_attention,
)
from llmfw.core.engine.generation.chosen_attention import ChosenAttention
from llmfw.core.engine.generation.memory_plan import StepSizes
from llmfw.core.interfaces.attention import AttentionBackend, LayerSpec
from llmfw.core.interfaces.kv_storage import KVStorage
from llmfw.core.model.attention.split_attention import SplitAttention
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Entry, Registry
from llmfw.core.testing.attention_case import make_layer
from llmfw.plugins.attention_torch.backend import TorchAttention

from ....doubles.knowing_drafter import KnowingDrafter

CPU = torch.device("cpu")


class Broken(TorchAttention):
    """Says that it can, and then cannot be built."""

    def __init__(self, layers: Sequence[LayerSpec], storage: KVStorage, options: Any) -> None:
        raise ComponentError("its kernels do not load")


class Picky(TorchAttention):
    @classmethod
    def unsupported(cls, layers: Sequence[LayerSpec], device: str, dtype: torch.dtype) -> str | None:
        return f"it does not run on {device}"


class Tuned(TorchAttention):
    class Options(TorchAttention.Options, frozen=True):
        tiles: int = 4


class Half(AttentionBackend):
    """Lacks its methods."""


def entry(name: str, rank: int, found: str, *needs: str) -> Entry:
    return Entry("attention", name, f"{__name__}:{found}", "p", "d", "1", needs=needs, rank=rank)


REGISTRY = Registry(
    [
        entry("absent", 9, "Picky", "no_such_kernels"),
        entry("picky", 8, "Picky"),
        entry("broken", 7, "Broken"),
        replace(entry("elsewhere", 6, "Broken", "no_such_kernels"), devices=("cuda",)),
        entry("plain", 0, "TorchAttention"),
    ]
)


def choose(name: str) -> tuple[str, AttentionBackend]:
    layers = [make_layer()]
    model: Any = SimpleNamespace(layers=layers, dtype=torch.float32, architecture="Llama", images=None)
    storage = KVStorage(layers, 4, 1, torch.float32, CPU)
    chosen = choose_attention(EngineConfig(model="m", attention=name), REGISTRY, model, CPU, storage)
    return chosen.name, chosen.backend


def test_auto_uses_the_best_backend_and_logs_rejections(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        name, backend = choose("auto")
    assert (name, type(backend)) == ("plain", TorchAttention)
    for reason in ("absent: needs no_such_kernels", "picky: it does not run on cpu", "broken: its kernels"):
        assert reason in caplog.text
    assert "elsewhere" not in caplog.text
    with caplog.at_level(logging.DEBUG):
        choose("auto")
    assert "Attention backends for other devices than cpu: elsewhere (it is for cuda)" in caplog.messages


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("absent", "needs no_such_kernels, which is not installed"),
        ("picky", "it does not run on cpu"),
        ("broken", "its kernels do not load"),
    ],
)
def test_an_unusable_named_backend_is_an_error(name: str, reason: str) -> None:
    with pytest.raises(ComponentError, match=f"can serve Llama on cpu: {name}: {reason}"):
        choose(name)


class Large(TorchAttention):
    """Takes memory that depends on all that it is told."""

    class Options(TorchAttention.Options, frozen=True):
        tiles: int = 4

    @classmethod
    def step_bytes(cls, layers: Any, options: Any, device: str, **sizes: Any) -> int:
        assert (len(layers), device, sizes["graph_sizes"]) == (1, "cpu", [1, 2, 3])
        return options.tiles * sizes["num_sequences"] * sizes["num_pages"]


class Vague(TorchAttention):
    @classmethod
    def step_bytes(cls, *_: Any, **__: Any) -> Any:
        return "little"


class Failing(TorchAttention):
    @classmethod
    def step_bytes(cls, *_: Any, **__: Any) -> int:
        raise LookupError


@pytest.mark.parametrize(
    ("backends", "expected"),
    [
        (["Picky", "Vague", "Failing", "Large", "TorchAttention"], 4 * 9 * 30),
        (["TorchAttention", "Large"], 0),
        (["Picky"], 0),
    ],
)
def test_the_first_usable_backend_says_its_memory(backends: list[str], expected: int) -> None:
    registry = Registry([entry(name.lower(), -rank, name) for rank, name in enumerate(backends)])
    model: Any = SimpleNamespace(layers=[make_layer()], dtype=torch.float32, images=None)
    steps = StepSizes(chunk=8, max_running=9, max_graph_size=3)
    assert attention_bytes(EngineConfig(model="m"), registry, model, CPU, steps, 30) == expected


class Prompts(TorchAttention):
    """Needs memory for prompts alone: graphs have none."""

    @classmethod
    def step_bytes(cls, layers: Any, options: Any, device: str, **sizes: Any) -> int:
        assert sizes["graph_sizes"] == ()
        return 7


@pytest.mark.parametrize(("attention", "expected"), [("auto", 4 * 9 * 30 + 7), ("large", 4 * 9 * 30)])
def test_the_memory_of_both_backends_is_added(attention: str, expected: int) -> None:
    prompts = replace(entry("prompts", 1, "Prompts"), prefill_rank=10)
    model: Any = SimpleNamespace(layers=[make_layer()], dtype=torch.float32, images=None)
    steps = StepSizes(chunk=8, max_running=9, max_graph_size=3)
    config, registry = (
        EngineConfig(model="m", attention=attention),
        Registry([entry("large", 9, "Large"), prompts]),
    )
    assert attention_bytes(config, registry, model, CPU, steps, 30) == expected


READY = Registry(
    [
        entry("tuned", 9, "Tuned"),
        entry("half", 8, "Half"),
        entry("plain", 0, "TorchAttention"),
        Entry("policy", "lpm", "llmfw.plugins.policies.lpm:LPM", "p", "d", "1"),
        Entry("drafter", "knowing", f"{KnowingDrafter.__module__}:KnowingDrafter", "p", "d", "1"),
    ]
)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"attention": "plane"}, "unknown attention 'plane'"),
        ({"attention": "half"}, "lacks .*forward"),
        ({"attention": "tuned", "options": {"attention.tyles": 4}}, "has no option 'tyles'"),
        (
            {"attention": "tuned", "options": {"attention.tiles": "many"}},
            "attention.tiles is 'many'; it must be a whole number",
        ),
        (
            {"options": {"attention.tyles": 4}},
            "'tuned' has no option 'tyles'.*; attention 'plain' has no option 'tyles'",
        ),
        ({"drafter": "knowing", "options": {"drafter.depth": 4}}, "has no option 'depth'"),
        ({"options": {"drafter.depth": 4}}, "drafter option 'depth' is given, but no drafter is chosen"),
        ({"drafter": "knowing", "draft_tokens": 0}, "--draft-tokens is 0"),
        ({"eviction": "fifo"}, "fifo"),
    ],
)
def test_configuration_errors_precede_model_loading(
    settings: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "load_model", lambda *_: pytest.fail("the model was read"))
    with pytest.raises(ConfigError, match=says):
        build.build_generation_engine(EngineConfig(model="m", device="cpu", **settings), READY)


def test_an_option_needs_only_one_matching_backend() -> None:
    check_attention(EngineConfig(model="m", options={"attention.tiles": 2}), READY)


class Part(Tuned):
    """Keeps which part of a step it was built for."""

    part = "whole"

    @classmethod
    def for_part(cls, part: Any, layers: Sequence[LayerSpec], storage: KVStorage, options: Any) -> Part:
        built = cls(layers, storage, options)
        built.part = part
        return built


PAIRS = Registry(
    [
        replace(entry("elsewhere", 0, "Broken"), devices=("cuda",), prefill_rank=99),
        replace(entry("broken", -1, "Broken"), prefill_rank=20),
        replace(entry("prompts", 1, "Part"), prefill_rank=15),
        entry("single", 9, "TorchAttention"),
        entry("plain", 2, "TorchAttention"),
        entry("part", -5, "Part"),
    ]
)


def choose_pair(registry: Registry = PAIRS, **settings: Any) -> ChosenAttention:
    layers = [make_layer()]
    model: Any = SimpleNamespace(layers=layers, dtype=torch.float32, architecture="Llama", images=None)
    config = EngineConfig(model="m", **settings)
    check_attention(config, registry)
    storage = KVStorage(layers, 4, 1, torch.float32, CPU)
    return choose_attention(config, registry, model, CPU, storage)


@pytest.mark.parametrize(
    ("attention", "prefill", "expected"),
    [
        ("auto", None, "single, prompts: prompts"),
        ("auto", "auto", "single, prompts: prompts"),
        ("auto", "plain", "single, prompts: plain"),
        ("auto", "single", "single"),
        ("plain", None, "plain"),
        ("plain", "plain", "plain"),
        ("plain", "auto", "plain, prompts: prompts"),
        ("prompts", "auto", "prompts"),
        ("part", "plain", "part, prompts: plain"),
    ],
)
def test_prompts_may_have_another_backend(attention: str, prefill: str | None, expected: str) -> None:
    chosen = choose_pair(attention=attention, prefill_attention=prefill)
    assert chosen.name == expected
    assert isinstance(chosen.backend, SplitAttention) == ("prompts: " in expected)


def test_each_backend_knows_its_part() -> None:
    split = choose_pair(attention="part", prefill_attention="prompts").backend
    assert isinstance(split, SplitAttention)
    assert [getattr(each, "part", "") for each in (split.decode, split.prefill)] == ["decode", "prefill"]
    assert getattr(choose_pair(attention="part").backend, "part", "") == "whole"


def test_without_better_prompts_one_backend_computes_all(caplog: pytest.LogCaptureFixture) -> None:
    only = Registry([entry for entry in PAIRS.entries("attention") if entry.name in ("broken", "single")])
    with caplog.at_level(logging.INFO):
        assert choose_pair(only).name == "single"
    assert "Attention backend: single (broken: " in caplog.text


def test_a_named_prompt_backend_must_serve() -> None:
    with pytest.raises(ComponentError, match="can serve Llama on cpu: broken: its kernels do not load"):
        choose_pair(attention="plain", prefill_attention="broken")


@pytest.mark.parametrize("settings", [{}, {"attention": "single", "prefill_attention": "prompts"}])
def test_options_go_to_the_backend_that_has_them(settings: dict[str, str]) -> None:
    split = choose_pair(options={"attention.tiles": 7}, **settings).backend
    assert isinstance(split, SplitAttention)
    assert split.prefill.options == Part.Options(tiles=7)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"attention": "plain"}, "tiles"),
        ({"attention": "single", "prefill_attention": "plain"}, "tiles"),
        ({"attention": "single", "prefill_attention": "prompts"}, "tyles"),
        ({"attention": "auto", "prefill_attention": "plain"}, "tiles"),
        ({}, "tyles"),
    ],
)
def test_an_option_that_no_chosen_backend_has(settings: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError, match=f"has no option '{key}'"):
        choose_pair(options={f"attention.{key}": 7}, **settings)


def test_on_cuda_triton_decodes_and_flashinfer_prefills() -> None:
    ranks = {
        each.name: (each.rank, each.prefill_rank) for each in load_plugins().registry.entries("attention")
    }
    assert ranks["triton"][0] > ranks["flashinfer"][0]
    assert (ranks["flashinfer"][1] or 0) > ranks["triton"][0]
    assert ranks["triton"][1] is None
