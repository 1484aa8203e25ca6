"""Tokens become text as they come, the same text as all at once."""

from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, trainers

from llmfw.core.base.errors import EngineError
from llmfw.core.interfaces.tokenizer import MAX_HELD_TOKENS, Tokenizer

TEXTS = ["The quick brown fox", "Zwölf Boxkämpfer jagen Viktor", "日本語 🎉 👨‍👩‍👧"]


@pytest.fixture(scope="module", params=["bytes", "pieces"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """Return a tokenizer of each of the two families: byte-level BPE, and pieces with byte fallback."""
    if request.param == "bytes":
        backend = tokenizers.Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
        backend.train_from_iterator(TEXTS, trainer)
    else:
        pieces = [f"<0x{i:02X}>" for i in range(256)] + ["▁", "T", "h", "e", "q", "u"]
        backend = tokenizers.Tokenizer(
            models.BPE({piece: i for i, piece in enumerate(pieces)}, [], byte_fallback=True)
        )
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
        backend.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
    backend.add_special_tokens(["<end>"])
    return Tokenizer(backend)


@given(st.text(max_size=40))
def test_incremental_detokenization_equals_decoding_at_once(tokenizer: Tokenizer, text: str) -> None:
    token_ids = tokenizer.encode(text)
    detokenizer = tokenizer.detokenizer()
    assert "".join(detokenizer.feed([token]) for token in token_ids) == tokenizer.decode(token_ids)


@given(st.text(max_size=20), st.integers(1, 40))
def test_partial_characters_are_never_shown(tokenizer: Tokenizer, text: str, end: int) -> None:
    detokenizer = tokenizer.detokenizer()
    token_ids = tokenizer.encode(text)[:end]
    shown = "".join(detokenizer.feed([token]) for token in token_ids)
    assert tokenizer.decode(tokenizer.encode(text)).startswith(shown)


def finished(tokenizer: Tokenizer, token_ids: list[int]) -> str:
    detokenizer = tokenizer.detokenizer()
    text = "".join(detokenizer.feed([token]) for token in token_ids) + detokenizer.finish()
    assert detokenizer.finish() == ""
    return text


@given(st.text(max_size=20), st.integers(0, 40), st.integers(0, 40))
def test_a_finished_text_is_what_decode_returns(
    tokenizer: Tokenizer, text: str, start: int, end: int
) -> None:
    """With byte fallback, decode loses all characters next to an invalid byte, which a stream has shown."""
    token_ids = tokenizer.encode(text)[start:end]
    has_fallback = tokenizer.token_id("<0x00>") is not None
    assert has_fallback or finished(tokenizer, token_ids) == tokenizer.decode(token_ids)


@pytest.mark.parametrize("num_missing", [1, 2])
def test_characters_cut_off_are_shown_as_decoded(tokenizer: Tokenizer, num_missing: int) -> None:
    token_ids = tokenizer.encode("The")
    token_ids += tokenizer.encode("\U0001f9ff")[:-num_missing]
    text = finished(tokenizer, token_ids)
    assert text == tokenizer.decode(token_ids)
    assert text.endswith("\ufffd")


def test_a_continuation_keeps_its_leading_space(tokenizer: Tokenizer) -> None:
    prompt, new = tokenizer.encode("The"), tokenizer.encode("The The")[len(tokenizer.encode("The")) :]
    detokenizer = tokenizer.detokenizer(prompt)
    assert "".join(detokenizer.feed([token]) for token in new) == " The"


def test_special_tokens_are_shown_on_request(tokenizer: Tokenizer) -> None:
    token_ids = tokenizer.encode("The<end>")
    assert tokenizer.detokenizer().feed(token_ids).endswith("The")
    assert tokenizer.detokenizer(skip_special_tokens=False).feed(token_ids).endswith("The<end>")


def test_invalid_bytes_do_not_accumulate(tokenizer: Tokenizer) -> None:
    [*_, broken] = tokenizer.encode("ÿ")[-1:]
    detokenizer = tokenizer.detokenizer()
    shown = "".join(detokenizer.feed([broken]) for _ in range(5 * MAX_HELD_TOKENS))
    assert shown == "\ufffd" * 5 * MAX_HELD_TOKENS
    assert detokenizer.feed(tokenizer.encode("T")).strip() == "T"


async def test_long_texts_are_encoded_like_short_ones(tokenizer: Tokenizer) -> None:
    text = "The quick brown fox. " * 500
    assert await tokenizer.encode_aside(text) == tokenizer.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)).count("The") == 500


@given(st.text(max_size=40))
def test_fewest_tokens_is_a_lower_bound(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.fewest_tokens(text) <= len(tokenizer.encode(text))


WORD_PIECES = ["a", "##b", "n't", "'m", "'", ".", ",", "?", "do not", " .", "##.", "[CLS]"]


@pytest.mark.parametrize("cleanup", [True, False])
@given(token_ids=st.lists(st.integers(0, len(WORD_PIECES) - 1), min_size=1, max_size=12))
def test_word_pieces_stream_as_decoded(cleanup: bool, token_ids: list[int]) -> None:
    """The decoder's clean-up, which removes spaces before punctuation, changes no text that has been shown."""
    vocabulary = {piece: i for i, piece in enumerate(WORD_PIECES)}
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="a"))
    backend.decoder = decoders.WordPiece(cleanup=cleanup)
    backend.add_special_tokens(["[CLS]"])
    tokenizer = Tokenizer(backend)
    assert finished(tokenizer, token_ids) == tokenizer.decode(token_ids)


def test_a_library_panic_is_an_engine_error() -> None:
    """A panic is no `Exception`, and would end the event loop's task without a reply."""
    backend = tokenizers.Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    pattern = tokenizers.Regex("(h+e*)+(l|l?)+(.*.*.*)*$X")
    backend.pre_tokenizer = pre_tokenizers.Split(pattern, "isolated")
    with pytest.raises(EngineError, match="tokenizer cannot process this text"):
        Tokenizer(backend).encode("hello world this is")
