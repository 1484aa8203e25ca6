"""With drafts a request's text is what it is without them, whatever it asks for and whatever else runs."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from transformers import AutoModelForCausalLM

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.base.request import FinishReason, Request, SamplingParams
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.model.device.dtype_choice import DTYPES
from llmfw.core.plugin.registry import Entry

from ....doubles.knowing_drafter import KnowingDrafter
from ....doubles.trie_grammar import FIRST_BYTE
from ....length import also
from .running import Outcome, generate, registry
from .test_loops import check, draw_requests, draw_settings, play
from .tiny_models import SERVABLE, save_byte_tokenizer, save_random_model

EXACT = "float16"  # means float64 here
KNOWING = Entry(
    "drafter", "knowing", f"{KnowingDrafter.__module__}:KnowingDrafter", "tests", "llmfw-tests", "1.0"
)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_random_model(tmp_path_factory.mktemp("llama"), *SERVABLE["llama"])
    save_byte_tokenizer(folder, FIRST_BYTE)
    return folder


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DTYPES, EXACT, torch.float64)


def build(folder: Path, **settings: Any) -> Engine:
    config: dict[str, Any] = {
        "model": str(folder),
        "device": "cpu",
        "dtype": EXACT,
        "context_length": 256,
        "grammar": "trie",
    }
    return build_generation_engine(
        EngineConfig(**config | {"prefill_stretch": 0} | settings), registry(KNOWING)
    )


def tell(
    monkeypatch: pytest.MonkeyPatch, requests: Sequence[Request], outcomes: Sequence[Outcome], mistakes: float
) -> None:
    """Let the drafter know what the requests generate."""
    known = [
        [*request.prompt, *outcome.token_ids] for request, outcome in zip(requests, outcomes, strict=True)
    ]
    monkeypatch.setattr(KnowingDrafter, "known", known)
    monkeypatch.setattr(KnowingDrafter, "mistakes", mistakes)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, *also([2, 4])])
def test_drafts_do_not_change_tokens_in_any_mix(
    llama: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    requests, settings = draw_requests(rng), draw_settings(rng)
    requests = [freed(request) if i % 2 else request for i, request in enumerate(requests)]
    engine = build(llama, disable_radix_cache=True)
    alone = [generate(engine, [request])[0] for request in requests]
    tell(monkeypatch, requests, alone, mistakes=0.2)
    engine = build(llama, drafter="knowing", draft_batch_tokens=64, **settings)
    for found, expected in zip(play(engine, requests, rng).values(), alone, strict=True):
        check(found, expected)
    stats = engine.stats()
    assert stats.num_drafted_tokens > stats.num_accepted_tokens > 20


def freed(request: Request) -> Request:
    """Return a request that asks for the same but for what drafts do not go with."""
    none = {"presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "max_tokens": 40}
    sampling = msgspec.structs.replace(request.sampling, **none)
    return msgspec.structs.replace(request, sampling=sampling, grammar=None, thinking=None)


KINDS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.7, "top_k": 8},
    {"temperature": 1.2, "top_p": 0.8, "logit_bias": {7: 2.0}},
    {"min_p": 0.02, "min_tokens": 20},
]


def test_drafts_keep_tokens_and_logprobs_when_sampling(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way of sampling takes fewer steps with drafts."""
    requests = [
        Request(
            id=str(i),
            prompt=[i + 2, 9, 40],
            sampling=SamplingParams(max_tokens=32, seed=i, **kind),
            eos_token_ids=(1,),
            logprobs=2 if i % 2 else None,
            logprob_token_ids=(9, i) if i % 4 == 1 else (),
        )
        for i, kind in enumerate(KINDS)
    ]
    plain = generate(build(llama), requests)
    tell(monkeypatch, requests, plain, mistakes=0.1)
    drafted = generate(build(llama, drafter="knowing", draft_batch_tokens=64), requests)
    for found, expected in zip(drafted, plain, strict=True):
        check(found, expected)
        assert len(found.events) < len(expected.events) / 2


def test_prompt_lookup_drafts_repeated_text(llama: Path) -> None:
    prompt = [4, 9, 17, 30, 8] * 6
    forced = SamplingParams(temperature=0, max_tokens=60, logit_bias={9: 50.0})  # nothing but one token
    request = Request(id="a", prompt=prompt, sampling=forced)
    [plain], engine = generate(build(llama), [request]), build(llama, drafter="prompt-lookup")
    [found] = generate(engine, [request])
    check(found, plain)
    assert len(found.events) < 20
    assert engine.stats().num_accepted_tokens > 40


