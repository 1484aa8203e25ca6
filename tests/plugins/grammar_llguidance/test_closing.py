"""Shortly before max_tokens JSON is closed, so that it is whole."""

from __future__ import annotations

import json
import random

import jsonschema
import numpy as np
import pytest

from llmfw.core.base.request import GrammarSpec

from .walking import VOCAB_SIZE, demo_backend, demo_tokenizer

LEVELS = {"type": "array", "items": {"type": "array", "items": {"type": "object", "required": ["a", "b"]}}}
SCHEMAS = [
    {},
    {"type": "string"},
    {"type": "number"},
    {"type": "array", "items": {"type": "string"}},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "required": ["a", "b"]},
    {"type": "object", "additionalProperties": LEVELS},
    {"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"},
    {"type": "array", "items": {"enum": ["x", "yy", 1, None]}},
    {"type": "string", "minLength": 3, "pattern": "^[a-z]+$"},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
@pytest.mark.parametrize("seed", range(5))
def test_hastened_json_ends_complete(schema, seed):
    tokenizer = demo_tokenizer()
    backend = demo_backend()
    grammar = backend.compile(GrammarSpec("json_schema", json.dumps(schema)))
    draw, tokens = random.Random(seed), []
    masks = np.zeros((1, (VOCAB_SIZE + 31) // 32), np.int32)
    while not grammar.is_finished():
        backend.fill_masks([grammar], masks)
        before = masks.copy()
        if len(tokens) > 60:
            assert backend.hasten(masks[0]) == bool((before != masks).any())
        assert masks.any()
        assert not (masks & ~before).any()
        token = draw.choice(np.flatnonzero(np.unpackbits(masks.view(np.uint8), bitorder="little")).tolist())
        grammar.accept(token)
        tokens += [token] if token not in tokenizer.eos_token_ids else []
        assert len(tokens) < 60 + 128
    jsonschema.validate(json.loads(tokenizer.decode(tokens)), schema)


@pytest.mark.parametrize("regex", ["[a-z]*", "(.|\n)*"])
def test_hasten_keeps_masks_of_unbounded_text(regex):
    backend = demo_backend()
    masks = np.zeros((1, (VOCAB_SIZE + 31) // 32), np.int32)
    backend.fill_masks([backend.compile(GrammarSpec("regex", regex))], masks)
    before = masks.copy()
    assert not backend.hasten(masks[0])
    assert (masks == before).all()
