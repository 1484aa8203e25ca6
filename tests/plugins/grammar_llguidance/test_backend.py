"""Masks, states and errors of the backend, for tokenizers of each family."""

from __future__ import annotations

import json
import re
import threading
import time

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import GrammarSpec
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.core.plugin.plugins import load_plugins
from llmfw.plugins.grammar_llguidance.backend import LlguidanceBackend, _explained

from .walking import TOKENIZER_SIZE, VOCAB_SIZE, allowed, compiled, demo_backend, demo_tokenizer, fits, walk


def pieces_tokenizer() -> Tokenizer:
    """Return a tokenizer as SentencePiece makes them, with byte fallback."""
    words = ["<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *'▁abc{}:,"0123456789']
    backend = tokenizers.Tokenizer(
        models.BPE({word: i for i, word in enumerate(words)}, [], byte_fallback=True)
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    backend.add_special_tokens(["<s>", "</s>"])
    return Tokenizer(backend, eos_token_ids=(1,))


def test_it_is_found_by_its_name() -> None:
    entry = load_plugins().registry.find("grammar", "llguidance")
    assert entry.load() is LlguidanceBackend
    assert not entry.missing()


def test_ids_beyond_the_tokenizer_are_not_allowed() -> None:
    grammar = compiled("regex", "(?s).*")
    assert max(allowed(grammar)) < TOKENIZER_SIZE < VOCAB_SIZE


def test_end_tokens_are_allowed_only_at_ends() -> None:
    ends = set(demo_tokenizer().eos_token_ids)
    assert ends
    grammar = compiled("regex", "ab?")
    assert not ends & set(allowed(grammar))
    grammar.accept(demo_tokenizer().encode("a")[0])
    assert ends <= set(allowed(grammar))
    assert not grammar.is_finished()


def test_an_output_finishes_after_its_last_character() -> None:
    grammar = compiled("regex", "yes")
    for token in demo_tokenizer().encode("yes"):
        assert not grammar.is_finished()
        grammar.accept(token)
    assert grammar.is_finished()
    assert set(allowed(grammar)) == set(demo_tokenizer().eos_token_ids)


def test_a_refused_token_changes_nothing() -> None:
    grammar = compiled("regex", "ab")
    wrong, right = demo_tokenizer().encode("x")[0], demo_tokenizer().encode("ab")
    for token in (wrong, demo_tokenizer().eos_token_ids[0], VOCAB_SIZE - 1):
        with pytest.raises(ValueError, match="does not allow token"):
            grammar.accept(token)
    for token in right:
        grammar.accept(token)
    grammar.accept(demo_tokenizer().eos_token_ids[0])
    with pytest.raises(ValueError, match="after the end"):
        grammar.accept(right[0])


def test_models_without_end_tokens_have_no_grammars() -> None:
    tokenizer = pieces_tokenizer()
    tokenizer.eos_token_ids = ()
    with pytest.raises(RequestError, match="no end-of-sequence token"):
        LlguidanceBackend(tokenizer, 300)


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        decoders.Metaspace(),
        decoders.WordPiece(),
        decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]),
    ],
)
def test_unreadable_tokenizers_are_refused(decoder: object) -> None:
    backend = tokenizers.Tokenizer.from_str(pieces_tokenizer().to_json())
    backend.decoder = decoder
    with pytest.raises(RequestError, match="tokens cannot be constrained; send the request without"):
        LlguidanceBackend(Tokenizer(backend, eos_token_ids=(1,)), 300)


def test_copies_are_independent() -> None:
    grammar = compiled("regex", "ax|bx")
    copy = grammar.copy()
    before = allowed(grammar)
    copy.accept(demo_tokenizer().encode("a")[0])
    assert allowed(grammar) == before != allowed(copy)
    grammar.accept(demo_tokenizer().encode("b")[0])
    assert allowed(grammar) == allowed(copy)


def test_forced_text_uses_the_model_s_tokenization() -> None:
    schema = {"type": "object", "properties": {"temperature": {"type": "null"}}, "required": ["temperature"]}
    forced = list(compiled("json_schema", schema).forced())
    assert demo_tokenizer().decode(forced).startswith('{"temperature')
    assert forced == demo_tokenizer().encode('{"temperature":')
    assert compiled("regex", "a|b").forced() == []


