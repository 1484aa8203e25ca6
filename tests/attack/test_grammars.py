"""Grammars that crash, hang or blow up hurt the requests that bring them.

Before: 900 chained `$ref`s or a Lark chain of 4,000 rules ended the API process; eight schemas with 1,900 properties
held up others by 18 s; an ambiguous grammar made each step of the engine take seconds.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from ..crash.server import ServerProcess
from .harness import unhurt

OPTIONS = ("--grammar-timeout", "2")

LARK_CHAIN = "start: r0\n" + "\n".join(f"r{i}: r{i + 1}" for i in range(4000)) + '\nr4000: "a"'
DEEP_TAG = '{"type": "tag", "begin": "<", "end": ">", "content": ' * 5000 + "{}" + "}" * 5000


def chain(length: int) -> dict[str, Any]:
    links = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}]} for i in range(length)}
    return {"$defs": {**links, f"d{length}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def wide(name: str, properties: int = 1900) -> dict[str, Any]:
    members = {f"{name}{i}": {"type": "string"} for i in range(properties)}
    return {"type": "object", "properties": members, "additionalProperties": False}


BOMBS: dict[str, dict[str, Any]] = {
    "chained references": {"json_schema": chain(900)},
    "chained rules": {"ebnf": LARK_CHAIN},
    "ambiguity": {"ebnf": "start: s\ns: s s s | s s | /[a-z ]/"},
    "nested repeats": {"regex": "((a{0,1000}){0,1000}){0,1000}"},
    "backtracking": {
        "json_schema": {"propertyNames": {"pattern": "^(a|aa)+$"}, "properties": {"a" * 40 + "b": True}}
    },
    "intersection": {
        "ebnf": "start: T\nT: " + " & ".join(f"/(.{{{p}}})*/" for p in (2, 3, 5, 7, 11, 13, 17))
    },
    "unicode classes": {"regex": r"(\p{L}|\p{N}|\p{S}){1,2000}\p{Lu}{500}"},
    "deep tags": {"structural_tag": f'{{"type": "structural_tag", "format": {DEEP_TAG}}}'},
    "long enum": {"json_schema": {"enum": [f"v{i}" for i in range(50_000)]}},
    "recursive GBNF": {"ebnf": 'root ::= root root | "a" | root'},
}


def ask(server: ServerProcess, fields: dict[str, Any], timeout: float = 60) -> httpx.Response:
    body = {"prompt": "a", "max_tokens": 16, **fields}
    return httpx.post(f"http://127.0.0.1:{server.port}/v1/completions", json=body, timeout=timeout)


def test_grammar_bombs_delay_no_other_client(server: ServerProcess) -> None:
    assert ask(server, {"json_schema": {"type": "boolean"}}).status_code == 200  # the processes are there
    with unhurt(server), ThreadPoolExecutor(len(BOMBS)) as threads:
        replies = dict(zip(BOMBS, threads.map(lambda bomb: ask(server, bomb), BOMBS.values()), strict=True))
    for name, reply in replies.items():
        assert reply.status_code in (200, 400), (name, reply.text)
    for name in ("chained rules", "backtracking", "intersection"):
        assert replies[name].json()["error"]["code"] in ("grammar_too_complex", "grammar_timeout"), name


def test_wide_schemas_do_not_block_small_ones(server: ServerProcess) -> None:
    with unhurt(server), ThreadPoolExecutor(8) as threads:
        attack = [
            threads.submit(ask, server, {"json_schema": wide(name), "user": "attacker"})
            for name in "abcdefgh"
        ]
        for i in range(5):
            reply = ask(server, {"json_schema": {"const": f"k{i}"}, "user": "other"}, timeout=2)
            assert json.loads(reply.json()["choices"][0]["text"]) == f"k{i}"
        assert all(one.result().status_code in (200, 400) for one in attack)
