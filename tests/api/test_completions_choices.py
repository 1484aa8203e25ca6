"""Several choices, the best of them, and what lies between a prefix and a suffix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from llmfw.api.completions.fill_in import LAYOUTS, end_ids, find_layout, lay_out
from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import Request, TokenEvent
from llmfw.core.interfaces.tokenizer import Tokenizer

from ..doubles.echo_engine import EchoEngine, score
from ..doubles.serving import Served, byte_tokenizer, serving
from .test_completions import chunks_of, complete


class SeededEngine(EchoEngine):
    """Ends a choice after as many tokens as its seed says: the echoed tokens get less and less likely."""

    def _next(self, request: Request, done: int) -> list[TokenEvent]:
        events = super()._next(request, done)
        for event in events:
            if event.logprobs:
                event.logprobs = [score(100 * abs((request.sampling.seed or 0) - 7), 0)]
        return events


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(SeededEngine(), byte_tokenizer(tmp_path_factory.mktemp("model"))) as served:
        yield served


def test_best_of_returns_the_best_by_mean_logprob(seeded: Served) -> None:
    body = complete(seeded, prompt=["ab", "c"], n=2, best_of=5, seed=4, max_tokens=1, logprobs=0)
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    means = [choice["logprobs"]["token_logprobs"] for choice in body["choices"]]
    best, second = score(0, 0).logprob, score(100, 0).logprob
    assert means == [[best], [second], [best], [second]]
    assert body["usage"]["completion_tokens"] == 10
    assert body["usage"]["prompt_tokens"] == 3


def test_best_of_works_without_requested_logprobs(seeded: Served) -> None:
    body = complete(seeded, prompt="ab", best_of=2, seed=6, max_tokens=1)
    assert [choice["logprobs"] for choice in body["choices"]] == [None]
    assert body["usage"]["completion_tokens"] == 2


def test_streams_accept_best_of_equal_to_n(server: Served) -> None:
    assert len(chunks_of(server, prompt="a", n=2, best_of=2)) == 4


def test_usage_counts_prompts_once_and_all_choices(server: Served) -> None:
    usage = complete(server, prompt=["abcd", "é"], n=3)["usage"]
    assert usage["prompt_tokens"] == 6
    assert usage["completion_tokens"] == 3 * (4 + 1) + 3 * (2 + 1)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 0}
    usage = complete(server, prompt=["abcd", "é"], n=3)["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 3 + 1}


def test_more_than_four_stop_strings_are_accepted(server: Served) -> None:
    stops = [f"no {i}" for i in range(50)] + ["c"]
    assert complete(server, prompt="abcd", stop=stops)["choices"][0]["text"] == "ab"


def test_the_whole_context_can_be_used(server: Served) -> None:
    limit = server.engine.info.max_model_len
    body = complete(server, prompt=[65] * (limit - 4), max_tokens=4)
    assert body["usage"]["total_tokens"] == limit
    over = server.post("/v1/completions", {"prompt": [65] * (limit - 4), "max_tokens": 5})
    assert over.json()["error"]["code"] == "context_length_exceeded"


def fill_in_tokenizer(*names: str) -> Tokenizer:
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"[UNK]": 0, "x": 1, "y": 2}, unk_token="[UNK]")
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens([*names, "<s>"])
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", backend.token_to_id("<s>"))]
    )
    return Tokenizer(backend)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_suffix_prompt_uses_the_model_s_tokens(layout: Any) -> None:
    names = [part for part in layout.parts if isinstance(part, str)]
    tokenizer = fill_in_tokenizer(*names, *layout.ends)
    assert find_layout(tokenizer) == layout
    asked = tokenizer.decode(
        lay_out(layout, tokenizer, [1], tokenizer.encode("y", add_special_tokens=False)),
        skip_special_tokens=False,
    )
    assert asked == " ".join(
        ["<s>", *(part if isinstance(part, str) else "xy"[part] for part in layout.parts)]
    )
    assert len(end_ids(layout, tokenizer)) == len(layout.ends)


def test_a_model_without_fill_in_tokens_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="fim_prefix"):
        find_layout(byte_tokenizer(tmp_path))


@pytest.mark.parametrize("as_token_ids", [False, True])
def test_a_suffix_builds_a_fill_in_prompt(as_token_ids: bool) -> None:
    tokenizer = fill_in_tokenizer("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
    with serving(EchoEngine(), tokenizer) as served:
        body = complete(served, prompt=[1] if as_token_ids else "x", suffix="y", max_tokens=2)
        asked = tokenizer.decode(served.engine.requests[-1].prompt, skip_special_tokens=False)
        assert asked == "<s> <|fim_prefix|> x <|fim_suffix|> y <|fim_middle|>"
        assert body["usage"]["prompt_tokens"] == 6


def test_inserted_special_tokens_take_no_offset() -> None:
    tokenizer = fill_in_tokenizer()
    with serving(EchoEngine(), tokenizer) as served:
        [choice] = complete(served, prompt="x  y x", echo=True, logprobs=0, max_tokens=0)["choices"]
    assert choice["text"] == "x  y x"
    assert choice["logprobs"]["tokens"] == ["<s>", " x", " y", " x"]
    assert choice["logprobs"]["text_offset"][:2] == [0, 0]
