"""Adapters are loaded, replaced and unloaded while requests run: no wrong token, and no slot is lost."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
import torch

from llmfw.core.base.control import AdapterInfo, AdapterList, ListAdapters, LoadAdapter, UnloadAdapter
from llmfw.core.base.errors import ConfigError, ConflictError, ModelError, ModelNotFoundError
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.model.device.dtype_choice import DTYPES
from llmfw.core.schedule import adapter_gate

from ....doubles.tiny_adapters import continued, merged, save_random_adapter
from ....length import also_each, of_length
from .running import build_engine, generate, random_prompts
from .tiny_models import SERVABLE, VOCAB_SIZE, save_random_model

EXACT = "float16"
"""Means float64 here, as in test_loops."""
NUM_SLOTS = 3
NUM_PROMPTS = 4
NUM_TOKENS = 12
RANKS = (4, 16, 7, 12, 1)
NAMES = ("red", "green", "blue", "gray")


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DTYPES, EXACT, torch.float64)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    save_random_model(folder / "model", *SERVABLE["llama"])
    for i, rank in enumerate(RANKS):
        save_random_adapter(folder / f"a{i}", folder / "model", rank=rank, seed=i)
    return folder


@pytest.fixture(scope="module")
def expected(llama: Path) -> dict[Path | None, list[list[int]]]:
    """Return what prompts are continued with, for each adapter and for the base."""
    prompts = random_prompts(NUM_PROMPTS, VOCAB_SIZE)
    folders = [None, *(llama / f"a{i}" for i in range(len(RANKS)))]
    return {folder: continued(merged(llama / "model", folder), prompts, NUM_TOKENS) for folder in folders}


def engine_of(folder: Path, **settings: object) -> Engine:
    room = {"max_adapters": NUM_SLOTS, "max_adapter_rank": 16}
    return build_engine(folder / "model", **room | {"dtype": EXACT} | settings)


def request(id: str, prompt: list[int], adapter: str) -> Request:
    sampling = SamplingParams(temperature=0, max_tokens=NUM_TOKENS)
    return Request(id=id, prompt=prompt, sampling=sampling, eos_token_ids=(1,), adapter=adapter)


def adapters_of(engine: Engine) -> list[AdapterInfo]:
    answer = engine.control(ListAdapters())
    assert isinstance(answer, AdapterList)
    return answer.adapters


def load(engine: Engine, name: str, path: Path) -> AdapterInfo:
    """Load an adapter, and return what became of it."""
    engine.control(LoadAdapter(name, str(path)))
    version = max(each.version for each in adapters_of(engine))
    while True:
        [found] = [each for each in adapters_of(engine) if each.version == version]
        if found.state != "loading":
            return found
        time.sleep(0.001)


@pytest.mark.parametrize(
    ("num_slots", "overlap"),
    [
        (NUM_SLOTS, False),
        (1, True),
        *also_each((NUM_SLOTS, True), (1, False), (2, False), (2, True)),
    ],
)
def test_traffic_gets_each_version_s_tokens(
    llama: Path,
    expected: dict[Path | None, list[list[int]]],
    overlap: bool,
    num_slots: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Random loads, reloads, unloads and requests, of which many share prompts across adapters and versions.

    With fewer slots than loaded adapters, adapters change places all the time.
    """
    monkeypatch.setattr(adapter_gate, "PATIENCE_S", 0.0)
    rng = random.Random(overlap)
    prompts = random_prompts(NUM_PROMPTS, VOCAB_SIZE)
    folders = [llama / f"a{i}" for i in range(len(RANKS))]
    room = {"max_adapters": num_slots, "max_loaded_adapters": NUM_SLOTS}
    engine = engine_of(llama, overlap=overlap, max_total_tokens=400, chunked_prefill_size=16, **room)
    paths = {str(folder): folder for folder in folders}
    wanted: dict[str, list[int]] = {}
    found: dict[str, list[int]] = {}
    num_loads = num_refused = 0
    for number in range(of_length(250, 1500)):
        what, name = rng.random(), rng.choice(NAMES)
        ready = {each.name: paths[each.path] for each in adapters_of(engine) if each.state == "ready"}
        if what < 0.1:
            info = load(engine, name, rng.choice(folders))
            num_loads += info.state == "ready"
            num_refused += info.state == "failed"
            assert not info.error or "place" in info.error
        elif what < 0.15 and name in ready:
            engine.control(UnloadAdapter(name))
        elif what < 0.5:
            adapter = rng.choice(["", *ready])
            place = rng.randrange(len(prompts))
            engine.add(request(str(number), prompts[place], adapter))
            wanted[str(number)] = expected[ready[adapter] if adapter else None][place]
            found[str(number)] = []
        if rng.random() < 0.02:
            aborted = rng.choice(list(found) or [str(number)])
            engine.abort(aborted)
            wanted[aborted] = found.setdefault(aborted, [])
        for event in engine.step() if engine.has_work else ():
            assert not event.error
            found[event.id] += event.token_ids
    while engine.has_work:
        for event in engine.step():
            found[event.id] += event.token_ids
    assert found == wanted
    assert num_loads > 5
    assert num_refused > 0
    for each in adapters_of(engine):
        if each.state == "ready":
            engine.control(UnloadAdapter(each.name))
    assert {each.state for each in adapters_of(engine)} <= {"failed"}
    assert all(load(engine, name, folders[0]).state == "ready" for name in NAMES[:NUM_SLOTS])
    assert engine._adapters.assignment.num_brought > 4


