"""Requests get the tokens of their own adapter, whatever else runs beside them, and the base model's stay the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.model.device.dtype_choice import DTYPES

from ....doubles.tiny_adapters import continued, merged, save_random_adapter
from ....length import also, also_each
from .running import GREEDY, build_engine, generate, random_prompts
from .tiny_models import SERVABLE, VOCAB_SIZE, save_random_model

EXACT = "float16"
"""Means float64 here, as in test_loops: the last bits of float32 depend on the batch."""
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


@pytest.mark.parametrize("family", ["llama", "gemma 2 (soft cap)", *also(["qwen2", "qwen3", "phi 3"])])
def test_each_request_gets_its_adapter_s_tokens(family: str, tmp_path: Path) -> None:
    """32 requests over four adapters and the base, at random times, in pieces of 16 tokens."""
    targets = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj") if family == "phi 3" else None
    model = save_random_model(tmp_path / "model", *SERVABLE[family])
    adapters = [
        save_random_adapter(
            tmp_path / f"a{i}", model, rank=rank, seed=i, **({"targets": targets} if targets else {})
        )
        for i, rank in enumerate(RANKS)
    ]
    prompts = random_prompts(32, VOCAB_SIZE)
    engine = engine_of(model, adapters, chunked_prefill_size=16)
    requests = [request(i, prompt, NAMES[i % 5]) for i, prompt in enumerate(prompts)]
    found = tokens_of(engine, requests, seed=1)
    for place, adapter in enumerate([None, *adapters]):
        expected = continued(merged(model, adapter), prompts[place::5], 24)
        assert found[place::5] == expected


@pytest.mark.parametrize(
    ("tokens", "overlap"), [(None, False), (260, True), *also_each((None, True), (260, False))]
)
def test_adapters_survive_retraction_and_both_loops(
    llama: tuple[Path, list[Path]], tokens: int | None, overlap: bool
) -> None:
    """Each prompt comes with each adapter, so that a prefix of another adapter would be found, too."""
    model, adapters = llama
    prompts = random_prompts(6, VOCAB_SIZE)
    requests = [request(5 * i + j, prompts[i], name) for i in range(6) for j, name in enumerate(NAMES)]
    alone = engine_of(model, adapters, disable_radix_cache=True)
    expected = [tokens_of(alone, [each])[0] for each in requests]
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
