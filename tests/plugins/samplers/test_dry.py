"""DRY subtracts what its published definition does, computed here token by token."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import Any

import pytest
import torch

from llmfw.core import RequestError
from llmfw.core.testing import LogitsProcessorTests
from llmfw.core.testing.logits_processors import ALPHABET, ExampleContext, ExampleRow, Reference, processed_by
from llmfw.plugins.samplers import dry
from llmfw.plugins.samplers.dry import DRY

VOCAB_SIZE = 128
DEFAULT_BREAKERS = {token for token, text in enumerate(ALPHABET) if set(text) & set('\n:"*')}


@pytest.fixture
def processor() -> DRY:
    return DRY(ExampleContext(), DRY.Options())


def penalties(
    tokens: Sequence[int],
    multiplier: float,
    base: float = 1.75,
    allowed_length: int = 2,
    breakers: Collection[int] = (),
    last_n: int = -1,
    max_length: int = 50,
) -> dict[int, float]:
    """Return the penalty of each token, as text-generation-webui's first version computes it.

    https://github.com/oobabooga/text-generation-webui/pull/5677
    """
    ids = list(tokens if last_n < 0 else tokens[-last_n:])
    if ids[-1] in breakers:
        return {}
    longest: dict[int, int] = {}
    for i in (i for i in range(len(ids) - 1) if ids[i] == ids[-1]):
        next_token = ids[i + 1]
        if next_token in breakers:
            continue
        length = 1
        while length < max_length:
            j = i - length
            if j < 0 or ids[j] != ids[-length - 1] or ids[j] in breakers:
                break
            length += 1
        longest[next_token] = max(length, longest.get(next_token, 0))
    return {
        token: multiplier * base ** (length - allowed_length)
        for token, length in longest.items()
        if length >= allowed_length
    }


def penalized(row: ExampleRow, max_length: int) -> Sequence[float]:
    """Return the logits of a row, less the penalties of the definition."""
    fields = row.fields
    texts = fields.get("dry_sequence_breakers", ["\n", ":", '"', "*"])
    found = penalties(
        row.tokens,
        fields["dry_multiplier"],
        fields.get("dry_base", 1.75),
        fields.get("dry_allowed_length", 2),
        {token for token, text in enumerate(ALPHABET) if any(each in text for each in texts)},
        fields.get("dry_penalty_last_n", -1),
        max_length,
    )
    return [logit - min(found.get(token, 0.0), 1e30) for token, logit in enumerate(row.logits.tolist())]


class TestDRY(LogitsProcessorTests):
    @pytest.fixture(params=[3, 50])
    def processor(self, request: pytest.FixtureRequest) -> DRY:
        return DRY(ExampleContext(), DRY.Options() if request.param == 50 else DRY.Options(request.param))

    @pytest.fixture
    def reference(self, processor: DRY) -> Reference:
        max_length = 50 if processor.options == DRY.Options() else 3
        return lambda row, draw: penalized(row, max_length)


def found_for(processor: DRY, tokens: Sequence[int], **fields: Any) -> dict[int, float]:
    """Return the penalties of a processor that are not 0."""
    row = ExampleRow(
        {f"dry_{name}": value for name, value in fields.items()}, tokens, torch.zeros(VOCAB_SIZE)
    )
    [logits] = processed_by(processor, [row])
    return {token: -value for token, value in enumerate(logits.tolist()) if value}


def check(processor: DRY, tokens: Sequence[int], breakers: Collection[int], **given: Any) -> int:
    """Compare the processor with the definition; return the number of penalties."""
    named = {name.replace("last_n", "penalty_last_n"): value for name, value in given.items()}
    found = found_for(processor, tokens, **named)
    expected = penalties(tokens, breakers=breakers, max_length=processor.options.max_length, **given)
    assert found == pytest.approx(expected, rel=1e-6)
    return len(expected)


@pytest.mark.parametrize("max_length", [1, 4, 50])
def test_penalties_equal_the_published_definition(max_length: int) -> None:
    processor = DRY(ExampleContext(), DRY.Options(max_length=max_length))
    rng, num = random.Random(max_length), 0
    for _ in range(300):
        few = rng.sample(range(VOCAB_SIZE), rng.choice([2, 4, 9]))
        tokens = [rng.choice(few) for _ in range(rng.choice([1, 2, 3, 20, 200]))]
        given = {
            "multiplier": rng.choice([0.1, 0.8, 5.0]),
            "base": rng.choice([1.0, 1.75, 3.0]),
            "allowed_length": min(rng.choice([1, 2, 5]), max_length),
            "last_n": rng.choice([-1, -1, 1, 2, 15, 1000]),
        }
        num += check(processor, tokens, DEFAULT_BREAKERS, **given)
    assert num > 100


def test_longer_repetitions_get_larger_penalties(processor: DRY) -> None:
    text = [40, 41, 42, 43, 44]
    for length, penalty in ((1, 0), (2, 0.8), (3, 0.8 * 1.75), (4, 0.8 * 1.75**2)):
        found = found_for(processor, [*text, 50, *text[:length]], multiplier=0.8)
        assert found == (pytest.approx({text[length]: penalty}) if penalty else {})


def test_breakers_of_a_request_replace_the_default(processor: DRY) -> None:
    colon, the = ALPHABET.index(":"), ALPHABET.index(" the")
    tokens = [40, colon, 41, the, 42, 40, colon, 41, the]
    assert found_for(processor, tokens, multiplier=1.0) == pytest.approx({42: 1.0})
    assert found_for(processor, tokens, multiplier=1.0, sequence_breakers=[]) == pytest.approx({42: 1.75**2})
    assert found_for(processor, tokens, multiplier=1.0, sequence_breakers=["the"]) == {}


def test_a_breaker_without_a_token_is_refused(processor: DRY) -> None:
    with pytest.raises(RequestError, match="'xyzzy', which no token of the model has in it") as caught:
        found_for(processor, [1, 2], multiplier=1.0, sequence_breakers=["\n", "xyzzy"])
    assert caught.value.param == "dry_sequence_breakers"
    with pytest.raises(
        RequestError, match="no token"
    ):  # it would have to begin in one token and end in another
        found_for(processor, [1, 2], multiplier=1.0, sequence_breakers=["ab"])


def test_lengths_that_are_never_compared_are_refused(processor: DRY) -> None:
    with pytest.raises(RequestError, match="at most 50 tokens"):
        found_for(processor, [1, 2], multiplier=1.0, allowed_length=51)


def test_huge_penalties_forbid_no_token(processor: DRY) -> None:
    found = found_for(processor, [40] * 200, multiplier=100.0, base=100.0, allowed_length=1)
    assert found == {40: pytest.approx(1e30)}


def test_slices_change_nothing(processor: DRY, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    tokens = [rng.randrange(60, 63) for _ in range(400)]
    whole = found_for(processor, tokens, multiplier=1.0)
    monkeypatch.setattr(dry, "SLICE_ELEMENTS", 1000)
    assert found_for(processor, tokens, multiplier=1.0) == whole != {}


def test_a_vocabulary_without_breakers_is_served() -> None:
    class Bare(ExampleContext):
        def token_bytes(self, token_id: int) -> bytes:
            return b"x"

    assert found_for(DRY(Bare(), DRY.Options()), [5, 6, 7, 5, 6], multiplier=1.0) == pytest.approx({7: 1.0})