def test_batched_masks_equal_single_masks() -> None:
    grammars = [compiled("regex", pattern) for pattern in ("a", "b+", "[0-9]{3}", "(?s).*")]
    masks = np.full((len(grammars), (VOCAB_SIZE + 31) // 32), -1, np.int32)
    demo_backend().fill_masks(grammars, masks)
    for grammar, row in zip(grammars, masks, strict=True):
        bits = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        assert bits.tolist() == allowed(grammar)


def test_masks_are_filled_while_others_compile() -> None:
    source = json.dumps({"enum": [f"word {i}" for i in range(5000)]})
    threads = [threading.Thread(target=compiled, args=("json_schema", source)) for _ in range(2)]
    grammar = compiled("regex", "[a-z]+")
    for thread in threads:
        thread.start()
    rounds = 0
    while any(thread.is_alive() for thread in threads):
        assert allowed(grammar)
        rounds += 1
    assert rounds > 2


@pytest.mark.parametrize("schema", [{"type": "object"}, {"enum": ["ä b", 12]}])
def test_pieces_with_byte_fallback_work_too(schema: object) -> None:
    tokenizer = pieces_tokenizer()
    backend = LlguidanceBackend(tokenizer, 300)
    grammar = backend.compile(GrammarSpec("json_schema", json.dumps(schema)))
    text = '{"a b":12}' if schema == {"type": "object"} else '"ä b"'
    for token in tokenizer.encode(text, add_special_tokens=False):
        assert token in allowed(grammar, backend, 300)
        grammar.accept(token)
    assert allowed(grammar, backend, 300) == [1]


@pytest.mark.parametrize("pattern", ["[a-c]{2}\\d", "yes|no", "/\\w{1,3}@x\\.org/", "(?i)ja\\n", "^a$"])
def test_outputs_match_the_regular_expression(pattern: str) -> None:
    grammar = compiled("regex", pattern)
    texts = [walk(grammar, seed, limit=100) for seed in range(6)]
    assert any(texts)
    assert all(re.fullmatch(pattern, text) for text in texts if text is not None)


LARK = 'start: greeting " " NAME\ngreeting: "hi" | "hello"\nNAME: /[A-Z][a-z]{1,5}/'
GBNF = 'root ::= greeting " " name\ngreeting ::= "hi" | "hello"\nname ::= [A-Z] [a-z] [a-z]?'


@pytest.mark.parametrize("grammar", [LARK, GBNF], ids=["lark", "gbnf"])
def test_outputs_match_either_grammar_syntax(grammar: str) -> None:
    texts = [walk(compiled("ebnf", grammar), seed) for seed in range(5)]
    assert all(re.fullmatch("(hi|hello) [A-Z][a-z]{1,5}", str(text)) for text in texts)
    assert fits(compiled("ebnf", grammar), "hi Bo")


@pytest.mark.parametrize(
    ("kind", "source", "reason"),
    [
        ("regex", "(a", "regular expression .*unclosed group"),
        ("regex", "a(?=b)", "regular expression .*look-around"),
        ("ebnf", "start: foo", 'unknown name: "foo"'),
        ("ebnf", "root ::= (", "not GBNF"),
        ("ebnf", "root ::= " + "(" * 5000 + '"a"' + ")" * 5000, "nested too deeply"),
        ("json_schema", "NESTED", "nested too deeply"),
        ("ebnf", "nonsense", "grammar cannot be used"),
        ("ebnf", "x" * 1_000_001, "limit is 1000000"),
        ("poem", "", "no kind of grammar 'poem'; kinds are json_schema, regex, ebnf, structural_tag"),
    ],
)
def test_a_broken_grammar_names_the_reason(kind: str, source: str, reason: str) -> None:
    schema: object = {"type": "string"}
    for _ in range(45):
        schema = {"anyOf": [schema, {"type": "null"}]}
    start = time.monotonic()
    with pytest.raises(RequestError, match=f"(?s){reason}"):
        compiled(kind, source.replace("NESTED", json.dumps(schema)))
    assert time.monotonic() - start < 5


def test_a_library_panic_is_hidden() -> None:
    said = "panic: index out of bounds\n   0: /home/runner/work/parser/src/lib.rs:12"
    assert _explained(said) == "the library that compiles it failed on it; write it in another way"


@pytest.mark.parametrize("attributes", ["temperature=0.0", "max_tokens=3, temperature = 1"])
def test_a_rule_s_temperature_is_refused(attributes: str) -> None:
    with pytest.raises(RequestError, match="the rule x has a temperature, which is not honored"):
        compiled("ebnf", f"start: x\nx[{attributes}]: /[a-z]+/")


def test_a_literal_may_speak_of_temperature() -> None:
    assert fits(compiled("ebnf", 'start: "x[temperature=1]: "'), "x[temperature=1]: ")
