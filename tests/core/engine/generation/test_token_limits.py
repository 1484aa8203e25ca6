"""Allowed tokens and bad words hold for each token, in both loops."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import GrammarSpec, Request, SamplingParams

from .running import build_engine, generate, random_prompts
from .tiny_models import SERVABLE, VOCAB_SIZE, save_random_model


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("llama"), *SERVABLE["llama"])


def tokens_of(llama: Path, overlap: bool, *limits: dict[str, Any]) -> list[list[int]]:
    """Return the outputs of one prompt under each of these limits, computed together."""
    [prompt] = random_prompts(1, VOCAB_SIZE)
    requests = [
        Request(
            id=str(i), prompt=prompt, sampling=SamplingParams(max_tokens=16, seed=1, temperature=5.0, **each)
        )
        for i, each in enumerate(limits)
    ]
    return [outcome.token_ids for outcome in generate(build_engine(llama, overlap=overlap), requests)]


@pytest.mark.parametrize("overlap", [False, True])
def test_only_allowed_tokens_are_sampled(llama: Path, overlap: bool) -> None:
    free, few, one = tokens_of(
        llama, overlap, {}, {"allowed_token_ids": (5, 9, 11)}, {"allowed_token_ids": (7,)}
    )
    assert len(set(free)) > 3
    assert set(few) == {5, 9, 11}
    assert set(one) == {7}


@pytest.mark.parametrize("overlap", [False, True])
def test_bad_words_never_appear(llama: Path, overlap: bool) -> None:
    """A word of one token is banned everywhere, one of several only after its other tokens."""
    [free] = tokens_of(llama, overlap, {})
    pair = (free[4], free[5])
    again, without, neither = tokens_of(
        llama, overlap, {}, {"bad_words": (pair,)}, {"bad_words": ((free[0],), (*free[1:4],))}
    )
    assert again == free
    assert without[:5] == free[:5]
    assert pair not in pairwise(without)
    assert free[0] not in neither


@pytest.mark.parametrize(
    ("limits", "more", "why"),
    [
        ({"allowed_token_ids": (VOCAB_SIZE,)}, {}, "allowed_token_ids holds token id"),
        ({"allowed_token_ids": (3,), "min_tokens": 2}, {"eos_token_ids": (3,)}, "leaves no token"),
        ({"min_tokens": 2, "stop_token_ids": tuple(range(VOCAB_SIZE))}, {}, "every token ends the output"),
        ({"bad_words": tuple((i,) for i in range(VOCAB_SIZE))}, {}, "leaves no token"),
        ({"allowed_token_ids": (3,), "bad_words": ((4,),)}, {}, "together with bad_words"),
        (
            {"bad_words": ((4,),)},
            {"grammar": GrammarSpec("regex", "a"), "eos_token_ids": (3,)},
            "together with a grammar",
        ),
        ({"bad_words": ((),)}, {}, "without tokens"),
    ],
)
def test_limits_that_exclude_all_tokens_are_refused(
    llama: Path, limits: dict[str, Any], more: dict[str, Any], why: str
) -> None:
    sampling = SamplingParams(max_tokens=4, **limits)
    with pytest.raises(RequestError, match=why):
        build_engine(llama).add(Request(id="a", prompt=[5], sampling=sampling, **more))
