"""What a request generates does not depend on what else runs, on the loop, or on retractions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from llmfw.core.base.request import Request, SamplingParams, Thinking, TokenLogprob

from ....doubles.trie_grammar import FIRST_BYTE, one_of
from ....length import also_each
from .running import Outcome, build_engine, generate, random_prompts
from .tiny_models import SERVABLE, VOCAB_SIZE, save_byte_tokenizer, save_random_model

EOS = 1
GRAMMAR = one_of("red", "green", "greenhouse", '{"answer": "yes"}', '{"answer": "no", "reason": "none"}')
BOUNDED = Thinking(begin=(2,), end=(3, 4), budget=6)
OPEN = Thinking(end=(3,), is_open=True, budget=3)

KINDS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"temperature": 0}, {"logprobs": 3}),
    ({"min_p": 0.1}, {"grammar": GRAMMAR}),
    ({"top_k": 5, "top_p": 0.9}, {"grammar": GRAMMAR, "logprobs": 0}),
    ({"frequency_penalty": 1.0, "repetition_penalty": 1.3}, {"grammar": GRAMMAR}),
    ({"presence_penalty": 0.5, "min_tokens": 8}, {"thinking": BOUNDED}),
    ({"logit_bias": {2: 100.0}, "repetition_penalty": 1.2}, {"thinking": BOUNDED, "grammar": GRAMMAR}),
    ({"logit_bias": {7: 5.0}, "top_p": 0.8, "frequency_penalty": 0.5}, {"thinking": OPEN}),
]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_random_model(tmp_path_factory.mktemp("llama"), *SERVABLE["llama"])
    save_byte_tokenizer(folder, FIRST_BYTE)
    return folder


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    """32 requests, 4 of each kind; every third one asks for its prompt's log probabilities."""
    return [
        Request(
            id=str(i),
            prompt=prompt,
            sampling=SamplingParams(**({"max_tokens": 40, "seed": i} | KINDS[i % 8][0])),
            eos_token_ids=(EOS,),
            prompt_logprobs=1 if i % 3 == 0 else None,
            **KINDS[i % 8][1],
        )
        for i, prompt in enumerate(random_prompts(32, VOCAB_SIZE))
    ]


@pytest.fixture(scope="module")
def alone(llama: Path, requests: list[Request]) -> list[Outcome]:
    engine = build_engine(llama, disable_radix_cache=True)
    return [generate(engine, [request])[0] for request in requests]


@pytest.mark.parametrize(
    ("tokens", "overlap"), [(None, False), (260, True), *also_each((None, True), (260, False))]
)
def test_batched_requests_equal_single_runs(
    llama: Path, requests: list[Request], alone: list[Outcome], overlap: bool, tokens: int | None
) -> None:
    engine = build_engine(
        llama,
        overlap=overlap,
        chunked_prefill_size=16,
        max_total_tokens=tokens,
        schedule_conservativeness=0.05,
    )
    together = generate(engine, requests, seed=tokens)
    assert (engine.stats().num_retractions > 0) == (tokens is not None)
    for found, expected in zip(together, alone, strict=True):
        assert found.end.error == expected.end.error
        assert found.token_ids == expected.token_ids
        assert found.end.finish_reason is expected.end.finish_reason
        check_alike(found.logprobs, expected.logprobs)
        check_alike(found.events[0].prompt_logprobs, expected.events[0].prompt_logprobs)


def test_neighbors_logprobs_do_not_change_tokens(
    llama: Path, requests: list[Request], alone: list[Outcome]
) -> None:
    bare = [msgspec.structs.replace(r, logprobs=None, prompt_logprobs=None) for r in requests]
    assert [o.token_ids for o in generate(build_engine(llama), bare)] == [o.token_ids for o in alone]


def check_alike(found: list[TokenLogprob] | None, expected: list[TokenLogprob] | None) -> None:
    """The last bits of float32 logits may depend on the batch."""
    assert (found is None) == (expected is None)
    for one, other in zip(found or (), expected or (), strict=True):
        assert (one.top_ids, one.given_ids) == (other.top_ids, other.given_ids)
        assert [one.logprob, *one.top_logprobs, *one.given_logprobs] == pytest.approx(
            [other.logprob, *other.top_logprobs, *other.given_logprobs], abs=1e-4
        )
