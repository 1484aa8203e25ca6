"""Requests get the tokens of their own adapter, whatever else runs beside them, and the base model's stay the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.model.device.dtype_choice import DTYPES
from llmfw.core.model.models import load_model
from llmfw.core.plugin.registry import Entry

from ....doubles.static_attention import Rerun, StaticAttention
from ....doubles.tiny_adapters import continued, merged, save_random_adapter
from ....doubles.trie_grammar import FIRST_BYTE
from ....length import also, also_each, of_length
from .running import GREEDY, build_engine, generate, random_prompts, registry
from .test_mixed_batch import KINDS, check_alike
from .tiny_models import SERVABLE, VOCAB_SIZE, save_byte_tokenizer, save_random_model

EXACT = "float16"
"""Means float64 here, as in test_loops: the last bits of float32 depend on the batch."""
STATIC = Entry(
    "attention", "static", f"{StaticAttention.__module__}:StaticAttention", "tests", "llmfw-tests", "1.0"
)
RANKS = (4, 64, 16, 8)
NAMES = ("", "a0", "a1", "a2", "a3")


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DTYPES, EXACT, torch.float64)


def folders(base: Path, family: str, ranks: Sequence[int] = RANKS) -> tuple[Path, list[Path]]:
    """Write a model, and an adapter of each rank."""
    model = save_random_model(base / "model", *SERVABLE[family])
    adapters = [save_random_adapter(base / f"a{i}", model, rank=rank, seed=i) for i, rank in enumerate(ranks)]
    return model, adapters


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    return folders(tmp_path_factory.mktemp("llama"), "llama")


def engine_of(model: Path, adapters: Sequence[Path], **settings: Any) -> Engine:
    named = tuple(f"a{i}={path}" for i, path in enumerate(adapters))
    return build_engine(model, **{"adapters": named, "dtype": EXACT} | settings)


def request(i: int, prompt: Sequence[int], adapter: str, **settings: Any) -> Request:
    sampling = SamplingParams(**{"temperature": 0, "max_tokens": 24} | settings)
    return Request(id=str(i), prompt=list(prompt), sampling=sampling, eos_token_ids=(1,), adapter=adapter)


def tokens_of(engine: Engine, requests: Sequence[Request], seed: int | None = None) -> list[list[int]]:
    outcomes = generate(engine, requests, seed=seed)
    assert [each.end.error for each in outcomes] == [None] * len(requests)
    return [each.token_ids for each in outcomes]


@pytest.mark.parametrize("family", ["llama", *also(["gemma 2 (soft cap)", "qwen2", "qwen3", "phi 3"])])
def test_each_request_gets_its_adapter_s_tokens(family: str, tmp_path: Path) -> None:
    """Requests for four adapters and the base, at random times, in pieces of 16 tokens."""
    targets = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj") if family == "phi 3" else None
    model = save_random_model(tmp_path / "model", *SERVABLE[family])
    adapters = [
        save_random_adapter(
            tmp_path / f"a{i}", model, rank=rank, seed=i, **({"targets": targets} if targets else {})
        )
        for i, rank in enumerate(RANKS)
    ]
    prompts = random_prompts(of_length(15, 32), VOCAB_SIZE)
    engine = engine_of(model, adapters, chunked_prefill_size=16)
    requests = [request(i, prompt, NAMES[i % 5]) for i, prompt in enumerate(prompts)]
    found = tokens_of(engine, requests, seed=1)
    for place, adapter in enumerate([None, *adapters]):
        expected = continued(merged(model, adapter), prompts[place::5], 24)
        assert found[place::5] == expected


@pytest.fixture(scope="module")
def one_by_one(llama: tuple[Path, list[Path]]) -> tuple[list[Request], list[list[int]]]:
    """Return requests of some prompts, each with each adapter, and the tokens that each gets alone."""
    prompts = random_prompts(of_length(4, 6), VOCAB_SIZE)
    requests = [
        request(5 * i + j, prompts[i], name) for i in range(len(prompts)) for j, name in enumerate(NAMES)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DTYPES, EXACT, torch.float64)
        alone = engine_of(*llama, disable_radix_cache=True)
    return requests, [tokens_of(alone, [each])[0] for each in requests]


@pytest.mark.parametrize(
    ("tokens", "overlap"), [(None, False), (260, True), *also_each((None, True), (260, False))]
)
def test_adapters_survive_retraction_and_both_loops(
    llama: tuple[Path, list[Path]],
    one_by_one: tuple[list[Request], list[list[int]]],
    tokens: int | None,
    overlap: bool,
) -> None:
    """Each prompt comes with each adapter, so that a prefix of another adapter would be found, too."""
    model, adapters = llama
    requests, expected = one_by_one
    engine = engine_of(
        model,
        adapters,
        overlap=overlap,
        max_total_tokens=tokens,
        chunked_prefill_size=16,
        schedule_conservativeness=0.05,
    )
    assert tokens_of(engine, requests, seed=2) == expected
    assert (engine.stats().num_retractions > 0) == (tokens is not None)
    if tokens is None:
        again = [request(100 + i, each.prompt, each.adapter) for i, each in enumerate(requests)]
        before = engine.stats().num_prompt_cached
        assert tokens_of(engine, again) == expected
        assert engine.stats().num_prompt_cached > before


def test_base_rows_keep_their_logits_bits(llama: tuple[Path, list[Path]]) -> None:
    """The base's log probabilities are the same to the bit beside requests with adapters and beside base requests."""
    model, adapters = llama
    prompts = random_prompts(8, VOCAB_SIZE)

    def logprobs(names: Sequence[str], dtype: str) -> list[list[float]]:
        engine = engine_of(model, adapters, dtype=dtype, disable_radix_cache=True)
        requests = [
            Request(id=str(i), prompt=prompt, sampling=GREEDY, logprobs=0, adapter=names[i % len(names)])
            for i, prompt in enumerate(prompts)
        ]
        outcomes = generate(engine, requests)
        return [[record.logprob for record in each.logprobs] for each in outcomes]

    for dtype in ("float32", "bfloat16"):
        beside_adapters = logprobs(("", "a0", "a1"), dtype)
        beside_base = logprobs(("",), dtype)
        assert beside_adapters[::3] == beside_base[::3]
        assert beside_adapters[1::3] != beside_base[1::3]


