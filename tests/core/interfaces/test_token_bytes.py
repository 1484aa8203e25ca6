"""The bytes of a text's tokens are the text's."""

from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from llmfw.core.interfaces.token_bytes import byte_alphabet
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins

TEXTS = ["The quick brown fox", "Zwölf Boxkämpfer jagen Viktor", "日本語 🎉 👨‍👩‍👧"]


def byte_level() -> Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(TEXTS, trainer)
    backend.add_special_tokens(["<end>"])
    return Tokenizer(backend)


def sentence_pieces(*, old: bool) -> Tokenizer:
    """Return one as Llama 2 has it: old files have a normalizer, new ones a pre-tokenizer."""
    pieces = [f"<0x{i:02X}>" for i in range(256)] + ["▁", "T", "h", "e", "ö", "▁T"]
    backend = tokenizers.Tokenizer(
        models.BPE({piece: i for i, piece in enumerate(pieces)}, [("▁", "T")], byte_fallback=True)
    )
    if old:
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        steps = [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
        steps = [decoders.ByteFallback(), decoders.Metaspace()]
    backend.decoder = decoders.Sequence(steps)
    return Tokenizer(backend)


def word_pieces() -> Tokenizer:
    words = ["[UNK]", "play", "##ing", "##s", "the", "ball"]
    backend = tokenizers.Tokenizer(
        models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.WordPiece(cleanup=False)
    return Tokenizer(backend)


@pytest.fixture(scope="module", params=["byte level", "old pieces", "new pieces", "demo"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param == "byte level":
        return byte_level()
    if request.param == "demo":
        return load_tokenizer(resolve_model("demo", load_plugins().registry).path)
    return sentence_pieces(old=request.param == "old pieces")


@given(st.text(max_size=40))
def test_joined_token_bytes_equal_the_encoded_text(tokenizer: Tokenizer, text: str) -> None:
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    joined = b"".join(map(tokenizer.token_bytes, token_ids))
    # Pieces begin a text with a space of their own, and have one sign for it and for "▁".
    assert text.replace("▁", " ").encode() in (joined.replace("▁".encode(), b" "), joined[1:])


@given(st.lists(st.sampled_from(["play", "playing", "plays", "the", "ball"]), max_size=6).map(" ".join))
def test_continuing_word_pieces_have_no_space(text: str) -> None:
    tokenizer = word_pieces()
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode(text))).decode().removeprefix(" ") == text


def test_partial_characters_have_partial_bytes(tokenizer: Tokenizer) -> None:
    *_, first, last = tokenizer.encode("\U0001fad7")  # no vocabulary here has it whole
    assert tokenizer.token_bytes(first) + tokenizer.token_bytes(last) == "\U0001fad7".encode()[-2:]


def test_a_special_token_s_bytes_are_its_name() -> None:
    tokenizer = byte_level()
    [end] = tokenizer.encode("<end>")
    assert tokenizer.token_bytes(end) == b"<end>"
    assert tokenizer.token_id("<end>") == end


def test_an_id_without_a_token_has_no_bytes(tokenizer: Tokenizer) -> None:
    assert tokenizer.token_bytes(10**6) == b""


def test_words_without_decoder_have_a_leading_space() -> None:
    tokenizer = Tokenizer(tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a")))
    assert (tokenizer.token_bytes(0) + tokenizer.token_bytes(1)).decode() == f" {tokenizer.decode([0, 1])}"


def test_the_byte_alphabet_equals_the_library_s() -> None:
    assert set(byte_alphabet()) == set(pre_tokenizers.ByteLevel.alphabet())
    assert set(byte_alphabet().values()) == {bytes([i]) for i in range(256)}