def test_a_reload_forgets_cached_prefixes(llama: Path) -> None:
    engine = engine_of(llama)
    [prompt] = random_prompts(2, VOCAB_SIZE)[1:]

    def num_cached() -> int:
        before = engine.stats().num_prompt_cached
        generate(engine, [request("r", prompt, "red")])
        return engine.stats().num_prompt_cached - before

    load(engine, "red", llama / "a0")
    assert (num_cached(), num_cached()) == (0, len(prompt) - 1)
    load(engine, "red", llama / "a0")
    assert num_cached() == len(prompt) - 1  # the same files
    load(engine, "red", llama / "a1")
    assert num_cached() == 0


def test_loads_that_fail_change_nothing(llama: Path) -> None:
    engine = engine_of(llama, max_adapter_rank=8)
    before = load(engine, "red", llama / "a0")
    failed = load(engine, "red", llama / "a1")
    assert failed.state == "failed"
    assert "rank 16; the limit is 8" in failed.error
    assert "has no adapter_config.json" in load(engine, "red", llama / "none").error
    assert [each for each in adapters_of(engine) if each.state == "ready"] == [before]
    with pytest.raises(ModelNotFoundError, match="no adapter 'green'; loaded are: red"):
        engine.control(UnloadAdapter("green"))
    with pytest.raises(ModelNotFoundError, match="no adapter 'green'"):
        engine.add(request("r", [5], "green"))
    with pytest.raises(ConflictError, match="start it with --max-adapters"):
        build_engine(llama / "model").control(LoadAdapter("red", str(llama / "a0")))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"adapters": ("a=x",), "max_adapters": 0}, "--max-adapters is 0, and --adapter names 1"),
        (
            {"adapters": ("a=x", "b=y"), "max_adapters": 1, "max_loaded_adapters": 1},
            "--max-loaded-adapters is 1, and --adapter names 2",
        ),
        ({"max_adapters": 3, "max_loaded_adapters": 2}, "--max-loaded-adapters is 2, and there are 3 slots"),
        ({"max_adapters": 0, "max_loaded_adapters": 2}, "and there are 0 slots"),
        ({"adapters": ("a=x", "a=y")}, "names 'a' twice"),
        ({"adapters": ("a",)}, "write NAME=PATH"),
        ({"max_adapter_rank": 8}, "there is no room for adapters; give --max-adapters"),
    ],
)
def test_contradicting_settings_are_refused(llama: Path, settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_engine(llama / "model", **settings)


def test_steps_are_not_recorded_while_slots_change(llama: Path, tmp_path: Path) -> None:
    """A recording does not hold which adapter is in which slot."""
    with pytest.raises(ConfigError, match="leave out --max-loaded-adapters"):
        engine_of(llama, max_loaded_adapters=NUM_SLOTS + 1, record_steps=str(tmp_path / "steps"))


def test_mixtral_s_experts_are_refused_by_name(tmp_path: Path) -> None:
    model = save_random_model(tmp_path / "model", *SERVABLE["mixtral"])
    attention = save_random_adapter(tmp_path / "a", model, targets=("q_proj", "v_proj"))
    engine = build_engine(model, adapters=(f"a={attention}",))
    prompts = random_prompts(2, VOCAB_SIZE)
    found = generate(engine, [request(str(i), prompt, "a") for i, prompt in enumerate(prompts)])
    assert [each.token_ids for each in found] == continued(
        merged(model, attention).float(), prompts, NUM_TOKENS
    )
    experts = save_random_adapter(
        tmp_path / "b", model, targets=("q_proj",), target_parameters=["gate_up_proj"]
    )
    with pytest.raises(ModelError, match="such as experts"):
        build_engine(model, adapters=(f"b={experts}",))