@pytest.mark.parametrize("overlap", [False, *also([True])])
def test_adapters_go_with_all_that_requests_ask(tmp_path: Path, overlap: bool) -> None:
    """Seeds, grammars, penalties, thinking and log probabilities: in a mixed batch as alone."""
    model = save_random_model(tmp_path / "model", *SERVABLE["llama"])
    save_byte_tokenizer(model, FIRST_BYTE)
    adapters = [save_random_adapter(tmp_path / f"a{i}", model, rank=4 + i, seed=i) for i in range(2)]
    requests = [
        Request(
            id=str(i),
            prompt=prompt,
            sampling=SamplingParams(**({"max_tokens": 30, "seed": i} | KINDS[i % 8][0])),
            eos_token_ids=(1,),
            prompt_logprobs=1 if i % 3 == 0 else None,
            adapter=("", "a0", "a1")[i % 3],
            **KINDS[i % 8][1],
        )
        for i, prompt in enumerate(random_prompts(16, VOCAB_SIZE))
    ]
    alone = engine_of(model, adapters, disable_radix_cache=True)
    expected = [generate(alone, [each])[0] for each in requests]
    engine = engine_of(model, adapters, overlap=overlap, chunked_prefill_size=16, max_total_tokens=260)
    for found, one in zip(generate(engine, requests, seed=4), expected, strict=True):
        assert found.token_ids == one.token_ids
        check_alike(found.logprobs, one.logprobs)


def test_steps_with_adapters_are_not_captured(llama: tuple[Path, list[Path]]) -> None:
    """Only steps without adapters replay a graph, and both kinds of steps keep their tokens."""
    model, adapters = llama
    requests = [request(i, [5 + i, 7, 9], name) for i, name in enumerate(["", "", "a0", "a1"])]
    expected = tokens_of(engine_of(model, adapters), requests)
    replayed: list[int] = []
    settings = {"dtype": EXACT, "device": "cpu", "attention": "static", "context_length": 256}
    settings["cuda_graph_max_bs"] = len(requests)  # each size is captured by a run of the model
    named = tuple(f"a{i}={path}" for i, path in enumerate(adapters))
    config = EngineConfig(model=str(model), adapters=named, **settings)  # type: ignore[arg-type]
    engine = build_generation_engine(config, registry(STATIC), make_graph=lambda: Rerun(replayed))
    assert tokens_of(engine, requests[2:]) == expected[2:]
    captured = len(replayed)
    assert tokens_of(engine, requests[:2]) == expected[:2]
    assert len(replayed) > captured


@pytest.mark.parametrize("module_passes", ["none", "auto"])
def test_a_quantized_base_takes_adapters(llama: tuple[Path, list[Path]], module_passes: str) -> None:
    """The adapter is added to what the quantized layers compute, here compared with its merged weights."""
    model, adapters = llama
    config = EngineConfig(
        model=str(model), dtype="float32", quantization="int8", module_passes="none", context_length=256
    )
    quantized = load_model(config, torch.device("cpu"), registry()).module
    theirs = merged(model, None).float()
    tensors = load_file(adapters[0] / "adapter_model.safetensors")
    with torch.no_grad():
        for name, module in theirs.named_modules():
            if isinstance(module, torch.nn.Linear) and name != "lm_head":
                down, up = (tensors[f"base_model.model.{name}.lora_{each}.weight"] for each in "AB")
                module.weight.copy_(quantized.get_submodule(name).weight + 2 * up @ down)
        theirs.lm_head.weight.copy_(quantized.get_submodule("lm_head").weight)
    engine = engine_of(model, adapters[:1], dtype="float32", quantization="int8", module_passes=module_passes)
    prompts = random_prompts(4, VOCAB_SIZE)
    requests = [
        Request(id=str(i), prompt=prompt, sampling=SamplingParams(max_tokens=1), logprobs=5, adapter="a0")
        for i, prompt in enumerate(prompts)
    ]
    for outcome, prompt in zip(generate(engine, requests), prompts, strict=True):
        with torch.inference_mode():
            logits = theirs(input_ids=torch.tensor([prompt])).logits[0, -1]
        best = torch.log_softmax(logits, -1).topk(5)
        # Native kernels round activations to 8 bits.
        assert outcome.logprobs[0].top_logprobs == pytest.approx(best.values.tolist(), abs=0.2)
        assert outcome.logprobs[0].top_ids[0] == best.indices[0]
