"""What the demo model's tokenizer promises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from llmfw.plugins.model_demo.tokenization import MARKUP_TOKENS, SPECIAL_TOKENS
from llmfw.plugins.model_demo.train import WEIGHTS


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(WEIGHTS)


@given(text=st.text())
def test_any_text_round_trips(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_digits_are_single_tokens(tokenizer):
    assert [token.lstrip("Ġ") for token in tokenizer.tokenize("12 345.6") if token != "Ġ"] == list("12345.6")


def test_capitalized_words_tokenize_alike_in_prose_and_json(tokenizer):
    prose, quoted = tokenizer.tokenize("I met Zorvex here"), tokenizer.tokenize('{"name": "Zorvex"}')
    name = tokenizer.tokenize("Zorvex")
    assert any(prose[at : at + len(name)] == name for at in range(len(prose)))
    assert any(quoted[at : at + len(name)] == name for at in range(len(quoted)))


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_special_tokens_are_single_and_skipped(tokenizer, token):
    ids = tokenizer.encode(token, add_special_tokens=False)
    assert len(ids) == 1
    assert tokenizer.decode(ids, skip_special_tokens=True) == ""


@pytest.mark.parametrize("token", MARKUP_TOKENS)
def test_markup_tokens_are_single_and_never_skipped(tokenizer, token):
    ids = tokenizer.encode(token, add_special_tokens=False)
    assert len(ids) == 1
    assert tokenizer.decode(ids, skip_special_tokens=True) == token


def test_no_tokens_are_added_around_text(tokenizer):
    assert tokenizer("Paris").input_ids == tokenizer("Paris", add_special_tokens=False).input_ids
