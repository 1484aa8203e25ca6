"""Prompts have the length that was asked for."""

from __future__ import annotations

import random

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from llmfw.plugins.bench.prompts import WORDS, TokenIds, TokenizerText, WordText, whole_words

PRE_TOKENIZERS = {
    "byte_level": (pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()),
    "metaspace": (pre_tokenizers.Metaspace(), decoders.Metaspace()),
}


@pytest.fixture(params=PRE_TOKENIZERS)
def folder(request, tmp_path):
    """A model folder with a tokenizer that knows half of the common words as one token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = PRE_TOKENIZERS[request.param]
    text = [" " + " ".join(WORDS[::2])] * 5
    tokenizer.train_from_iterator(text, trainers.BpeTrainer(vocab_size=1200, show_progress=False))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_tokenizer_text_is_exact_when_joined(folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    source, rng = TokenizerText(folder), random.Random(0)
    text = source.draw(rng, 100) + source.draw(rng, 28)
    assert len(tokenizer.encode(text).ids) == 128


def test_whole_words_have_the_tokenizer_s_ids(folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    words = whole_words(folder)
    text = "".join(f" {word}" for word in words)
    assert tokenizer.encode(text).ids == list(words.values())


def test_words_reach_the_requested_token_count():
    assert len(WordText(1.25).draw(random.Random(0), 250).split()) == 200


def test_ids_are_drawn_from_the_given_ones():
    assert set(TokenIds([5, 7]).draw(random.Random(0), 50)) == {5, 7}