def test_drafts_stop_at_context_end_and_stop_tokens(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The first fills the context, the second stops at a token that is in the middle of a draft.
    long = Request(id="long", prompt=[5] * 230, sampling=SamplingParams(temperature=0))
    [whole] = generate(build(llama), [long])
    stop = whole.token_ids[13]
    ended = SamplingParams(temperature=0, stop_token_ids=(stop,))
    both = [long, Request(id="stops", prompt=long.prompt, sampling=ended)]
    tell(monkeypatch, [long], [whole], mistakes=0)
    found = generate(build(llama, drafter="knowing"), both)
    assert [outcome.end.finish_reason for outcome in found] == [FinishReason.LENGTH, FinishReason.STOP]
    assert found[0].token_ids == whole.token_ids
    assert len(whole.token_ids) == 26
    assert found[1].token_ids == whole.token_ids[: whole.token_ids.index(stop) + 1]


def test_unseeded_drafting_keeps_the_model_s_distribution(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt, num, k = [5, 6, 7], 600, 3
    sampling = SamplingParams(top_k=k, max_tokens=3)
    monkeypatch.setattr(KnowingDrafter, "known", [[*prompt, *best] for best in [likely(llama, prompt)]])
    engine = build(llama, drafter="knowing", draft_batch_tokens=4096, random_seed=3)
    requests = [Request(id=str(i), prompt=prompt, sampling=sampling) for i in range(num)]
    pairs = Counter(tuple(outcome.token_ids[1:]) for outcome in generate(engine, requests))
    assert engine.stats().num_drafted_tokens > num / k / 2
    expected = pair_chances(llama, prompt, k)
    assert set(pairs) <= set(expected)
    surprise = sum((pairs[pair] - num * chance) ** 2 / (num * chance) for pair, chance in expected.items())
    # Chi-square of so many degrees of freedom is larger once in a thousand times (Wilson and Hilferty, 1931).
    free = len(expected) - 1
    assert surprise < free * (1 - 2 / (9 * free) + 3.09 * (2 / (9 * free)) ** 0.5) ** 3


def next_chances(folder: Path, prefix: Sequence[int], k: int) -> dict[int, float]:
    """Return the k most likely tokens after a prefix, and how likely they are among themselves."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    with torch.inference_mode():
        top = model(torch.tensor([list(prefix)])).logits[0, -1].topk(k)
    return dict(zip(top.indices.tolist(), top.values.softmax(-1).tolist(), strict=True))


def likely(folder: Path, prompt: Sequence[int]) -> list[int]:
    """Return the likeliest three tokens, one after the other."""
    found: list[int] = []
    for _ in range(3):
        found.append(next(iter(next_chances(folder, [*prompt, *found], 1))))
    return found


def pair_chances(folder: Path, prompt: Sequence[int], k: int) -> dict[tuple[int, ...], float]:
    """Return how likely each pair of second and third tokens is."""
    chances: dict[tuple[int, ...], float] = {}
    for first, p in next_chances(folder, prompt, k).items():
        for second, q in next_chances(folder, [*prompt, first], k).items():
            for third, r in next_chances(folder, [*prompt, first, second], k).items():
                chances[second, third] = chances.get((second, third), 0.0) + p * q * r
    return chances


def test_a_failing_drafter_is_logged_once(
    llama: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its requests go on without drafts."""
    requests = [
        Request(id=str(i), prompt=[i + 2] * 3, sampling=SamplingParams(temperature=0, max_tokens=20))
        for i in range(3)
    ]
    plain = generate(build(llama), requests)
    tell(monkeypatch, requests, plain, mistakes=0)
    monkeypatch.setattr(KnowingDrafter, "raises_at", 12)
    engine = build(llama, drafter="knowing")
    with caplog.at_level(logging.ERROR):
        found = generate(engine, requests)
    assert [each.token_ids for each in found] == [each.token_ids for each in plain]
    [line] = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert "drafter 'knowing' of plugin 'tests' (llmfw-tests 1.0" in line
    assert "OSError: no disk. Generation goes on without drafts" in line
    [use] = [use for use in engine.stats().component_uses if use.kind == "drafter"]
    assert (use.name, use.failures) == ("knowing", 1)
    assert use.calls > 1


def test_the_log_reports_the_accepted_length(
    llama: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    request = Request(id="a", prompt=[4, 5], sampling=SamplingParams(temperature=0, max_tokens=100))
    tell(monkeypatch, [request], generate(build(llama), [request]), mistakes=0)
    engine = build(llama, drafter="knowing", draft_tokens=3, decode_log_interval=10)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        generate(engine, [request])
    lines = [record.getMessage() for record in caplog.records if "Decode batch" in record.getMessage()]
    assert len(lines) == 2
    assert "accept len: 4.00, accept rate: 1.00, #queue-req: 0" in lines[1]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"drafter": "promt-lookup"}, "Did you mean 'prompt-lookup'?"),
        ({"drafter": "prompt-lookup", "draft_tokens": 0}, "--draft-tokens is 0"),
        ({"drafter": "prompt-lookup", "draft_batch_tokens": 0}, "--draft-batch-tokens is 0"),
        ({"drafter": "prompt-lookup", "overlap": True}, "does not go with an overlapped schedule"),
        ({"drafter": "prompt-lookup", "options": {"drafter.max_ngram": 2}}, "drafter.max_ngram is 2"),
    ],
)
def test_wrong_settings_are_refused(llama: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        build(llama, **settings)
